"""Which boxes of a torus the groups of a collective are."""

from __future__ import annotations

import math

import numpy as np

from jaxbench.costs.torus import Side
from jaxbench.topology.torus import Slice


def boxes_of(groups: np.ndarray, torus: Slice) -> tuple[np.ndarray, list[tuple[Side, ...]]]:
    """Return which box each of `groups` ([G, n] of ranks) is, [G], and the different boxes.

    A box has its ranks evenly apart in each dimension, and one at every crossing. A group that is
    none has no sides.
    """
    ranks = groups.shape[1]
    columns = []
    for length, place in zip(torus.sides, np.unravel_index(groups, torus.sides), strict=True):
        ordered = np.sort(place, axis=1)
        gaps = np.diff(ordered, axis=1)
        count = (gaps > 0).sum(axis=1) + 1
        apart = (ordered[:, -1] - ordered[:, 0]) // np.maximum(count - 1, 1)
        even = ((gaps == 0) | (gaps == apart[:, None])).all(axis=1)
        wraps = torus.wraps is not None and length % torus.wraps == 0
        closed = wraps & (count * apart == length)
        columns += [count, np.where(even, apart, -1), closed]
    table = np.stack(columns, axis=1)
    different, which = np.unique(table, axis=0, return_inverse=True)
    return which.ravel(), [_box(row, ranks) for row in different]


def _box(row: np.ndarray, ranks: int) -> tuple[Side, ...]:
    sides = [Side(int(n), int(apart), bool(closed)) for n, apart, closed in row.reshape(-1, 3)]
    if any(side.apart < 0 for side in sides) or math.prod(side.ranks for side in sides) != ranks:
        return ()
    return tuple(side for side in sides if side.ranks > 1)
