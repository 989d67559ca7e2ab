"""One walk over a traced program, for all ranks at once; every reading is a subclass.

A reading says what a value is (`rule` and `literal`) and the walker does the structure: calls,
loops, conditionals, per-rank predicates. What steers the program (loop counters, `axis_index`,
predicates) must be concrete in every reading: a NumPy array with a leading dimension over ranks,
of size 1 where all agree.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxbench.errors import RunError
from jaxbench.jaxprs import Equation, scan_counts
from jaxbench.readings.ranks import Ranks

Value = TypeVar("Value")
Path = tuple[int, ...]

CALLS = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call")


class Listing(NamedTuple):
    """What to do for a jaxpr: its equations by number, each with the variables it is the last to
    use, and the variables whose equations are left out. (`jaxpr` is kept: its id is the key.)
    """

    jaxpr: Jaxpr
    equations: Sequence[tuple[int, Equation, Sequence[Any]]]
    absent: list[Any]


class Walker(Generic[Value]):
    """Evaluates a jaxpr over a reading's values.

    `active` tells which ranks execute the equation at hand (conditionals narrow it); `times` how
    often it stands for (a folded loop multiplies it); `path` where it is, as equation numbers.
    """

    def __init__(self, ranks: Ranks):
        self.ranks = ranks
        self.active = np.ones(ranks.count, bool)
        self.times = 1
        self.path: Path = ()
        self._listings: dict[int, Listing] = {}

    # --- what a reading defines ---

    def literal(self, value: Any) -> Value:
        """Return the value of a constant, the same on all ranks."""
        raise NotImplementedError

    def rule(self, eqn: Equation, operands: list[Value]) -> list[Value]:
        """Return the results of an equation without a body."""
        raise NotImplementedError

    def left_out(self, jaxpr: Jaxpr) -> Collection[int]:
        """Return the numbers of the equations that don't matter: their results are `nothing`."""
        return ()

    def nothing(self) -> Value:
        """Return the value of what a left-out equation would have computed."""
        raise NotImplementedError

    def concrete(self, value: Value) -> np.ndarray:
        """Return the per-rank array of a steering value, or raise if it isn't known."""
        raise NotImplementedError

    def choose(self, which: np.ndarray, cases: list[Value]) -> Value:
        """Return, per rank, the case numbered by `which` ([R])."""
        raise NotImplementedError

    def foldable(self, eqn: Equation) -> bool:
        """Whether one pass over this loop's body stands for all of its iterations."""
        return False

    def after_fold(self, values: list[Value]) -> list[Value]:
        """Return what a folded loop leaves, given what one pass left."""
        return values

    def unstack(self, stacked: Value, index: int) -> Value:
        """Return element `index` of a scanned-over array."""
        raise NotImplementedError

    def stack(self, parts: list[Value]) -> Value:
        """Return the scanned-out array made of `parts`."""
        raise NotImplementedError

    # --- the walk ---

    def run(self, closed: ClosedJaxpr, arguments: Sequence[Value]) -> list[Value]:
        """Evaluate a whole program. Arguments of its shard_map are given per rank."""
        return self.evaluate(closed.jaxpr, [self.literal(c) for c in closed.consts], arguments)

    def evaluate(
        self, jaxpr: Jaxpr, constants: Sequence[Value], arguments: Sequence[Value]
    ) -> list[Value]:
        """Evaluate the equations of `jaxpr` in order."""
        values: dict[Any, Value] = dict(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        listing = self._listings.get(id(jaxpr)) or self._list(jaxpr)
        for variable in listing.absent:
            values[variable] = self.nothing()

        def read(atom: Any) -> Value:
            return self.literal(atom.val) if isinstance(atom, Literal) else values[atom]

        outer = self.path
        for number, eqn, finished in listing.equations:
            self.path = (*outer, number)
            results = self._equation(eqn, [read(v) for v in eqn.invars])
            values.update(zip(eqn.outvars, results, strict=True))
            for variable in finished:
                values.pop(variable, None)
        self.path = outer
        return [read(v) for v in jaxpr.outvars]

    def _list(self, jaxpr: Jaxpr) -> Listing:
        """Note what to do for each equation, once for all times that a body is evaluated."""
        out = self.left_out(jaxpr)
        kept = [(n, e) for n, e in enumerate(jaxpr.eqns) if n not in out]
        absent = [v for n in out for v in jaxpr.eqns[n].outvars]
        last_use = {v: number for number, eqn in kept for v in _variables(eqn.invars)}
        for variable in _variables(jaxpr.outvars):
            last_use.pop(variable, None)
        finished: dict[int, list[Any]] = {}
        for variable, number in last_use.items():
            finished.setdefault(number, []).append(variable)
        equations = [(number, eqn, finished.get(number, ())) for number, eqn in kept]
        listing = self._listings[id(jaxpr)] = Listing(jaxpr, equations, absent)
        return listing

    def _equation(self, eqn: Equation, operands: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        if name in CALLS or name == "shard_map":
            inner = eqn.params.get("jaxpr") or eqn.params["call_jaxpr"]
            return self._call(inner, operands)
        if name == "scan":
            return self._scan(eqn, operands)
        if name == "while":
            return self._while(eqn, operands)
        if name == "cond":
            return self._cond(eqn, operands)
        return self.rule(eqn, operands)

    def _call(self, inner: ClosedJaxpr | Jaxpr, operands: Sequence[Value]) -> list[Value]:
        if isinstance(inner, ClosedJaxpr):
            constants = [self.literal(c) for c in inner.consts]
            return self.evaluate(inner.jaxpr, constants, operands)
        return self.evaluate(inner, [], operands)

    def _scan(self, eqn: Equation, operands: list[Value]) -> list[Value]:
        params = eqn.params
        num_consts, num_carry = scan_counts(eqn)
        consts, carry = operands[:num_consts], operands[num_consts : num_consts + num_carry]
        stacked = operands[num_consts + num_carry :]
        length = params["length"]
        if self.foldable(eqn) and not stacked and length > 0:
            outer, self.times = self.times, self.times * length
            results = self._call(params["jaxpr"], [*consts, *carry])
            self.times = outer
            if len(results) == num_carry:
                return self.after_fold(results)
        collected: list[list[Value]] = [[] for _ in eqn.outvars[num_carry:]]
        order = range(length)
        for index in reversed(order) if params["reverse"] else order:
            slices = [self.unstack(value, index) for value in stacked]
            results = self._call(params["jaxpr"], [*consts, *carry, *slices])
            carry = results[:num_carry]
            for column, part in zip(collected, results[num_carry:], strict=True):
                column.append(part)
        if params["reverse"]:
            collected = [column[::-1] for column in collected]
        return [*carry, *(self.stack(column) for column in collected)]

    def _while(self, eqn: Equation, operands: list[Value]) -> list[Value]:
        params = eqn.params
        n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
        cond_consts, body_consts = operands[:n_cond], operands[n_cond : n_cond + n_body]
        carry, outer = operands[n_cond + n_body :], self.active
        while True:
            predicate = self.concrete(self._call(params["cond_jaxpr"], [*cond_consts, *carry])[0])
            going = self.active & np.broadcast_to(predicate, self.active.shape)
            if not going.any():
                self.active = outer
                return list(carry)
            self.active = going
            results = self._call(params["body_jaxpr"], [*body_consts, *carry])
            if going.all():
                carry = results
            else:
                pairs = zip(carry, results, strict=True)
                carry = [self.choose(going.astype(np.int64), list(pair)) for pair in pairs]

    def _cond(self, eqn: Equation, operands: list[Value]) -> list[Value]:
        branches = eqn.params["branches"]
        which = self.concrete(operands[0]).astype(np.int64).clip(0, len(branches) - 1)
        which = np.broadcast_to(which, self.active.shape)
        outer, outer_path = self.active, self.path
        outcomes: dict[int, list[Value]] = {}
        for number, branch in enumerate(branches):
            self.active = outer & (which == number)
            self.path = (*outer_path, number)
            if self.active.any():
                outcomes[number] = self._call(branch, operands[1:])
        self.active, self.path = outer, outer_path
        if len(outcomes) == 1:
            return next(iter(outcomes.values()))
        numbers = list(outcomes)
        place = np.searchsorted(numbers, which).clip(0, len(numbers) - 1)
        columns = zip(*outcomes.values(), strict=True)
        return [self.choose(place, list(cases)) for cases in columns]

    # --- shared checks ---

    def require_whole_groups(self, axes: Any, label: str) -> None:
        """Refuse a collective that only some members of a group reach: it would abort."""
        if self.active.all():
            return
        members = self.active[self.ranks.groups(axes)]
        split = members.any(axis=1) & ~members.all(axis=1)
        if split.any():
            group = self.ranks.groups(axes)[int(np.argmax(split))].tolist()
            raise RunError(
                f"collective '{label}' over {axes} is inside a conditional that the ranks {group} "
                "of one group decide differently; make its predicate the same on all of them"
            )


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]
