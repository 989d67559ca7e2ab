"""What a user's program takes on a system, taken apart as a strategy's step is (`predict`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jax.extend.core import ClosedJaxpr

from jaxbench.axes import Mesh
from jaxbench.costs.interface import Costs
from jaxbench.errors import InputError, RunError
from jaxbench.readings.own_program import OwnProgram
from jaxbench.readings.own_program_plan import OwnPlan, plan_program, priced
from jaxbench.readings.own_program_roofline import Roofline
from jaxbench.readings.predict import PARTS, SHARES, parts_of
from jaxbench.readings.simulate import Semantics, Simulation, simulate_all
from jaxbench.readings.simulate.costs import Free, LatencyOnly

METRICS = (*PARTS, *SHARES)


@dataclass(frozen=True)
class OwnJob:
    """What placing a program on a system depends on."""

    mesh: Mesh
    devices: int
    hardware: str
    seed: int = 0


@dataclass(frozen=True)
class OwnPrediction:
    """A simulated call: step = compute + skew + bubble + transfer + latency, as in `Prediction`.

    `closed` is the program that was simulated, with a `compute` for what takes time.
    """

    plan: OwnPlan
    closed: ClosedJaxpr
    semantics: Semantics
    costs: str
    simulation: Simulation
    step_s: float
    compute_s: float
    skew_s: float
    bubble_s: float
    transfer_exposed_s: float
    latency_s: float

    @property
    def communication_relevance(self) -> float:
        """The longest blocked time of a rank over the step (arXiv 2609.00817)."""
        return 1 - float(self.simulation.compute_s.min()) / self.step_s if self.step_s else 0.0

    @property
    def communication_share(self) -> float:
        """Exposed transfer and latency over the step."""
        return (self.transfer_exposed_s + self.latency_s) / self.step_s if self.step_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain values: the metrics and the plan."""
        return {
            "costs": self.costs,
            "semantics": asdict(self.semantics),
            "metrics": {name: getattr(self, name) for name in METRICS},
            "plan": self.plan.to_json(),
        }


def predict_program(
    program: OwnProgram,
    roofline: Roofline,
    costs: Costs,
    semantics: Semantics,
    *,
    record: Sequence[int] = (),
    described: str = "",
) -> OwnPrediction:
    """Simulate a call of a program; InputError where it can't be followed."""
    closed = priced(program, roofline)
    models = [costs, LatencyOnly(costs), Free()]
    try:
        full, latency, free = simulate_all(closed, program.ranks, models, semantics, record=record)
    except RunError as error:
        raise InputError(f"{program.name}: {error}") from error
    return OwnPrediction(
        plan=plan_program(program, roofline),
        closed=closed,
        semantics=semantics,
        costs=described,
        simulation=full,
        **parts_of(full, latency, free),
    )
