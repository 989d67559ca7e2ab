"""What a user's program communicates and computes: its equations priced, then read as any other.

`priced` puts a `compute` in the place of every equation that costs time, with the seconds of the
roofline, so that the simulation and the plan see the same program as they see of a strategy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxbench.errors import InputError, RunError
from jaxbench.jaxprs import Equation
from jaxbench.primitives import compute_p
from jaxbench.program import Program
from jaxbench.readings.counting import Counting, Known
from jaxbench.readings.own_program import OwnProgram
from jaxbench.readings.own_program_roofline import Price, Roofline
from jaxbench.readings.own_program_traffic import STRUCTURE, size_bytes, unknown_primitives
from jaxbench.readings.plan import Row, plan_rows
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import find_sites

# Whole numbers that steer a program are few; larger arrays of them are data.
STEERING_ELEMENTS = 256


@dataclass(frozen=True)
class OwnPlan:
    """What a program communicates, computes and is given: per rank and call.

    `flops` maps a dtype to the FLOPs of matrix products, `compute_s` what bounds to seconds: each
    the maximum over ranks. `unknown` counts, by primitive, the equations priced by a guess.
    """

    program: OwnProgram
    rows: tuple[Row, ...]
    flops: dict[str, float]
    traffic_bytes: float
    compute_s: dict[str, float]
    rank_compute_s: np.ndarray
    argument_bytes: int
    result_bytes: int
    unknown: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "program": self.program.name,
            "mesh": dict(self.program.axes),
            "collectives": [vars(row) for row in self.rows],
            "flops": self.flops,
            "traffic_bytes": self.traffic_bytes,
            "compute_s": self.compute_s,
            "rank_compute_s": {
                "min": float(self.rank_compute_s.min()),
                "max": float(self.rank_compute_s.max()),
            },
            "argument_bytes": self.argument_bytes,
            "result_bytes": self.result_bytes,
            "unknown_primitives": self.unknown,
            "notes": list(self.program.notes),
        }


def priced(program: OwnProgram, roofline: Roofline) -> ClosedJaxpr:
    """Return the program with a `compute` for every equation inside shard_map that takes time.

    A compute has the operands and results of what it stands for, and its primitive as label.
    """
    return _price(program, roofline)[0]


def plan_program(program: OwnProgram, roofline: Roofline) -> OwnPlan:
    """Read the plan of a program; InputError where it can't be counted."""
    closed, prices = _price(program, roofline)
    ranks = program.ranks
    tally = _Tally(ranks, prices)
    try:
        tally.count(closed)
    except RunError as error:
        raise InputError(f"{program.name}: {error}") from error
    nothing = Program(program.name, {}, lambda rank: None)  # no strategy stated any size
    bodies = program.bodies
    return OwnPlan(
        program=program,
        rows=tuple(plan_rows(find_sites(closed, ranks), tally, nothing)),
        flops={dtype: float(count.max()) for dtype, count in tally.flops.items()},
        traffic_bytes=float(tally.traffic_bytes.max()),
        compute_s={what: float(seconds.max()) for what, seconds in tally.seconds.items()},
        rank_compute_s=sum(tally.seconds.values(), np.zeros(ranks.count)),
        argument_bytes=sum(size_bytes(v) for body in bodies for v in body.invars),
        result_bytes=sum(size_bytes(v) for body in bodies for v in body.outvars),
        unknown=dict(sum((unknown_primitives(body) for body in bodies), Counter())),
    )


class _Tally(Counting):
    """Adds up the prices of what each rank executes."""

    def __init__(self, ranks: Ranks, prices: dict[int, Price]):
        super().__init__(ranks)
        self.prices = prices
        self.flops: dict[str, np.ndarray] = {}
        self.traffic_bytes = np.zeros(ranks.count)
        self.seconds: dict[str, np.ndarray] = {}

    def rule(self, eqn: Equation, operands: list[Known]) -> list[Known]:
        price = self.prices.get(id(eqn))
        if price is not None:
            executed = self.active * self.times
            self.traffic_bytes += executed * price.bytes
            self._add(self.seconds, price.what, executed * price.seconds)
            if price.flops:
                self._add(self.flops, price.dtype, executed * float(price.flops))
        return super().rule(eqn, operands)

    def _add(self, table: dict[str, np.ndarray], key: str, amount: np.ndarray) -> None:
        table[key] = table.get(key, np.zeros(self.ranks.count)) + amount


def _price(program: OwnProgram, roofline: Roofline) -> tuple[ClosedJaxpr, dict[int, Price]]:
    """Return the program with computes, and the price behind each of these."""
    prices: dict[int, Price] = {}
    for body in program.bodies:
        prices.update(roofline.price_all(body))
    behind: dict[int, Price] = {}

    def change(eqn: Equation) -> Equation:
        price = prices.get(id(eqn))
        if price is None or _steers(eqn):
            return eqn
        params = {"seconds": price.seconds, "label": eqn.primitive.name, "payload": None}
        compute = eqn.replace(primitive=compute_p, params=params)
        behind[id(compute)] = price
        return compute

    return ClosedJaxpr(_changed(program.closed.jaxpr, change), program.closed.consts), behind


def _changed(jaxpr: Jaxpr, change: Callable[[Equation], Equation]) -> Jaxpr:
    """Return `jaxpr` with `change` applied to what isn't structure (a scatter has a body, too)."""
    changed = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in STRUCTURE:
            params = {name: _changed_param(value, change) for name, value in eqn.params.items()}
            changed.append(eqn.replace(params=params))
        else:
            changed.append(change(eqn))
    return jaxpr.replace(eqns=changed)


def _changed_param(value: Any, change: Callable[[Equation], Equation]) -> Any:
    if isinstance(value, ClosedJaxpr):
        return ClosedJaxpr(_changed(value.jaxpr, change), value.consts)
    if isinstance(value, Jaxpr):
        return _changed(value, change)
    if isinstance(value, tuple) and any(isinstance(v, (ClosedJaxpr, Jaxpr)) for v in value):
        return tuple(_changed_param(item, change) for item in value)
    return value


def _steers(eqn: Equation) -> bool:
    """Whether the results may decide what is executed; they are evaluated, and cost nothing."""
    return all(
        getattr(v.aval, "dtype", np.dtype(bool)).kind in "iub" and v.aval.size <= STEERING_ELEMENTS
        for v in eqn.outvars
    )
