"""Which equations of a program matter to time: those that lead to work or communication.

The looks at values that a measured program returns (probes), and the counters of loops that need
none, are left out, so that a step of thousands of ranks is simulated in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxbench.jaxprs import Equation, bodies, scan_counts
from jaxbench.readings.walker import CALLS

Positions = frozenset[int]


class Liveness:
    """Marks what a program needs for its roots: the equations for which `is_root` holds.

    What the program returns doesn't matter: it is there when the last work or communication
    that it comes from is done.
    """

    def __init__(self, closed: ClosedJaxpr, is_root: Callable[[Equation], bool]):
        self.is_root = is_root
        self._needed: dict[int, set[int]] = {}  # id of a jaxpr -> numbers of equations
        self._carried: dict[int, set[int]] = {}  # id of a loop -> positions among its results
        self._rooted: dict[int, bool] = {}
        self._done: dict[tuple[int, Positions], Positions] = {}
        self._inputs(closed.jaxpr, frozenset())

    def unneeded(self, jaxpr: Jaxpr) -> set[int]:
        """Return the numbers of the equations of `jaxpr` that don't matter."""
        return set(range(len(jaxpr.eqns))) - self._needed.get(id(jaxpr), set())

    def carried(self, loop: Equation) -> set[int]:
        """Return which results of a loop matter, those it carries from turn to turn included."""
        return self._carried.get(id(loop), set())

    def _inputs(self, jaxpr: Jaxpr, wanted: Positions) -> Positions:
        """Mark what `jaxpr` needs if its results `wanted` matter; return the inputs that do."""
        key = (id(jaxpr), wanted)
        if key not in self._done:
            needed = set(_variables(jaxpr.outvars[i] for i in wanted))
            numbers = self._needed.setdefault(id(jaxpr), set())
            for number in reversed(range(len(jaxpr.eqns))):
                eqn = jaxpr.eqns[number]
                outs = frozenset(i for i, v in enumerate(eqn.outvars) if v in needed)
                if outs or self._has_root(eqn):
                    numbers.add(number)
                    needed |= set(_variables(eqn.invars[i] for i in self._operands(eqn, outs)))
            self._done[key] = frozenset(i for i, v in enumerate(jaxpr.invars) if v in needed)
        return self._done[key]

    def _operands(self, eqn: Equation, outs: Positions) -> Iterable[int]:
        """Return which operands of an equation matter if its results `outs` do."""
        name, params = eqn.primitive.name, eqn.params
        if name in CALLS or name == "shard_map":
            return self._inputs(_open(params.get("jaxpr") or params["call_jaxpr"]), outs)
        if name == "cond":
            branches = [self._inputs(_open(body), outs) for body in params["branches"]]
            return {0, *(i + 1 for branch in branches for i in branch)}
        if name == "while":
            return self._loop(
                eqn,
                outs,
                [(params["cond_jaxpr"], 0, params["cond_nconsts"])],
                (params["body_jaxpr"], params["cond_nconsts"], params["body_nconsts"]),
                len(eqn.outvars),
            )
        if name == "scan":
            consts, carry = scan_counts(eqn)
            return self._loop(eqn, outs, [], (params["jaxpr"], 0, consts), carry)
        return range(len(eqn.invars))

    def _loop(
        self,
        eqn: Equation,
        outs: Positions,
        conditions: list[tuple[Any, int, int]],
        body: tuple[Any, int, int],
        carry: int,
    ) -> set[int]:
        """As `_operands`; of each jaxpr are given the place and number of its constants.

        What an iteration needs of what it carries, the one before has to hand on.
        """
        first = len(eqn.invars) - (len(body[0].jaxpr.invars) - body[2])  # of the carried operands
        wanted = set(outs)
        while True:
            operands = {first + i for i in wanted if i < carry}
            for jaxpr, start, count in [*conditions, body]:
                results = frozenset(wanted) if jaxpr is body[0] else frozenset({0})
                for i in self._inputs(_open(jaxpr), results):
                    operands.add(start + i if i < count else first + i - count)
            more = {i - first for i in operands if first <= i < first + carry}
            if more <= wanted:
                self._carried.setdefault(id(eqn), set()).update(wanted)
                return operands
            wanted |= more

    def _has_root(self, eqn: Equation) -> bool:
        if id(eqn) not in self._rooted:
            inner = (self._has_root(e) for body in bodies(eqn) for e in body.eqns)
            self._rooted[id(eqn)] = self.is_root(eqn) or any(inner)
        return self._rooted[id(eqn)]


def _variables(atoms: Iterable[Any]) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _open(body: ClosedJaxpr | Jaxpr) -> Jaxpr:
    return body.jaxpr if isinstance(body, ClosedJaxpr) else body
