"""Topologies for tests: any sizes of leaves and groups, and how Slurm would write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from jaxbench.catalog.links import Network, NodeLinks
from jaxbench.catalog.systems import System
from jaxbench.topology.hierarchy import Topology
from jaxbench.topology.hostlist import folded

DATA = Path(__file__).parent
LEONARDO = Path(__file__).parents[3] / "shared" / "data" / "leonardo_topology.txt"


# The name of a node from its number, its leaf and its place there; sorted as Slurm sorts them.
NAMINGS: dict[str, Callable[[int, int, int], str]] = {
    "plain": lambda number, leaf, place: f"n{number}",
    "padded": lambda number, leaf, place: f"lrdn{number:04d}",
    "suffix": lambda number, leaf, place: f"n{number:02d}-ib0.site.org",
    "two numbers": lambda number, leaf, place: f"r{leaf:02d}n{place}x",
    "three numbers": lambda number, leaf, place: f"x{leaf}c{place // 2}s{place % 2}b",
}


def made(groups: Sequence[Sequence[int]], naming: str = "plain") -> Topology:
    """Return a topology of groups of leaves with so many nodes each."""
    name = NAMINGS[naming]
    leaves = [size for group in groups for size in group]
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return Topology(
        names=tuple(
            name(sum(leaves[:leaf]) + place, leaf, place)
            for leaf, size in enumerate(leaves)
            for place in range(size)
        ),
        leaf=np.repeat(np.arange(len(leaves)), leaves),
        group=np.repeat(group_of, leaves),
        leaf_names=tuple(f"leaf{number}" for number in range(len(leaves))),
        group_names=tuple(f"group{number}" for number in range(len(groups))),
        source="made",
    )


GROUPS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=4)
TOPOLOGIES = GROUPS.map(made)
NAMED_TOPOLOGIES = st.builds(made, GROUPS, st.sampled_from(list(NAMINGS)))


# The example of Slurm's manual page, with a tree of three switches.
MANUAL = """
# a comment
- topology: topo1
  cluster_default: True
  tree:
    switches:
    - switch: sw_root
      children: s[1-2]
    - switch: s1
      nodes: node[01-02]
    - switch: s2
      nodes: node[03-04]
- topology: topo2
  cluster_default: False
  block:
    block_sizes:
      - 4
      - 16
    blocks:
    - block: b1
      nodes: node[01-04]
    - block: b2
      nodes: node[05-08]
    - block: b3
      nodes: node[09-12]
    - block: b4
      nodes: node[13-16]
- topology: topo3
  cluster_default: False
  flat: True
"""


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
        leaves = ",".join(leaves_of(topology, number))
        lines.append(
            f"SwitchName={group} Level=1 LinkSpeed=1 "
            f"Nodes={folded(names[topology.group == number], 10**6)} Switches={leaves}"
        )
    for number, leaf in enumerate(topology.leaf_names):
        lines.append(f"SwitchName={leaf} Level=0 LinkSpeed=1 Nodes={nodes_of(topology, number)}")
    return "\n".join(lines) + "\n"


def conf_text(topology: Topology) -> str:
    """Return a topology.conf with a tree: leaves have nodes, the others switches."""
    lines = ["# topology/tree", f"SwitchName=root Switches={','.join(topology.group_names)}"]
    for number, group in enumerate(topology.group_names):
        lines.append(f"switchname={group} switches={','.join(leaves_of(topology, number))}")
    for number, leaf in enumerate(topology.leaf_names):
        lines.append(f"SwitchName={leaf} \\\n  Nodes={nodes_of(topology, number)}  # a leaf")
    return "\n".join(lines) + "\n"


def yaml_text(topology: Topology) -> str:
    """Return a topology.yaml whose default is the tree of a topology."""
    lines = ["---", "- topology: none", "  flat: true", "- topology: fabric"]
    lines += ["  cluster_default: true", "  tree:", "    switches:"]
    lines += ["    - switch: root", f"      children: {folded(topology.group_names, 10**6)}"]
    for number, group in enumerate(topology.group_names):
        lines += [
            f"    - switch: {group}",
            "      children: " + ",".join(leaves_of(topology, number)),
        ]
    for number, leaf in enumerate(topology.leaf_names):
        lines += [f"    - switch: {leaf}", f"      nodes: {nodes_of(topology, number)}"]
    return "\n".join(lines) + "\n"


def leaves_of(topology: Topology, group: int) -> list[str]:
    """Return the names of a group's leaves."""
    return [topology.leaf_names[i] for i in np.flatnonzero(topology.leaf_group == group)]


def nodes_of(topology: Topology, leaf: int) -> str:
    """Return the nodes of a leaf as a hostlist."""
    return folded(np.array(topology.names)[topology.leaf == leaf], 10**6)
