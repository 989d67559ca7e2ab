"""Compiling for GPUs and TPUs on a machine that has none.

A compiler needs a description of the devices, not the devices. With the packages of the extra
`aot` installed, a program is compiled for a mesh of, say, 64 H100 in about as long as on CPU, and
its HLO text says which collectives would run there. What is compiled this way can't be executed.

    environment = {**os.environ, **target_environment("h100")}
    subprocess.run([sys.executable, "check.py"], env=environment)

and in check.py, whose JAX must not have started otherwise:

    mesh = target_mesh("h100", {"data": 8})
    ...lower(...).compile(compiler_options=compiler_options(target_platform("h100")))
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxbench.axes import AXES
from jaxbench.errors import InputError, RunError, unknown

if TYPE_CHECKING:
    from jax.sharding import Mesh

# GPU targets: one file each in gpu_targets/, servers of up to 8 (DGX/HGX).
GPUS = ("a100", "h100")
_GPUS_PER_HOST = 8

# TPU targets: number of chips -> shape of the slice of that size that the cloud rents out.
# Others can be asked for by shape, as in v5e:2x8.
_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_CUBES = {
    4: "2x2x1",
    8: "2x2x2",
    16: "2x2x4",
    32: "2x4x4",
    64: "4x4x4",
    128: "4x4x8",
    256: "4x8x8",
    512: "8x8x8",
}
TPUS: dict[str, dict[int, str]] = {"v5e": _FLAT, "v5p": _CUBES, "v6e": _FLAT}

_ENVIRONMENT = {
    # The check is for the CUDA libraries, which compiling doesn't need.
    "cuda": {"JAX_PLATFORMS": "cpu,cuda", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"},
    # libtpu must neither look for chips nor ask the cloud which machine it is on; the type is any.
    "tpu": {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
        # One process a machine may use the chips; any number may compile for none.
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    },
}

# Where XLA looks for the assembler of its PTX besides PATH and the wheel.
_CUDA_FOLDERS = ("/usr/local/cuda/bin", "/opt/cuda/bin")


def target_platform(target: str) -> str:
    """Return 'cuda' or 'tpu'; raise InputError for a target that isn't known."""
    name = target.partition(":")[0]
    if name in TPUS:
        return "tpu"
    if target in GPUS:
        return "cuda"
    raise InputError(unknown("target", target, (*GPUS, *TPUS)))


def target_environment(target: str) -> dict[str, str]:
    """Return the environment variables a process needs from its start to compile for `target`."""
    return dict(_ENVIRONMENT[target_platform(target)])


def missing_packages(target: str) -> list[str]:
    """Return the pip requirements that are missing here for compiling for `target`."""
    if target_platform(target) == "tpu":
        return [] if _installed("libtpu") else ["libtpu"]
    missing = []
    if not (_installed("jax_cuda12_plugin") or _installed("jax_cuda13_plugin")):
        missing.append("jax-cuda12-plugin")
    if not _has_ptxas():
        missing.append("nvidia-cuda-nvcc-cu12")
    return missing


def target_mesh(target: str, shape: Mapping[str, int]) -> Mesh:
    """Return a mesh of described devices: 'h100', 'a100', 'v5e', 'v6e', 'v5p', or 'v5e:2x4'.

    `shape` gives the sizes of mesh axes, outermost first; the mesh has all five axes, size 1
    where left out. Its devices are placed as those of a real run (`jax.make_mesh`). Raises
    InputError for what can't be, RunError where packages or environment variables are missing.
    """
    platform = target_platform(target)
    _check_process(target)
    sizes = _sizes(shape)
    devices = math.prod(sizes.values())
    topology = _gpu_topology(devices) if platform == "cuda" else _tpu_topology(target, devices)

    import jax
    from jax.experimental import topologies
    from jax.sharding import AxisType

    described: dict[str, Any] = {"topology_name": target, "platform": platform}
    if platform == "cuda":
        text = (Path(__file__).parent / "gpu_targets" / f"{target}.txtpb").read_text()
        described |= {"target_config": text, "topology": topology}
    else:
        described["topology_name"] = topology
    try:
        found = topologies.get_topology_desc(**described).devices
    except Exception as error:
        # Whatever the plugin raises: it is another one for each backend and version.
        raise RunError(
            f"XLA can't describe {devices} devices of target '{target}' ({topology}): {error}"
        ) from error
    return jax.make_mesh(
        tuple(sizes.values()),
        tuple(sizes),
        axis_types=(AxisType.Auto,) * len(sizes),
        devices=found,
    )


def _sizes(shape: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of all five axes: those given in their order, then the others."""
    faults = [unknown("mesh axis", axis, AXES) for axis in shape if axis not in AXES]
    faults += [f"axis '{axis}' has size {n}; 1 is the least" for axis, n in shape.items() if n < 1]
    if faults:
        raise InputError(faults)
    return {**shape, **{axis: 1 for axis in AXES if axis not in shape}}


def _gpu_topology(devices: int) -> str:
    """Return 'slices x hosts x GPUs of a host', with as few hosts as divide the devices evenly."""
    per_host = max(n for n in range(1, _GPUS_PER_HOST + 1) if devices % n == 0)
    return f"1x{devices // per_host}x{per_host}"


def _tpu_topology(target: str, devices: int) -> str:
    """Return the slice as XLA names it, 'v5e:2x4'."""
    name, _, shape = target.partition(":")
    if not shape:
        if devices not in TPUS[name]:
            raise InputError(
                f"{name} has no slice of {devices} chips; sizes: {', '.join(map(str, TPUS[name]))}"
            )
        return f"{name}:{TPUS[name][devices]}"
    parts = shape.split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"target '{target}' has no shape of a slice; write it as in {name}:2x4")
    if math.prod(map(int, parts)) != devices:
        raise InputError(
            f"target '{target}' has {math.prod(map(int, parts))} chips, but the mesh {devices}"
        )
    return target


def _check_process(target: str) -> None:
    """Raise RunError where this process can't compile for `target`."""
    missing = missing_packages(target)
    if missing:
        raise RunError(
            f"compiling for {target} needs {' and '.join(missing)}: "
            f"pip install 'jaxbench[aot]', or pip install {' '.join(missing)}"
        )
    needed = target_environment(target)
    if any(os.environ.get(name) != value for name, value in needed.items()):
        listed = " ".join(f"{name}={value}" for name, value in needed.items())
        raise RunError(f"compiling for {target} needs a process started with {listed}")


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _has_ptxas() -> bool:
    """Whether XLA will find the assembler without which it refuses to compile for CUDA."""
    if shutil.which("ptxas") or any(shutil.which("ptxas", path=p) for p in _CUDA_FOLDERS):
        return True
    # `nvidia` is a namespace that several wheels share; it may lie in several places.
    nvidia = importlib.util.find_spec("nvidia")
    folders = nvidia.submodule_search_locations if nvidia else None
    return any((Path(folder) / "cuda_nvcc/bin/ptxas").is_file() for folder in folders or ())
