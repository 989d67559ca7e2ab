"""Nodes that a user lists by name."""

from __future__ import annotations

from collections import Counter

import numpy as np

from jaxbench.errors import InputError
from jaxbench.topology.hierarchy import Topology
from jaxbench.topology.hostlist import expand, folded


def listed(
    topology: Topology, hostlist: str, count: int, free: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Return the first `count` nodes of `hostlist` in its order, and all that is wrong with it.

    `free` ([N] of bool) are the nodes that may be used.
    """
    try:
        names = expand(hostlist)
    except InputError as error:
        return np.zeros(0, np.int64), list(error.faults)
    number = {name: index for index, name in enumerate(topology.names)}
    twice = [name for name, times in Counter(names).items() if times > 1]
    strange = [name for name in names if name not in number]
    busy = [name for name in names if name in number and not free[number[name]]]
    faults = []
    if twice:
        faults.append(f"{folded(twice)} is there twice; a node has its devices once")
    if strange:
        faults.append(
            f"{folded(strange)} is not in {topology.source}, which has {folded(topology.names)}"
        )
    if busy:
        faults.append(f"{folded(busy)} may not be used")
    if len(set(names)) < count:
        faults.append(f"{len(set(names))} nodes are listed, and the job needs {count}")
    nodes = np.array([number[name] for name in names[:count]]) if not faults else np.zeros(0)
    return nodes.astype(np.int64), faults
