"""All ranks of a mesh at once: their coordinates, and the groups a collective forms.

A rank's number is its flat position in the mesh, which is also the partition number in XLA's
replica groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Ranks:
    """The ranks of a mesh given as (axis, size) pairs, outermost first."""

    def __init__(self, axes: Sequence[tuple[str, int]]):
        self.axes = tuple(axes)
        self.sizes = dict(axes)
        self.count = math.prod(self.sizes.values())
        self._groups = cache(self._make_groups)

    @cached_property
    def all(self) -> Ints:
        """Every rank number."""
        return np.arange(self.count)

    def coordinate(self, axis: str) -> Ints:
        """Return each rank's index along `axis`."""
        names = [name for name, _ in self.axes]
        return np.unravel_index(self.all, list(self.sizes.values()))[names.index(axis)]

    def groups(self, axes: str | Sequence[str]) -> Ints:
        """Return [groups, members]: the ranks that communicate over `axes`, in the order given."""
        return self._groups((axes,) if isinstance(axes, str) else tuple(axes))

    def peers(self, axes: str | Sequence[str]) -> Ints:
        """Return [ranks, members]: for each rank the members of its group."""
        groups = self.groups(axes)
        peers = np.empty((self.count, groups.shape[1]), np.int64)
        peers[groups] = groups[:, None, :]
        return peers

    def position(self, axes: str | Sequence[str]) -> Ints:
        """Return each rank's place in its group."""
        groups = self.groups(axes)
        position = np.empty(self.count, np.int64)
        position[groups] = np.arange(groups.shape[1])
        return position

    def sources(self, axis: str, pairs: Sequence[tuple[int, int]]) -> Ints:
        """Return for each rank the rank a permute over `axis` delivers from, -1 for none."""
        groups = self.groups(axis)
        sources = np.full(self.count, -1, np.int64)
        for source, destination in pairs:
            sources[groups[:, destination]] = groups[:, source]
        return sources

    def _make_groups(self, axes: tuple[str, ...]) -> Ints:
        names = [name for name, _ in self.axes]
        chosen = [names.index(axis) for axis in axes]
        others = [i for i in range(len(names)) if i not in chosen]
        grid = self.all.reshape(list(self.sizes.values()) or [1])
        members = math.prod(self.sizes[axis] for axis in axes)
        return grid.transpose([*others, *chosen]).reshape(-1, members)
