"""Slices of a torus: which box of devices a job gets, and how far apart its ranks are.

A job has a slice of its own, with its ranks along it in row-major order (the last dimension
fastest). Hosts don't matter to the links: all of a slice is one scale-up domain.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Slice:
    """A box of `sides` devices; a side that is a multiple of `wraps` closes to a ring."""

    sides: tuple[int, ...]
    wraps: int | None

    def hops(self, groups: np.ndarray) -> np.ndarray:
        """Return, for each of `groups` ([G, n] of ranks), the most links from a rank to the next.

        The next of the last is the first. A way follows one dimension after the other, the
        shorter way round where a side is a ring.
        """
        apart = np.zeros(groups.shape, np.int64)
        for side, place in zip(self.sides, np.unravel_index(groups, self.sides), strict=True):
            along = np.abs(place - np.roll(place, -1, axis=1))
            ring = self.wraps is not None and side % self.wraps == 0
            apart += np.minimum(along, side - along) if ring else along
        return np.maximum(apart.max(axis=1), 1)


def slice_of(devices: int, torus: tuple[int, ...], wraps: int | None) -> Slice:
    """Return the smallest box inside `torus` with room for `devices`, of those the most compact.

    Ranks fill it in order; up to the whole torus there is always one.
    """
    sides = min(
        (
            box
            for box in itertools.product(*(range(1, side + 1) for side in torus))
            if math.prod(box) >= devices
        ),
        key=lambda box: (math.prod(box), sum(box), box),
    )
    return Slice(sides, wraps)
