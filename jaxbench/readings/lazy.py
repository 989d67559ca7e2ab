"""Flat arrays known by formula: any element on any rank, without holding them.

An `Array` here is one flat array per rank. `get(ranks, indices)` returns elements for equally
shaped integer arrays. So a value after a chain of collectives costs only the elements that are
asked for, at any size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jaxbench.readings.ranks import Ranks

Getter = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Flat:
    """One flat array per rank: `size` elements of `dtype`, found by `get`."""

    size: int
    dtype: str
    get: Getter
    base: Flat | None = None  # what it is but for the places written since
    written: tuple[tuple[int, Flat], ...] = ()  # (first index, what stands there), disjoint

    def materialize(self, ranks: Ranks) -> np.ndarray:
        """Return all elements, [R, size]."""
        grid = np.broadcast_to(ranks.all[:, None], (ranks.count, self.size))
        return self.get(grid, np.broadcast_to(np.arange(self.size), grid.shape))


def from_dense(values: np.ndarray, dtype: str) -> Flat:
    """Return a dense [R, n] (or [1, n]) array as a Flat."""
    shared = values.shape[0] == 1
    return Flat(values.shape[1], dtype, lambda r, i: values[np.zeros_like(r) if shared else r, i])


def write(array: Flat, start: int, piece: Flat) -> Flat:
    """Return `array` with `piece` from index `start` on.

    A piece replaces an earlier one of the same place; other overlaps aren't supported.
    """
    base = array.base or array
    kept = [w for w in array.written if (w[0], w[1].size) != (start, piece.size)]
    written = (*kept, (start, piece))

    def get(r: np.ndarray, i: np.ndarray) -> np.ndarray:
        result = np.array(base.get(r, i))
        for first, part in written:
            inside = (i >= first) & (i < first + part.size)
            if inside.any():
                result[inside] = part.get(r[inside], i[inside] - first)
        return result

    return Flat(array.size, array.dtype, get, base, written)


def all_reduce(
    array: Flat, peers: np.ndarray, round_to: Callable[[np.ndarray], np.ndarray]
) -> Flat:
    """Sum over the members of each rank's group; `peers` is [R, members]."""

    def get(r: np.ndarray, i: np.ndarray) -> np.ndarray:
        total = np.zeros(r.shape)
        for member in range(peers.shape[1]):
            total += array.get(peers[r, member], i)
        return round_to(total)

    return Flat(array.size, array.dtype, get)


def all_gather(array: Flat, peers: np.ndarray) -> Flat:
    """Concatenate the members' arrays in group order."""
    shard = array.size

    def get(r: np.ndarray, i: np.ndarray) -> np.ndarray:
        return array.get(peers[r, i // shard], i % shard)

    return Flat(shard * peers.shape[1], array.dtype, get)


def reduce_scatter(
    array: Flat,
    peers: np.ndarray,
    position: np.ndarray,
    round_to: Callable[[np.ndarray], np.ndarray],
) -> Flat:
    """Sum over the group; every member keeps the part at its position."""
    shard = array.size // peers.shape[1]
    summed = all_reduce(array, peers, round_to)
    return Flat(shard, array.dtype, lambda r, i: summed.get(r, position[r] * shard + i))


def all_to_all(array: Flat, peers: np.ndarray, position: np.ndarray) -> Flat:
    """Part q of what member m holds becomes part m of what member q holds."""
    chunk = array.size // peers.shape[1]

    def get(r: np.ndarray, i: np.ndarray) -> np.ndarray:
        return array.get(peers[r, i // chunk], position[r] * chunk + i % chunk)

    return Flat(array.size, array.dtype, get)


def permute(array: Flat, sources: np.ndarray) -> Flat:
    """Deliver from `sources` ([R], -1: nothing, which gives zeros)."""

    def get(r: np.ndarray, i: np.ndarray) -> np.ndarray:
        source = sources[r]
        return np.where(source >= 0, array.get(np.maximum(source, 0), i), 0)

    return Flat(array.size, array.dtype, get)
