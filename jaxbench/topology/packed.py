"""The default placement: nodes in order, on as few groups and leaves as possible."""

from __future__ import annotations

import numpy as np

from jaxbench.topology.hierarchy import Topology


def packed(topology: Topology, count: int, free: np.ndarray) -> np.ndarray:
    """Return `count` free nodes on the fewest groups, in order; there must be as many.

    `free` is [N] of bool. One group that holds all is chosen by the fewest leaves; over several
    groups all but the last are full, and the rest is on the fewest leaves of the last.
    """
    nodes = np.flatnonzero(free)
    group = topology.group[nodes]
    sizes = np.bincount(group)
    if sizes.max() >= count:
        holding = np.flatnonzero(sizes >= count)
        choices = [_on_fewest(nodes[group == g], topology.leaf, count) for g in holding]
        return min(choices, key=lambda chosen: len(np.unique(topology.leaf[chosen])))
    *full, last = _fewest(sizes, count)
    taken = nodes[np.isin(group, full)]
    rest = _on_fewest(nodes[group == last], topology.leaf, count - len(taken))
    return np.sort(np.append(taken, rest))


def _on_fewest(nodes: np.ndarray, leaf: np.ndarray, count: int) -> np.ndarray:
    """Return `count` of `nodes` on as few of their leaves as possible, in order."""
    leaf = leaf[nodes]
    *full, last = _fewest(np.bincount(leaf), count)
    taken = nodes[np.isin(leaf, full)]
    return np.sort(np.append(taken, nodes[leaf == last][: count - len(taken)]))


def _fewest(sizes: np.ndarray, count: int) -> list[int]:
    """Return the fewest bins that hold `count` together: all full but the last.

    The largest are full, of equal ones the first; the last is the first that holds the rest.
    """
    largest = np.argsort(-sizes, kind="stable")
    full = largest[: int(np.searchsorted(np.cumsum(sizes[largest]), count))]
    left = count - int(sizes[full].sum())
    holding = np.setdiff1d(np.flatnonzero(sizes >= left), full)
    return [*full.tolist(), int(holding[0])]
