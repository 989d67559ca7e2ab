"""When everything is ready, by the program's dependencies alone: what may overlap, what must wait.

A value carries the time at which it is ready on each rank. A compute advances the token; a
collective is ready a fixed time after the last member of its group. Nothing else takes time and
nothing queues, so a step is as long as its longest chain of dependencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxbench.jaxprs import Equation
from jaxbench.program import Traced
from jaxbench.readings.arithmetic import RULES
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import KINDS, collective_axes
from jaxbench.readings.walker import Walker


@dataclass(frozen=True)
class Timed:
    """A value: ready at `at` ([R] seconds), known (integers, booleans) or not."""

    at: np.ndarray
    known: np.ndarray | None = None


class ReadyTimes(Walker[Timed]):
    """Follows a program through time; `costs` gives the seconds of a collective by its kind."""

    def __init__(self, ranks: Ranks, costs: Mapping[str, float]):
        super().__init__(ranks)
        self.costs = costs
        self.zero = np.zeros(ranks.count)
        self.last = self.zero  # when each rank's computes and collectives are all done

    def literal(self, value: Any) -> Timed:
        array = np.asarray(value)
        return Timed(self.zero, array[None] if array.dtype.kind in "iub" else None)

    def concrete(self, value: Timed) -> np.ndarray:
        assert value.known is not None
        return value.known

    def choose(self, which: np.ndarray, cases: list[Timed]) -> Timed:
        at = np.choose(which, [case.at for case in cases])
        arrays = [case.known for case in cases if case.known is not None]
        known = RULES["select_n"]({}, which, *arrays) if len(arrays) == len(cases) else None
        return Timed(at, known)

    def rule(self, eqn: Equation, operands: list[Timed]) -> list[Timed]:
        name = eqn.primitive.name
        at = np.max([self.zero, *(operand.at for operand in operands)], axis=0)
        if name == "compute":
            at = at + eqn.params["seconds"]
        elif name in KINDS:
            axes = collective_axes(eqn)
            if KINDS[name] == "permute":
                sources = self.ranks.sources(axes[0], eqn.params["perm"])
                at = np.where(sources >= 0, operands[0].at[sources], self.zero)
            else:
                at = at[self.ranks.peers(axes)].max(axis=1)
            at = at + self.costs[KINDS[name]]
        if name == "compute" or name in KINDS:
            self.last = np.maximum(self.last, np.where(self.active, at, 0))
        known = None
        if name == "axis_index":
            known = self.ranks.coordinate(eqn.params["axis_name"]).astype(np.int32)
        elif (name == "iota" or operands) and name in RULES:
            arrays = [o.known for o in operands if o.known is not None]
            if len(arrays) == len(operands) and eqn.outvars[0].aval.dtype.kind in "iub":
                with np.errstate(all="ignore"):
                    known = RULES[name](eqn.params, *arrays)
        return [Timed(at, known) for _ in eqn.outvars]


def step_s(traced: Traced, ranks: Ranks, **costs: float) -> float:
    """Return how long a step takes where a collective of each kind takes the given seconds."""
    kinds = dict.fromkeys(
        ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute"), 0
    )
    walk = ReadyTimes(ranks, {**kinds, **costs})
    walk.run(traced.closed, [Timed(walk.zero)] * len(traced.closed.jaxpr.invars))
    return float(walk.last.max())
