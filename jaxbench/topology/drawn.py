"""Draws the nodes of a placement class: even over what it spans, the rest by a seed."""

from __future__ import annotations

import numpy as np

from jaxbench.topology.hierarchy import Topology
from jaxbench.topology.placement_classes import PlacementClass

NONE = np.zeros(0, np.int64)
_SCOPES = {"leaf": "under one leaf switch", "group": "in one group", "system": "in all"}


def drawn(
    topology: Topology, of_class: PlacementClass, count: int, free: np.ndarray, seed: int
) -> tuple[np.ndarray, list[str]]:
    """Return `count` free nodes of a class in rank order, or why there are none.

    `free` is [N] of bool. Which leaf or group the job is in is drawn among those that can hold
    it. Blocks are dealt evenly over its groups, and those of a group evenly over its leaves;
    who gets one more, and which nodes of a leaf, is drawn. Ranks go through the nodes group by
    group and leaf by leaf, as schedulers list them; only a last block that isn't full is at the
    end.
    """
    rng = np.random.default_rng(seed)
    room = np.bincount(topology.leaf[free], minlength=len(topology.leaf_names))
    area = _area_of_leaves(topology, of_class.scope)
    most = [_most(room[area == number], of_class) for number in range(area.max() + 1)]
    able = np.flatnonzero(np.array(most) >= count)
    if not len(able):
        where = _SCOPES[of_class.scope]
        blocks = f" in blocks of {of_class.block}" if of_class.block > 1 else ""
        return NONE, [f"it needs {count} nodes, and {where} there are at most {max(most)}{blocks}"]
    room = np.where(area == rng.choice(able), room, 0)

    full, rest = divmod(count, of_class.block)
    per_leaf = of_class.block * _deal(room // of_class.block, topology.leaf_group, full, rng)
    order = rng.permutation(np.flatnonzero(free))
    order = order[np.argsort(topology.leaf[order], kind="stable")]  # shuffled in each leaf
    leaf = topology.leaf[order]
    position = np.arange(len(order)) - np.searchsorted(leaf, leaf)  # in its leaf
    nodes = np.sort(order[position < per_leaf[leaf]])
    if rest:
        last = _least_loaded(per_leaf, topology.leaf_group, room - per_leaf >= rest, rng)
        spare = order[(leaf == last) & (position >= per_leaf[leaf])]
        nodes = np.append(nodes, np.sort(spare[:rest]))
    if of_class.scope == "system" and len(np.unique(topology.group[nodes])) < 2:
        return NONE, [
            f"it must be in two groups or more, and its {count} nodes in blocks of "
            f"{of_class.block} come to lie in one; {topology.source} has free nodes in "
            f"{len(np.unique(topology.group[free]))}"
        ]
    return nodes, []


def _area_of_leaves(topology: Topology, scope: str) -> np.ndarray:
    """Return, for each leaf, the number of the area of this scope that it is in."""
    leaves = np.arange(len(topology.leaf_names))
    return {"leaf": leaves, "group": topology.leaf_group, "system": leaves * 0}[scope]


def _most(room: np.ndarray, of_class: PlacementClass) -> int:
    """Return the most nodes of an area whose leaves have `room` for so many each.

    All blocks but the last are full, so of what blocks leave over only one leaf's counts.
    """
    spare = room % of_class.block
    return int((room - spare).sum() + spare.max())


def _deal(room: np.ndarray, group: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return how many of `count` blocks each leaf gets: even over groups, then over leaves."""
    shares = _even(np.bincount(group, room).astype(np.int64), count, rng)
    dealt = np.zeros_like(room)
    for number in np.flatnonzero(shares):
        dealt[group == number] = _even(room[group == number], int(shares[number]), rng)
    return dealt


def _even(room: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return `count` things dealt over bins: no bin has two more than one that has room left."""
    low, high = 0, int(room.max())  # the level all are filled to: full at `high`, not beyond `low`
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(room, middle).sum() <= count:
            low = middle
        else:
            high = middle - 1
    dealt = np.minimum(room, low)
    more = rng.permutation(np.flatnonzero(room > low))[: count - int(dealt.sum())]
    dealt[more] += 1
    return dealt


def _least_loaded(
    taken: np.ndarray, group: np.ndarray, fits: np.ndarray, rng: np.random.Generator
) -> int:
    """Return a leaf that `fits`, in the group and then on the leaf with the fewest nodes."""
    leaves = rng.permutation(np.flatnonzero(fits))
    load = np.bincount(group, taken)[group[leaves]]
    return int(leaves[np.lexsort((taken[leaves], load))[0]])
