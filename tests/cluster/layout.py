"""What a test cluster looks like: its nodes, switches and groups; the files that Slurm reads."""

from __future__ import annotations

from dataclasses import dataclass

# Inside network namespaces every cluster has these for itself.
NETWORK, HEAD, HEAD_ADDRESS = "10.77.0", "head", "10.77.0.254"
CONTROL_PORT, NODE_PORT = 6817, 6818


@dataclass(frozen=True)
class Layout:
    """Nodes on leaf switches, leaves in groups, groups on one core; None: links without a limit.

    `namespaces` gives every node a network of its own; without it all nodes are loopback
    addresses of this machine and links have no rate.
    """

    namespaces: bool = False
    nodes: int = 8
    nodes_per_leaf: int = 2
    leaves_per_group: int = 2
    cpus: int = 8  # of a node, as Slurm is told
    gpus: int = 0  # of a node, as Slurm is told: devices of another kind stand for them
    partitions: tuple[str, ...] = ("all",)  # of all nodes each; the first one is the default
    node_Bps: float | None = None  # of the link of each node, either way
    leaf_Bps: float | None = None  # of the uplink of each leaf, either way
    group_Bps: float | None = None  # of the uplink of each group, either way

    def __post_init__(self) -> None:
        assert 1 <= self.nodes <= 200
        rates = {self.node_Bps, self.leaf_Bps, self.group_Bps}
        assert self.namespaces or rates == {None}, "loopback has no links"

    def name(self, node: int) -> str:
        """The name of a node, counted from 1; every node of the cluster can resolve it."""
        return f"n{node}" if self.namespaces else self.address(node)

    def address(self, node: int) -> str:
        """The address of a node, counted from 1; all of 127.0.0.0/8 is this machine."""
        return f"{NETWORK if self.namespaces else '127.0.0'}.{node}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return tuple(self.name(node) for node in range(1, self.nodes + 1))

    @property
    def leaves(self) -> dict[str, tuple[str, ...]]:
        """The nodes of each leaf switch; g1s0 is the first one of the second group."""
        leaves = {}
        for first in range(0, self.nodes, self.nodes_per_leaf):
            group, leaf = divmod(first // self.nodes_per_leaf, self.leaves_per_group)
            leaves[f"g{group}s{leaf}"] = self.names[first : first + self.nodes_per_leaf]
        return leaves

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The leaves of each group."""
        groups: dict[str, tuple[str, ...]] = {}
        for leaf in self.leaves:
            group = leaf.partition("s")[0]
            groups[group] = (*groups.get(group, ()), leaf)
        return groups


def slurm_conf(layout: Layout, folder: str, user: str, host: str, port: int) -> str:
    """Return slurm.conf of a cluster in `folder`, run by `user`.

    On loopback `host` is this machine's name and `port` the first free one, of as many as there
    are nodes and one for the controller; in namespaces both are the cluster's own.
    """
    if layout.namespaces:
        controller, port = f"{HEAD}({HEAD_ADDRESS})", CONTROL_PORT
    else:
        controller = f"{host}(127.0.0.1)"
    nodes = []
    for node in range(1, layout.nodes + 1):
        name = layout.name(node)
        where = (name, layout.address(node), NODE_PORT)
        if not layout.namespaces:  # tasks find their srun at the one address that it has
            where = (host, "127.0.0.1", port + node)
        nodes.append(
            "NodeName={} NodeHostname={} NodeAddr={} Port={}".format(name, *where)
            + f" CPUs={layout.cpus} RealMemory=1000000 State=UNKNOWN"
            + (f" Gres=gpu:{layout.gpus}" if layout.gpus else "")
        )
    partitions = [
        f"PartitionName={name} Nodes=ALL MaxTime=INFINITE State=UP"
        + (" Default=YES" if name == layout.partitions[0] else "")
        for name in layout.partitions
    ]
    gres = ["GresTypes=gpu"] if layout.gpus else []
    return "\n".join([_SLURM.format(**locals()), *gres, *nodes, *partitions, ""])


_SLURM = """\
ClusterName=test
SlurmctldHost={controller}
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
# Nobody else's business: daemons listen on the addresses above only.
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
TopologyPlugin=topology/tree
ReturnToService=2
SlurmdParameters=config_overrides
# Cores would be 134 MB for each process that aborts.
PropagateResourceLimits=CORE,NOFILE
KillWait=3
MessageTimeout=20
SlurmctldTimeout=60
SlurmdTimeout=60
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log"""


def topology_conf(layout: Layout) -> str:
    """Return topology.conf: leaves, groups, and a core that joins them."""
    lines = [f"SwitchName={leaf} Nodes={','.join(n)}" for leaf, n in layout.leaves.items()]
    lines += [f"SwitchName={group} Switches={','.join(s)}" for group, s in layout.groups.items()]
    return "\n".join([*lines, f"SwitchName=core Switches={','.join(layout.groups)}", ""])


def gres_conf(layout: Layout) -> str:
    """Return gres.conf: terminals stand for GPUs, so that tasks get CUDA_VISIBLE_DEVICES."""
    if not layout.gpus:
        return ""
    return f"Name=gpu File=/dev/tty[1-{layout.gpus}] Flags=nvidia_gpu_env\n"


def hosts(layout: Layout) -> str:
    """Return /etc/hosts of a cluster with network namespaces."""
    nodes = [f"{layout.address(k)} {layout.name(k)}" for k in range(1, layout.nodes + 1)]
    return "\n".join(["127.0.0.1 localhost", f"{HEAD_ADDRESS} {HEAD}", *nodes, ""])


def links(layout: Layout) -> list[tuple[str, str, float | None]]:
    """Return (lower, upper, rate in bytes per second) of each link between two switches."""
    leaves = [(leaf, group, layout.leaf_Bps) for group, s in layout.groups.items() for leaf in s]
    return leaves + [(group, "core", layout.group_Bps) for group in layout.groups]
