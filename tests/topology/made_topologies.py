"""Topologies for tests: any sizes of leaves and groups, and how Slurm would print them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from jaxbench.catalog.links import Network, NodeLinks
from jaxbench.catalog.systems import System
from jaxbench.topology.hierarchy import Topology
from jaxbench.topology.hostlist import folded

DATA = Path(__file__).parent
LEONARDO = Path(__file__).parents[3] / "shared" / "data" / "leonardo_topology.txt"


def made(groups: Sequence[Sequence[int]]) -> Topology:
    """Return a topology of groups of leaves with so many nodes each."""
    leaves = [size for group in groups for size in group]
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return Topology(
        names=tuple(f"n{number}" for number in range(sum(leaves))),
        leaf=np.repeat(np.arange(len(leaves)), leaves),
        group=np.repeat(group_of, leaves),
        leaf_names=tuple(f"leaf{number}" for number in range(len(leaves))),
        group_names=tuple(f"group{number}" for number in range(len(groups))),
        source="made",
    )


TOPOLOGIES = st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=4
).map(made)


def system_of(topology: Topology, per_node: int = 4) -> System:
    """Return a system whose links fit any topology of so many nodes."""
    return System(
        name="made",
        description="made for tests",
        source="made for tests",
        hardware="h100",
        nodes=topology.nodes,
        devices_per_node=per_node,
        node=NodeLinks(kind="crossbar", device_Bps=1e11, latency_s=1e-6, efficiency=1.0),
        network=Network(
            kind="dragonfly+",
            nic_Bps=1e10,
            nics_per_node=per_node,
            nodes_per_leaf=topology.nodes,
            leaves_per_group=2,
            nodes_per_group=topology.nodes,
            groups=2,
            leaf_up_Bps=1e11,
            global_Bps=1e11,
            leaf_latency_s=1e-6,
            group_latency_s=2e-6,
            global_latency_s=3e-6,
            efficiency=1.0,
        ),
    )


def slurm_text(topology: Topology) -> str:
    """Return what `scontrol show topology` prints for a topology."""
    names = np.array(topology.names)
    lines = [
        f"SwitchName=root Level=2 LinkSpeed=1 Nodes={folded(names, 10**6)} "
        f"Switches={folded(topology.group_names, 10**6)}"
    ]
    for number, group in enumerate(topology.group_names):
        leaves = [topology.leaf_names[i] for i in np.flatnonzero(topology.leaf_group == number)]
        lines.append(
            f"SwitchName={group} Level=1 LinkSpeed=1 "
            f"Nodes={folded(names[topology.group == number], 10**6)} Switches={','.join(leaves)}"
        )
    for number, leaf in enumerate(topology.leaf_names):
        nodes = folded(names[topology.leaf == number], 10**6)
        lines.append(f"SwitchName={leaf} Level=0 LinkSpeed=1 Nodes={nodes}")
    return "\n".join(lines) + "\n"
