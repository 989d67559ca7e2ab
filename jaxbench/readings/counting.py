"""How often each rank executes what, and for how long it computes: found without any data.

Only integers and booleans are evaluated; all else is `Unknown`. A loop without conditionals is
walked once and counted with its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr

from jaxbench.errors import RunError
from jaxbench.jaxprs import Equation, bodies, equations
from jaxbench.readings.arithmetic import RULES
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import KINDS, collective_axes
from jaxbench.readings.walker import Path, Walker


@dataclass(frozen=True)
class Unknown:
    """A value that needn't be known; `useful` says for which ranks it carries something."""

    useful: np.ndarray | None = None


UNKNOWN = Unknown()
Known = np.ndarray | Unknown


class Counting(Walker[Known]):
    """Counts executions per rank.

    `counts` and `useful` map the path of a collective to [R] numbers of executions, and of those
    that carried something; `compute_s` maps the label of a compute to [R] seconds.
    """

    def __init__(self, ranks: Ranks):
        super().__init__(ranks)
        self.counts: dict[Path, np.ndarray] = {}
        self.useful: dict[Path, np.ndarray] = {}
        self.compute_s: dict[str, np.ndarray] = {}
        self._folds: dict[int, bool] = {}

    def count(self, closed: ClosedJaxpr) -> Counting:
        """Walk a whole program and return self."""
        self.run(closed, [UNKNOWN] * len(closed.jaxpr.invars))
        return self

    def literal(self, value: Any) -> Known:
        array = np.asarray(value)
        return array[None] if array.dtype.kind in "iub" else UNKNOWN

    def concrete(self, value: Known) -> np.ndarray:
        if isinstance(value, Unknown):
            raise RunError(
                "a predicate of this program depends on computed data; it can only be counted "
                "where predicates follow from axis_index, loop counters and constants"
            )
        return value

    def choose(self, which: np.ndarray, cases: list[Known]) -> Known:
        arrays = [case for case in cases if not isinstance(case, Unknown)]
        if len(arrays) < len(cases):
            return UNKNOWN
        return RULES["select_n"]({}, which, *arrays)

    def unstack(self, stacked: Known, index: int) -> Known:
        return UNKNOWN if isinstance(stacked, Unknown) else stacked[:, index]

    def stack(self, parts: list[Known]) -> Known:
        return UNKNOWN

    def foldable(self, eqn: Equation) -> bool:
        """Without conditionals, run-time loops and marks, iterations differ in data only."""
        key = id(eqn)
        if key not in self._folds:
            inner = [e.primitive.name for body in bodies(eqn) for e in equations(body)]
            self._folds[key] = not {"cond", "while", "mark"} & set(inner)
        return self._folds[key]

    def after_fold(self, values: list[Known]) -> list[Known]:
        return [UNKNOWN] * len(values)

    def rule(self, eqn: Equation, operands: list[Known]) -> list[Known]:
        name = eqn.primitive.name
        if name == "compute":
            label = eqn.params["label"]
            spent = self.compute_s.setdefault(label, np.zeros(self.ranks.count))
            spent += self.active * (self.times * eqn.params["seconds"])
        elif name in KINDS:
            self._collective(eqn, operands)
        elif name == "axis_index":
            return [self.ranks.coordinate(eqn.params["axis_name"]).astype(np.int32)]
        elif name == "mark":
            return [Unknown(np.broadcast_to(self.concrete(operands[1]), self.active.shape))]
        elif name == "iota" or (operands and name in RULES):
            known = [o for o in operands if not isinstance(o, Unknown)]
            if len(known) == len(operands) and eqn.outvars[0].aval.dtype.kind in "iub":
                with np.errstate(all="ignore"):
                    return [RULES[name](eqn.params, *known)]
        return [UNKNOWN] * len(eqn.outvars)

    def _collective(self, eqn: Equation, operands: list[Known]) -> None:
        axes = collective_axes(eqn)
        self.require_whole_groups(axes, str(eqn.source_info.name_stack) or eqn.primitive.name)
        executed = self.active * np.int64(self.times)
        carries = executed
        if isinstance(operands[0], Unknown) and operands[0].useful is not None:
            carries = executed * operands[0].useful
        for table, amount in ((self.counts, executed), (self.useful, carries)):
            table.setdefault(self.path, np.zeros(self.ranks.count, np.int64))
            table[self.path] = table[self.path] + amount
