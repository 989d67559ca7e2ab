"""What a step of an experiment takes on a system, taken apart as `run` takes a measured one apart.

prediction = predict_system(experiment, "jupiter", placement="inter-group")   # no devices

One walk of the program with four cost models: as it is, with the latencies only, with free
communication, and with replicas that needn't communicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jaxbench.costs.interface import Costs
from jaxbench.experiment import Experiment
from jaxbench.program import Traced, abstract_mesh, trace
from jaxbench.rank import DATA
from jaxbench.readings.plan import Plan, build_program, plan_traced
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Semantics, Simulation, simulate_all
from jaxbench.readings.simulate.costs import Free, LatencyOnly, WithoutAxis
from jaxbench.readings.simulate.system import Fits, Priced, collective_kinds, price
from jaxbench.workload import Workload

# A difference of two steps that is this much smaller than they are is rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Prediction:
    """A simulated step and its parts: step = compute + skew + bubble + transfer + latency.

    `compute_s` is the median over ranks and `skew_s` what the busiest has more; `bubble_s` what is
    left of a step with free communication; `latency_s` what the latencies of collectives add to
    that, and `transfer_exposed_s` what their bytes add. `blocked_s` is how long the least busy
    rank waits and `communication_relevance` that over the step (arXiv 2609.00817: the maximum over
    ranks of blocked time / run time); it contains bubble and skew, `communication_share` doesn't.
    `throughput` is in samples/s, `scaling_efficiency` relative to replicas that needn't
    communicate. `costs` says in words where the costs are from.
    """

    experiment: Experiment
    semantics: Semantics
    costs: str
    step_s: float
    compute_s: float
    skew_s: float
    bubble_s: float
    transfer_exposed_s: float
    latency_s: float
    blocked_s: float
    communication_relevance: float
    communication_share: float
    throughput: float
    scaling_efficiency: float
    simulation: Simulation
    workload: Workload
    traced: Traced

    @cached_property
    def plan(self) -> Plan:
        """The plan of the same program; read when first asked for."""
        return plan_traced(self.experiment, self.workload, self.traced, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as plain values: settings, METRICS, and a row per collective."""
        return {
            "experiment": self.experiment.to_dict(),
            "costs": self.costs,
            "semantics": asdict(self.semantics),
            "metrics": {name: getattr(self, name) for name in METRICS},
            "compute_by_label": self.simulation.compute_by_label,
            "collectives": [
                {
                    "kind": use.kind,
                    "label": use.label,
                    "axis": "+".join(use.axes),
                    "group_size": use.group_size,
                    "groups": use.groups,
                    "count": use.count,
                    "elements": use.elements,
                    "dtype": use.dtype,
                    "bytes": use.nbytes,
                    "seconds": use.seconds,
                    "each_s": use.cost.seconds,
                    "each_latency_s": use.cost.latency_s,
                    "algorithm": use.cost.algorithm,
                    "bound": use.bound,
                }
                for use in self.simulation.uses
            ],
        }


PARTS = ("step_s", "compute_s", "skew_s", "bubble_s", "transfer_exposed_s", "latency_s")
SHARES = ("communication_relevance", "communication_share")
METRICS = (*PARTS, "blocked_s", *SHARES, "throughput", "scaling_efficiency")


def predict(
    experiment: Experiment,
    costs: Costs,
    semantics: Semantics,
    *,
    record: Sequence[int] = (),
    described: str = "",
) -> Prediction:
    """Simulate a step of an experiment; `costs` must know all its ranks.

    `record` lists ranks whose operations are kept in `simulation.events`, `described` says where
    the costs are from.
    """
    workload, traced = _traced(experiment)
    return _predict(experiment, workload, traced, Priced(costs, semantics, described), record)


def _traced(experiment: Experiment) -> tuple[Workload, Traced]:
    workload, program = build_program(experiment)
    return workload, trace(program, abstract_mesh(experiment.mesh))


def _predict(
    experiment: Experiment,
    workload: Workload,
    traced: Traced,
    priced: Priced,
    record: Sequence[int],
) -> Prediction:
    costs = priced.costs
    models = [costs, LatencyOnly(costs), Free(), WithoutAxis(costs, DATA)]
    full, latency, free, alone = simulate_all(
        traced.closed, Ranks(experiment.mesh), models, priced.semantics, record=record
    )
    parts = parts_of(full, latency, free)
    blocked = _less(full.step_s, float(full.compute_s.min()))
    return Prediction(
        experiment=experiment,
        semantics=priced.semantics,
        costs=priced.described,
        **parts,
        blocked_s=blocked,
        communication_relevance=blocked / full.step_s,
        communication_share=(parts["transfer_exposed_s"] + parts["latency_s"]) / full.step_s,
        throughput=workload.global_batch / full.step_s,
        scaling_efficiency=alone.step_s / full.step_s,
        simulation=full,
        workload=workload,
        traced=traced,
    )


def parts_of(full: Simulation, latency: Simulation, free: Simulation) -> dict[str, float]:
    """Return PARTS: of a step, of the same with latencies only, and with free communication."""
    compute, busiest = float(np.median(full.compute_s)), float(full.compute_s.max())
    return {
        "step_s": full.step_s,
        "compute_s": compute,
        "skew_s": _less(busiest, compute),
        "bubble_s": _less(free.step_s, busiest),
        "transfer_exposed_s": _less(full.step_s, latency.step_s),
        "latency_s": _less(latency.step_s, free.step_s),
    }


def _less(whole: float, part: float) -> float:
    """Return the difference, 0 where it is rounding of sums that are equal."""
    return 0.0 if abs(whole - part) <= ROUNDING * whole else whole - part


def predict_system(
    experiment: Experiment,
    system_name: str | None,
    *,
    fits: Fits | None = None,
    record: Sequence[int] = (),
    **where: str,
) -> Prediction:
    """Predict a step on a system of `meshes/`; `where` and `fits` are as `price` takes them.

    Errors: InputError with everything that is wrong.
    """
    workload, traced = _traced(experiment)
    kinds = collective_kinds(traced.closed)
    priced = price(experiment, system_name, kinds=kinds, fits=fits, **where)
    return _predict(experiment, workload, traced, priced, record)
