"""One experiment on its way to a record: what is known so far, and the record made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.sharding import Mesh

from jaxbench.experiment import Experiment
from jaxbench.measure import decomposition
from jaxbench.measure.host import environment
from jaxbench.measure.metrics import metric
from jaxbench.measure.processes import here, ranks_of
from jaxbench.measure.record import make_record
from jaxbench.measure.statistics import median
from jaxbench.measure.steady import WarmUp
from jaxbench.measure.stopping import StopRule
from jaxbench.measure.timing import Timed
from jaxbench.readings.build import Executable
from jaxbench.readings.plan import Plan
from jaxbench.readings.profile_reading import ProfileReading
from jaxbench.readings.variants import VARIANTS

MOST_WARM_UP, WARM_UP_S = 20, 10.0  # steps and seconds of a program


@dataclass
class Run:
    """One experiment on its way: what is known so far, for the record."""

    experiment: Experiment
    plan: Plan
    mesh: Mesh
    id: str  # the same on all processes
    timed: Timed = field(default_factory=Timed)
    profile: ProfileReading | None = None
    executables: dict[str, Executable] = field(default_factory=dict)
    checks: dict[str, Any] = field(
        default_factory=lambda: {"plan_equals_compiled": None, "values_ok": None}
    )
    calibration: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
    clocks: dict[str, Any] | None = None  # of many processes
    partial: bool = True
    failure: str | None = None

    @property
    def warm_up(self) -> WarmUp:
        """When the steps are steady; bounded, for a step may take seconds."""
        return WarmUp(least=self.experiment.warmup, most=MOST_WARM_UP, max_seconds=WARM_UP_S)

    @property
    def stop(self) -> StopRule:
        """When there are enough steps."""
        e = self.experiment
        return StopRule(e.steps, e.min_seconds, e.until_ci, max_steps=e.max_steps)


def record_of(
    run: Run, command: Sequence[str], parts: Sequence[Mapping[str, Any] | None] | None = None
) -> dict[str, Any]:
    """Return the record of a run, whole or not.

    `parts` are what each process has measured, as `measured_so_far` returned it there; None of
    those of which it isn't known. Without all of them it is the record of this process's samples.
    """
    experiment, timed = run.experiment, run.timed
    executable = run.executables.get("full")
    devices = list(run.mesh.devices.flat)
    known = [part for part in parts or [] if part is not None]
    whole = len(known) == here().count
    if not whole:
        known = [measured_so_far(run)]
    samples = of_all([part["samples"] for part in known])
    ready = of_all([part["ready"] for part in known])
    if whole:
        ready = {name: in_rank_order(rounds, devices) for name, rounds in ready.items()}
    metrics = _metrics(run, samples, ready)
    warnings = run.warnings + decomposition.warnings(metrics)
    full, warm = timed.samples_s.get("full", []), timed.warmup_s
    if not run.partial:
        warnings += run.stop.warnings(full)
        unsteady = [name for name, taken in warm.items() if run.warm_up.warnings(taken)]
        if unsteady:
            warnings.append(f"not steady after warm-up: {', '.join(unsteady)}")
    if here().count > 1 and run.partial and not whole and timed.samples_s:
        warnings.append(f"the samples are of process {here().index} only")
    if run.failure:
        warnings.append(f"failed: {run.failure}")
    return make_record(
        id=run.id,
        command=list(command),
        seed=experiment.seed,
        scales={"time_scale": experiment.time_scale, "size_scale": experiment.size_scale},
        experiment=experiment.to_dict(),
        environment=environment(devices),
        ranks=ranks_of(devices),
        plan=run.plan.to_json(),
        checks=run.checks,
        calibration=run.calibration,
        timing={
            "trace_s": run.plan.trace_s,
            "lower_s": executable.lower_s if executable else None,
            "compile_s": executable.compile_s if executable else None,
            "compiled_s": {name: built.compile_s for name, built in run.executables.items()},
            "compile_cached": executable.cached if executable else None,
            "first_call_s": timed.first_call_s,
            "warmup_s": warm,
            "warmup": {name: run.warm_up.outcome(taken) for name, taken in warm.items()},
            "stop": run.stop.outcome(full) if full else None,
            "clocks": run.clocks,
            "start_s": dict(here().start_s) or None,
        },
        samples=samples,
        device_ready_s=ready,
        metrics=metrics,
        profile=run.profile.to_json() if run.profile else None,
        warnings=warnings,
        partial=run.partial,
    )


def measured_so_far(run: Run) -> dict[str, Any]:
    """Return what this process has measured: {variant: [rounds][values]} of steps and devices."""
    timed = run.timed
    return {
        "samples": {name: [[s] for s in taken] for name, taken in list(timed.samples_s.items())},
        "ready": {name: list(rounds) for name, rounds in list(timed.ready_s.items())},
    }


def of_all(parts: Sequence[Mapping[str, list[list[float]]]]) -> dict[str, list[list[float]]]:
    """Return {variant: [rounds][values of all processes]}, of the rounds that all have done."""
    found = {}
    for name in parts[0]:
        rounds = zip(*(part.get(name, []) for part in parts), strict=False)
        found[name] = [[value for values in row for value in values] for row in rounds]
    return found


def in_rank_order(rounds: list[list[float]], devices: Sequence[Any]) -> list[list[float]]:
    """Return [rounds][ranks], given the values of process 0's devices, then process 1's ...

    `devices` are those of the ranks; a process's own are in their order.
    """
    ranks = sorted(range(len(devices)), key=lambda rank: (devices[rank].process_index, rank))
    place = {rank: k for k, rank in enumerate(ranks)}
    return [[values[place[rank]] for rank in range(len(devices))] for values in rounds]


def _metrics(
    run: Run, samples: decomposition.Samples, ready: decomposition.Ready
) -> dict[str, Any]:
    """Return the metrics of a run from its samples; null where there are none."""
    idle = run.experiment.payload == "none"
    wanted_s = 0.0 if idle else float(run.plan.compute_s.max())
    w = run.plan.workload
    rounds = min((len(taken) for taken in samples.values()), default=0)
    parts = decomposition.none()
    if rounds and set(samples) == set(VARIANTS):
        parts = decomposition.decompose(samples, ready, (w.p - 1) / w.bubble_slots)
    step = median([max(processes) for processes in samples.get("full", [])])
    compute_s = parts["compute_s"]["value"]
    if compute_s is None:
        compute_s = wanted_s

    def derived(name: str, of: Callable[[float], float]) -> dict[str, Any]:
        value = None if step.value is None else of(step.value)
        if step.ci_low is None or step.ci_high is None:
            return metric(name, value, n=step.n)
        low, high = sorted((of(step.ci_low), of(step.ci_high)))
        return metric(name, value, ci_low=low, ci_high=high, n=step.n)

    return {
        "step_s": derived("step_s", lambda s: s),
        "wanted_compute_s": metric("wanted_compute_s", wanted_s),
        "exposed_s": derived("exposed_s", lambda s: s - compute_s),
        "throughput": derived("throughput", lambda s: w.global_batch / s),
        **parts,
        **_profile_metrics(run.profile),
    }


def _profile_metrics(profile: ProfileReading | None) -> dict[str, Any]:
    """Return the second estimate, independent of the variants: from the profile's spans."""
    found = {}
    for name in ("exposed_s", "transfer_s"):
        taken = median(profile.per_step(name) if profile else [])
        key = f"profile_{name}"
        found[key] = metric(key, taken.value, ci_low=taken.ci_low, ci_high=taken.ci_high, n=taken.n)
    return found
