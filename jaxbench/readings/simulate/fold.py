"""Exact folding of loops: once an iteration only moves everything on, so do all that follow.

An iteration computes times from times with maximum and addition, so moving all its inputs by c
moves all its outputs by c, as long as none of the times that stay (those of the constants) decides
a maximum. Let iteration k (at least the second) have moved every carried time and every stream it
uses by the same c > 0. No constant decided any of them then, since it would have done so in
iteration k - 1 with the same result, and it will not later, when all else is greater still. With
c = 0 nothing changes any more. Ranks that don't communicate in the loop may move by different c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxbench.jaxprs import Equation, scan_counts
from jaxbench.readings.simulate.times import Known, Times, Value
from jaxbench.readings.simulate.walker import Timeline

# Sums of times differ in their last digits; what is this much smaller than the time is rounding.
TOLERANCE = 1e-12

Moves = Sequence[tuple[Times, Times]]


class FoldingTimeline(Timeline):
    """A timeline that doesn't walk the iterations of a loop that repeat the same shift."""

    def _scan(self, eqn: Equation, operands: list[Value]) -> list[Value]:
        consts, carry = scan_counts(eqn)
        slices = operands[consts + carry :]
        live = self.live.carried(eqn)
        # A loop whose counter matters does something else in every iteration.
        counted = any(eqn.outvars[i].aval.dtype.kind in "iub" for i in live)
        if counted or any(isinstance(value, Known) for value in slices):
            return super()._scan(eqn, operands)
        body = eqn.params["jaxpr"]
        kept = {i for i in range(carry) if body.jaxpr.outvars[i] is body.jaxpr.invars[consts + i]}
        moving = sorted(live - kept)
        results = operands[consts : consts + carry]
        results += [self.grid.zero] * (len(eqn.outvars) - carry)
        length = left = eqn.params["length"]
        outer = self.counts
        while left:
            before, free, seen = results, dict(self.streams.free), len(self.recorder.events)
            self.counts = {}
            results = self._call(body, [*operands[:consts], *before[:carry], *slices])
            for i in range(carry, len(results)):  # a stack is there when its last part is
                results[i] = self.grid.latest([before[i], results[i]])
            left -= 1
            turns = 1
            if 0 < left < length - 1:
                moves = [(self._time(before[i]), self._time(results[i])) for i in moving]
                shift = self._steady_shift(moves, free)
                if shift is not None:
                    for i in moving:
                        results[i] = self._time(results[i]) + left * shift
                    self._move_streams(free, left * shift)
                    self.recorder.repeat(seen, shift, left)
                    turns, left = 1 + left, 0
            for key, count in self.counts.items():
                outer[key] = outer.get(key, 0) + count * turns
        self.counts = outer
        return results

    def _time(self, value: Value) -> Times:
        return self.grid.latest([value])

    def _steady_shift(self, moves: Moves, free: Mapping[str, Times]) -> Times | None:
        """Return by how much the iteration just done moved everything alike, None if it didn't.

        `moves` are (before, after) of what it carries, `free` the streams before it.
        """
        used = [
            (free.get(name, self.grid.zero), after)
            for name, after in self.streams.free.items()
            if after is not free.get(name)
        ]
        sites = [site for path, _ in self.counts for site in self.sites.get(path, ())]
        dims = {dim for site in sites for dim in site.dims}  # a clique holds all streams alike
        mask = self.masks[self.mask_number()]
        return steady_shift([*moves, *used], tuple(dims), mask)

    def _move_streams(self, free: Mapping[str, Times], by: Times) -> None:
        mask = self.masks[self.mask_number()]
        for name, after in self.streams.free.items():
            if after is not free.get(name):
                self.streams.free[name] = after + (by if mask is None else np.where(mask, by, 0.0))


def steady_shift(moves: Moves, dims: tuple[int, ...], mask: np.ndarray | None) -> Times | None:
    """Return by how much everything moved, or None if not everything moved alike.

    `moves` are (before, after); `dims` are the mesh dimensions over which ranks communicate, so
    that they have to move alike, and `mask` the ranks concerned (None: all).
    """
    if not moves:
        return None
    low, high = np.inf, -np.inf
    for before, after in moves:
        shift = after - before
        low, high = np.minimum(low, shift), np.maximum(high, shift)
    if mask is not None:
        low, high = np.where(mask, low, np.inf), np.where(mask, high, -np.inf)
    low = np.minimum.reduce(low, axis=dims, keepdims=True)
    high = np.maximum.reduce(high, axis=dims, keepdims=True)
    slack = TOLERANCE * max(float(after.max()) for _, after in moves)
    if (high - low > slack).any() or (low < -slack).any():
        return None
    return high if mask is None else np.where(np.isfinite(high), high, 0.0)
