"""What a job script needs to know of a cluster: partition, requests, binding, environment.

Every line has its reason, which the script shows, and where it comes from; 'unverified' is general
knowledge that nobody looked up. Node and device counts are those of meshes/, where there is a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from jaxbench.catalog.systems import find_system, system_names
from jaxbench.errors import InputError, unknown

UNVERIFIED = "unverified"
MANUAL = "sbatch(1), srun(1)"


class Line(NamedTuple):
    """An option of sbatch or srun, or NAME=value of the environment.

    {per_node}, the devices of a node, and {numbers}, theirs as in 0,1,2, are filled in.
    """

    text: str
    why: str
    source: str = UNVERIFIED


class Size(NamedTuple):
    """Jobs of up to so many nodes, and the quality of service that they need ('': none)."""

    nodes: int
    qos: str = ""


@dataclass(frozen=True, kw_only=True)
class SlurmSystem:
    """One cluster. `nodes` is None where nobody knows, `sizes` is () where only `nodes` limits."""

    name: str
    title: str
    platform: Literal["cuda", "rocm", "cpu"]
    devices_per_node: int
    nodes: int | None = None
    partition: str = ""
    sizes: tuple[Size, ...] = ()
    account: bool = True  # whether jobs need one
    cpus_per_task: int
    directives: tuple[Line, ...] = ()
    srun: tuple[Line, ...] = ()
    environment: tuple[Line, ...] = ()
    setup: tuple[str, ...] = ()  # what a user may have to load, shown as comments
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def most_nodes(self) -> int | None:
        """The most nodes that a job can have in the partition; None where nobody knows."""
        return self.sizes[-1].nodes if self.sizes else self.nodes

    def qos(self, nodes: int) -> str:
        """The quality of service of a job with so many nodes."""
        return next((size.qos for size in self.sizes if nodes <= size.nodes), "")


def find_slurm_system(name: str) -> SlurmSystem:
    """Return the cluster `name`: a row here, or a system of meshes/ as a generic cluster.

    InputError for an unknown name, and for a system on which there is no Slurm.
    """
    if name in GENERIC:
        return GENERIC[name]
    if name not in system_names():
        raise InputError(unknown("system", name, slurm_system_names()))
    system = find_system(name)
    if name in SLURM_SYSTEMS:
        row = SLURM_SYSTEMS[name]
    elif system.hardware.startswith("tpu"):
        raise InputError(f"system '{name}' has no Slurm; known: {', '.join(slurm_system_names())}")
    elif system.hardware == "cpu":
        row = replace(GENERIC["generic_cpu"], name=name, title=system.description)
    else:
        row = replace(GENERIC["generic_gpu"], name=name, title=system.description)
    return replace(row, nodes=system.nodes, devices_per_node=system.devices_per_node)


def slurm_system_names() -> list[str]:
    """Return the names that `find_slurm_system` takes, sorted."""
    slurm = [name for name in system_names() if not name.startswith("tpu")]
    return sorted({*slurm, *GENERIC})


_EXCLUSIVE = Line("--exclusive", "jobs of others on the same nodes would be measured too", MANUAL)
_ALL_MEMORY = Line("--mem=0", "all the memory of each node", MANUAL)
_ALL_GPUS = Line("--gpus-per-node={per_node}", "all GPUs of each node", MANUAL)
_SEE_ALL = Line(
    "--gpu-bind=none",
    "each process sees all GPUs of its node and takes its own: hidden ones can't be reached over "
    "NVLink or shared memory",
)
_BLOCKS = Line(
    "--distribution=block:block",
    "neighbouring processes on neighbouring cores, in the order of the GPUs; Slurm's default "
    "deals them out to the sockets in turn",
    "docs.coreweave.com: CPU binding and NUMA affinity",
)
_CORES = Line("--cpu-bind=cores", "a process stays on its cores", MANUAL)
_FAIL = "fail without GPUs: JAX alone would go on with the CPU"
_CUDA = Line("JAX_PLATFORMS=cuda", _FAIL, "docs.jax.dev, configuration options")
_ROCM = Line("JAX_PLATFORMS=rocm", _FAIL, "docs.jax.dev, configuration options")
_WARN = Line(
    "NCCL_DEBUG=WARN",
    "say why, where communication fails",
    "docs.nvidia.com NCCL user guide, environment variables",
)
_INFINIBAND = Line(
    "NCCL_NET=IB",
    "fail without InfiniBand: NCCL alone would go on with slow TCP",
    "docs.nvidia.com NCCL user guide, environment variables",
)

_CINECA = "docs.hpc.cineca.it/hpc/leonardo.html"
_CSCS = "github eth-cscs/cscs-docs docs/software/communication/nccl_env_vars"
_LUMI = "github Lumi-supercomputer/lumi-userguide docs/runjobs/scheduled-jobs/lumig-job.md"
_LUMI_AI = "github Lumi-supercomputer LUMI-AI-Guide, RCCL environment variables"
_BLINK = "github HicrestLaboratory/Blink-GPU sbatch/leonardo"

# By the names of meshes/; nodes and devices per node are taken from there.
SLURM_SYSTEMS: dict[str, SlurmSystem] = {
    "leonardo": SlurmSystem(
        name="leonardo",
        title="Leonardo Booster (CINECA)",
        platform="cuda",
        devices_per_node=4,
        partition="boost_usr_prod",
        sizes=(Size(64), Size(256, "boost_qos_bprod")),
        cpus_per_task=8,
        directives=(
            Line("--gres=gpu:{per_node}", "all GPUs of each node", _BLINK),
            _EXCLUSIVE,
            _ALL_MEMORY,
        ),
        srun=(_SEE_ALL, _CORES),
        environment=(_CUDA, _INFINIBAND, _WARN),
        setup=("module load cuda", 'source "$HOME/jaxbench/bin/activate"'),
        sources={
            "partition": _BLINK,
            "sizes": f"{UNVERIFIED}: 64 nodes, and 65 to 256 in boost_qos_bprod",
            "cpus_per_task": f"{_CINECA}: 32 cores for 4 GPUs",
            "account": _BLINK,
        },
    ),
    "alps": SlurmSystem(
        name="alps",
        title="Alps, GH200 partition (CSCS)",
        platform="cuda",
        devices_per_node=4,
        partition="normal",
        cpus_per_task=72,
        directives=(
            _ALL_GPUS,
            Line(
                "--uenv=prgenv-gnu/24.11:v2",
                "has NCCL's plugin for Slingshot; take one that `uenv image ls` shows",
                "github eth-cscs/cscs-docs docs/software/communication/nccl.md, version unverified",
            ),
            Line(
                "--view=default",
                "puts the plugin on the library path",
                "github eth-cscs/cscs-docs docs/software/communication/nccl.md",
            ),
        ),
        srun=(_SEE_ALL, _CORES, _BLOCKS),
        environment=(
            _CUDA,
            Line(
                'NCCL_NET="AWS Libfabric"',
                "fail without the Slingshot plugin: NCCL alone would go on with slow TCP",
                _CSCS,
            ),
            Line(
                "NCCL_NET_GDR_LEVEL=PHB",
                "network cards read GPU memory of their own NUMA node",
                _CSCS,
            ),
            Line("NCCL_CROSS_NIC=1", "rings and trees may use several network cards", _CSCS),
            Line(
                "NCCL_PROTO=^LL128", "from NCCL 2.27 on its default, and slower on Slingshot", _CSCS
            ),
            Line(
                "FI_CXI_DEFAULT_CQ_SIZE=131072",
                "completion queues long enough for many ranks",
                _CSCS,
            ),
            Line(
                "FI_CXI_DEFAULT_TX_SIZE=32768", "transmit queues long enough for many ranks", _CSCS
            ),
            Line(
                "FI_CXI_DISABLE_HOST_REGISTER=1",
                "host memory is not registered with CUDA by libfabric",
                _CSCS,
            ),
            Line(
                "FI_CXI_RX_MATCH_MODE=software",
                "hardware matching runs out of entries at scale",
                _CSCS,
            ),
            Line(
                "FI_MR_CACHE_MONITOR=userfaultfd",
                "the default monitor can deadlock with NCCL",
                _CSCS,
            ),
            Line(
                "MPICH_GPU_SUPPORT_ENABLED=0",
                "GPU-aware MPI beside NCCL can deadlock",
                "github eth-cscs/cscs-docs docs/software/communication/nccl.md",
            ),
            _WARN,
        ),
        setup=('source "$HOME/jaxbench/bin/activate"  # made inside the same uenv',),
        sources={
            "partition": "github eth-cscs/cscs-docs docs/clusters/clariden.md",
            "cpus_per_task": "github eth-cscs/cscs-docs docs/alps/hardware.md: 72 cores a GH200",
            "account": UNVERIFIED,
        },
    ),
    "jupiter": SlurmSystem(
        name="jupiter",
        title="JUPITER Booster (Forschungszentrum Juelich)",
        platform="cuda",
        devices_per_node=4,
        partition="booster",
        cpus_per_task=72,
        directives=(Line("--gres=gpu:{per_node}", "all GPUs of each node"),),
        srun=(_CORES, _BLOCKS),
        environment=(
            _CUDA,
            Line(
                "CUDA_VISIBLE_DEVICES={numbers}",
                "each process sees all GPUs of its node and takes its own: by default it gets one, "
                "and NVLink is lost",
            ),
            Line(
                "NCCL_SOCKET_IFNAME=ib0",
                "processes meet over InfiniBand: other addresses don't reach every cell",
                "github interTwin-eu/itwinai src/itwinai/slurm (for JUWELS Booster)",
            ),
            _INFINIBAND,
            _WARN,
        ),
        setup=(
            "module load Stages/2025 GCC Python CUDA  # take what `module avail` shows",
            'source "$HOME/jaxbench/bin/activate"',
        ),
        sources={
            "partition": "apps.fz-juelich.de/jsc/hps/jupiter/batchsystem.html",
            "cpus_per_task": "apps.fz-juelich.de jupiter/configuration: 72 cores a GH200",
            "account": UNVERIFIED,
        },
    ),
    "lumi_g": SlurmSystem(
        name="lumi_g",
        title="LUMI-G (CSC)",
        platform="rocm",
        devices_per_node=8,
        partition="standard-g",
        sizes=(Size(1024),),
        cpus_per_task=7,
        directives=(Line("--gpus-per-node={per_node}", "all 8 GCDs of each node", _LUMI),),
        srun=(
            _SEE_ALL,
            Line(
                "--cpu-bind=mask_cpu:7e000000000000,7e00000000000000,7e0000,7e000000,"
                "7e,7e00,7e00000000,7e0000000000",
                "the cores next to GCD 0, 1, ...: six of each eight, as the system keeps some",
                _LUMI,
            ),
        ),
        environment=(
            _ROCM,
            Line(
                "NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3",
                "RCCL meets over Slingshot: it can't use the first interface that it finds",
                _LUMI_AI,
            ),
            Line(
                "NCCL_NET_GDR_LEVEL=PHB",
                "network cards read GPU memory; the default before ROCm 6.2 is slower",
                _LUMI_AI,
            ),
            Line("FI_CXI_DEFAULT_CQ_SIZE=131072", "completion queues long enough for many ranks"),
            Line("FI_MR_CACHE_MONITOR=userfaultfd", "the default monitor can deadlock with RCCL"),
            _WARN,
        ),
        setup=(
            "module load LUMI partition/G rocm aws-ofi-rccl  # RCCL's plugin for Slingshot",
            'source "$HOME/jaxbench/bin/activate"',
        ),
        sources={
            "partition": _LUMI,
            "sizes": "github Lumi-supercomputer/lumi-userguide docs/runjobs/scheduled-jobs/"
            "partitions.md",
            "cpus_per_task": _LUMI,
            "account": _LUMI,
        },
    ),
}

# Clusters that nobody has described: known by the kind of their devices only.
GENERIC: dict[str, SlurmSystem] = {
    "generic_gpu": SlurmSystem(
        name="generic_gpu",
        title="a cluster with NVIDIA GPUs",
        platform="cuda",
        devices_per_node=8,
        account=False,
        cpus_per_task=8,
        directives=(
            _ALL_GPUS,
            _EXCLUSIVE,
            _ALL_MEMORY,
        ),
        srun=(_SEE_ALL, _CORES, _BLOCKS),
        environment=(_CUDA, _WARN),
        setup=("module load cuda", 'source "$HOME/jaxbench/bin/activate"'),
        sources={"cpus_per_task": f"{UNVERIFIED}: 64 cores or more for 8 GPUs"},
    ),
    "generic_cpu": SlurmSystem(
        name="generic_cpu",
        title="a cluster without accelerators",
        platform="cpu",
        devices_per_node=2,
        account=False,
        cpus_per_task=4,
        directives=(_EXCLUSIVE,),
        srun=(_CORES, _BLOCKS),
        environment=(
            Line(
                "JAX_PLATFORMS=cpu",
                "the CPUs are the devices, whatever else a node may have",
                "docs.jax.dev, configuration options",
            ),
        ),
        setup=('source "$HOME/jaxbench/bin/activate"',),
        sources={"cpus_per_task": f"{UNVERIFIED}: 8 cores or more a node"},
    ),
}
