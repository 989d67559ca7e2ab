"""The shapes of many groups of ranks at once, in time linear in their ranks (and a sort)."""

from __future__ import annotations

import numpy as np

from jaxbench.topology.shape import TIERS, Shape
from jaxbench.topology.torus import Slice


def shapes_of(
    groups: np.ndarray,
    domain: np.ndarray,
    leaf: np.ndarray,
    group: np.ndarray,
    torus: Slice | None = None,
) -> tuple[np.ndarray, tuple[Shape, ...]]:
    """Return which shape each of `groups` ([G, n] of ranks) has, [G], and the different shapes.

    `domain`, `leaf` and `group` hold each rank's scale-up domain, leaf switch and network group;
    `torus` has the ranks in order, where devices are on one.
    """
    if not groups.size:
        return np.zeros(len(groups), np.int64), ()
    alone = (groups == groups[:, :1]).all(axis=1)
    domains, per_domain = _distinct(domain[groups])
    leaves, _ = _distinct(leaf[groups])
    cells, _ = _distinct(group[groups])
    tier = np.select([alone, domains == 1, leaves == 1, cells == 1], [0, 1, 2, 3], 4)
    hops = np.ones_like(tier) if torus is None else torus.hops(groups)
    columns = np.stack([domains, per_domain, leaves, cells, tier, hops])
    # One number per group, since np.unique is much slower on rows.
    key = np.ravel_multi_index(tuple(columns), tuple(columns.max(axis=1) + 1))
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    rows = columns[:, first].T.tolist()
    return which, tuple(
        Shape(groups.shape[1], nodes, per_node, leaves, cells, TIERS[tier], hops)
        for nodes, per_node, leaves, cells, tier, hops in rows
    )


def _distinct(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each row, how many different values it has and how often the commonest is."""
    if (places[:, 1:] >= places[:, :-1]).all():  # ranks in order of their nodes: the usual case
        ordered = places
    else:
        ordered = np.sort(places, axis=1)
    new = np.ones(ordered.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    column = np.arange(ordered.shape[1])
    start = np.maximum.accumulate(np.where(new, column, 0), axis=1)
    return new.sum(axis=1), (column - start).max(axis=1) + 1
