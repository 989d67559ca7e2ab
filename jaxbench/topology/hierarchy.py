"""Nodes, leaf switches and groups: which node is under which switch, in which group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxbench.catalog.systems import System
from jaxbench.errors import InputError
from jaxbench.topology.hostlist import expand, folded
from jaxbench.topology.slurm_topology import read_leaves


@dataclass(frozen=True, eq=False)
class Topology:
    """The N nodes of a system, with the leaf switch and the group of each.

    Nodes come group by group and in a group leaf by leaf, so both arrays rise from 0 in steps
    of 0 or 1. Where a system has no network, all its nodes are on leaf 0 of group 0. `source`
    says in a few words where this is from.
    """

    names: tuple[str, ...]
    leaf: np.ndarray  # [N]
    group: np.ndarray  # [N]
    leaf_names: tuple[str, ...]
    group_names: tuple[str, ...]
    source: str

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.names)

    @property
    def leaf_sizes(self) -> np.ndarray:
        """Nodes of each leaf."""
        return np.bincount(self.leaf, minlength=len(self.leaf_names))

    @property
    def group_sizes(self) -> np.ndarray:
        """Nodes of each group."""
        return np.bincount(self.group, minlength=len(self.group_names))

    @property
    def leaf_group(self) -> np.ndarray:
        """The group of each leaf."""
        return self.group[np.searchsorted(self.leaf, np.arange(len(self.leaf_names)))]


def of_system(system: System) -> Topology:
    """Return the built-in topology of `system`.

    Nodes are called n1 to nN, padded with zeros to one width (n0001 to n5884). Groups are
    filled in order, and in a group the leaves.
    """
    width = len(str(system.nodes))
    names = tuple(f"n{number:0{width}d}" for number in range(1, system.nodes + 1))
    network = system.network
    if network is None:
        zeros = np.zeros(system.nodes, np.int64)
        return Topology(names, zeros, zeros, ("leaf0",), ("group0",), f"system {system.name}")
    sizes = np.array(network.group_sizes())
    group = np.repeat(np.arange(len(sizes)), sizes)
    in_group = np.arange(system.nodes) - (np.cumsum(sizes) - sizes)[group]
    leaf = group * network.leaves_per_group + in_group // network.nodes_per_leaf
    used, leaf = np.unique(leaf, return_inverse=True)  # a small group has fewer leaves
    return Topology(
        names,
        leaf,
        group,
        tuple(f"leaf{number}" for number in range(len(used))),
        tuple(f"group{number}" for number in range(len(sizes))),
        f"system {system.name}",
    )


def of_slurm(
    text: str, partition_nodes: str = "", source: str = "the topology", topology: str = ""
) -> Topology:
    """Return the topology of a file of Slurm, see `read_leaves`; `topology` names one of several.

    `partition_nodes` is a hostlist of the nodes to keep, for files that have login and service
    nodes and other partitions too; '' keeps all. `source` is what messages call the file. Errors:
    InputError with every fault of the text, by line, and of the hostlist.
    """
    faults: list[str] = []
    leaves, wanted = [], []
    try:
        name, leaves = read_leaves(text, topology)
        source = f"{source}:{name}" if name else source
    except InputError as error:
        faults += [f"{source}, {fault}" for fault in error.faults]
    if partition_nodes:
        try:
            wanted = expand(partition_nodes)
        except InputError as error:
            faults += [f"--partition_nodes: {fault}" for fault in error.faults]
    keep = set(wanted)
    strange = keep.difference(*[leaf.nodes for leaf in leaves])
    if strange and leaves:
        has = folded(node for leaf in leaves for node in leaf.nodes)
        faults.append(
            f"--partition_nodes: {folded(strange)} is under no leaf switch of {source}, "
            f"which has {has}"
        )
    if faults:
        raise InputError(faults)

    if partition_nodes:
        kept = [leaf._replace(nodes=tuple(n for n in leaf.nodes if n in keep)) for leaf in leaves]
        leaves = [leaf for leaf in kept if leaf.nodes]
    groups = list(dict.fromkeys(leaf.group for leaf in leaves))
    sizes = [len(leaf.nodes) for leaf in leaves]
    return Topology(
        names=tuple(node for leaf in leaves for node in leaf.nodes),
        leaf=np.repeat(np.arange(len(leaves)), sizes),
        group=np.repeat([groups.index(leaf.group) for leaf in leaves], sizes),
        leaf_names=tuple(leaf.name for leaf in leaves),
        group_names=tuple(groups),
        source=source,
    )
