"""Times on all ranks at once: arrays shaped as the mesh, of size 1 along axes where all agree.

Dimension 0 numbers the cost models that are simulated together, then comes one dimension per mesh
axis. A program whose replicas do the same is so simulated for one of them, exactly and without
being told; NumPy's broadcasting does it. Arrays are shared between values and never written into.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from jaxbench.readings.ranks import Ranks

Times = np.ndarray  # seconds, [cost models or 1, size or 1 of each mesh axis]


@dataclass(frozen=True, eq=False)
class Known:
    """A whole number or boolean that steers the program: the values, with ranks leading.

    It follows from `axis_index`, loop counters and constants, so it is there from the start.
    """

    array: np.ndarray


Value = Times | Known


class Grid:
    """The shape of a mesh's arrays, and the way from and to values per rank."""

    def __init__(self, ranks: Ranks):
        self.names = [name for name, _ in ranks.axes]
        self.sizes = tuple(size for _, size in ranks.axes)
        self.zero: Times = np.zeros((1,) * (1 + len(self.sizes)))
        self.every = tuple(range(1, 1 + len(self.sizes)))

    def dims(self, axes: Iterable[str]) -> tuple[int, ...]:
        """Return the dimensions of some mesh axes."""
        return tuple(1 + self.names.index(axis) for axis in axes)

    def fold(self, per_rank: np.ndarray) -> np.ndarray:
        """Return [..., R] values as an array of the mesh, of size 1 where all along an axis agree.

        The leading dimension, of the cost models, is 1 if there was none.
        """
        models = per_rank.shape[0] if per_rank.ndim > 1 else 1
        array = per_rank.reshape(models, *self.sizes)
        for dim in self.every:
            first = array.take([0], axis=dim)
            if array.shape[dim] > 1 and (array == first).all():
                array = first
        return array

    def per_rank(self, array: np.ndarray, model: int = 0) -> np.ndarray:
        """Return [R] values of one cost model from an array of the mesh."""
        chosen = array[model if array.shape[0] > 1 else 0]
        return np.broadcast_to(chosen, self.sizes).reshape(-1)

    def at(self, array: np.ndarray, rank: int, model: int = 0) -> float:
        """Return the value of one rank."""
        place = (model, *np.unravel_index(rank, self.sizes or (1,)))
        return array[tuple(min(i, n - 1) for i, n in zip(place, array.shape, strict=False))].item()

    def later(self, a: Times, b: Times) -> Times:
        """Return the later of two times; `zero` itself is known to be the earliest."""
        if b is self.zero or a is b:
            return a
        return b if a is self.zero else np.maximum(a, b)

    def latest(self, values: Sequence[Value]) -> Times:
        """Return when all values are there."""
        at = self.zero
        for value in values:
            if not isinstance(value, Known):
                at = self.later(at, value)
        return at
