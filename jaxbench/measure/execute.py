"""The main job: build, check, calibrate, time and record experiments, one after the other."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.sharding import Mesh

from jaxbench.dtypes import find_dtype
from jaxbench.errors import InputError, RunError
from jaxbench.experiment import Experiment
from jaxbench.jaxprs import equations
from jaxbench.measure.calibrate import Calibration, Check, calibrate
from jaxbench.measure.host import environment
from jaxbench.measure.memory import memory_fault
from jaxbench.measure.metrics import metric
from jaxbench.measure.record import append_record, make_record
from jaxbench.measure.statistics import median
from jaxbench.measure.timing import Timed, run_steps
from jaxbench.primitives import compute_p
from jaxbench.program import Traced, trace
from jaxbench.readings.build import Executable, compile_step, make_buffers, make_mesh
from jaxbench.readings.compiled import compare
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.hlo import collectives
from jaxbench.readings.plan import Plan, build_program, plan_experiment, plan_traced
from jaxbench.readings.values import check_all_values, check_seen

CHECKED_LENGTHS = 2  # computes whose achieved time is verified, those that make up most of a step


@dataclass
class Run:
    """One experiment on its way: what is known so far, for the record."""

    experiment: Experiment
    plan: Plan
    mesh: Mesh
    timed: Timed = field(default_factory=Timed)
    executable: Executable | None = None
    checks: dict[str, Any] = field(
        default_factory=lambda: {"plan_equals_compiled": None, "values_ok": None}
    )
    calibration: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
    partial: bool = True
    failure: str | None = None


class Calibrations:
    """Calibrates a payload once for each set of devices and dtype."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Calibration] = {}

    def get(self, mesh: Mesh, payload: str, dtype: str, seed: int) -> Calibration:
        """Return the calibration, measuring it if it isn't known."""
        devices = tuple(device.id for device in mesh.devices.flat)
        key = (payload, dtype, devices)
        if key not in self._known:
            self._known[key] = calibrate(mesh, payload, dtype=dtype, seed=seed)
        return self._known[key]


def run_experiments(
    experiments: Sequence[Experiment], *, out: str, command: Sequence[str]
) -> list[dict[str, Any]]:
    """Run experiments in turn, append a record for each to `out`, and return the records.

    The backend must have been started (`jaxbench.launch.start`) with enough devices. All memory
    faults are told (InputError) before anything is run. A run whose checks fail is recorded as
    `partial` with what was wrong among its warnings, and the others go on.
    """
    devices = jax.devices()
    platform = devices[0].platform
    runs = [Run(e, plan_experiment(e, platform), make_mesh(e, devices)) for e in experiments]
    faults = [memory_fault(_needed_bytes(r), _devices(r), r.experiment.describe()) for r in runs]
    if told := [fault for fault in faults if fault]:
        raise InputError(told)
    calibrations = Calibrations()
    records = []
    for run in runs:
        _say(f"{run.experiment.describe()} ...")
        try:
            _execute(run, calibrations)
        except RunError as error:
            run.failure = str(error)
        finally:
            record = _record(run, command)
            records.append(record)
            if jax.process_index() == 0:
                append_record(out, record)
        if run.failure:
            _say(f"failed: {run.failure}")
    return records


def choose_payload(experiment: Experiment, mesh: Mesh) -> str:
    """Resolve the payload 'auto': matmul, but sleep where virtual devices outnumber the cores."""
    if experiment.payload != "auto":
        return experiment.payload
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    return "sleep" if on_cpu and mesh.size > len(os.sched_getaffinity(0)) else "matmul"


def _execute(run: Run, calibrations: Calibrations) -> None:
    """Check, calibrate, compile, check what was compiled, and time."""
    experiment, mesh = run.experiment, run.mesh
    run.warnings += experiment.notes
    platform = mesh.devices.flat[0].platform
    options = compiler_options(platform)

    start = time.perf_counter()
    workload, program = build_program(experiment)
    traced = trace(program, mesh)
    trace_s = time.perf_counter() - start
    run.plan = plan_traced(experiment, workload, traced, trace_s, platform)

    values = check_all_values(experiment, mesh, options)
    run.checks.update(values_ok=_everywhere(values.ok), values=values.to_json())
    if not run.checks["values_ok"]:
        raise RunError("; ".join(values.faults) or "wrong values on another process")

    calibration = calibrations.get(
        mesh, choose_payload(experiment, mesh), experiment.dtype, experiment.seed
    )
    lengths = [] if calibration.name == "none" else _lengths(traced)
    checks = [calibration.check(seconds) for seconds in lengths]
    run.calibration = calibration.to_dict(checks)
    run.warnings += _calibration_warnings(calibration, checks, run.calibration)

    executable = compile_step(traced, mesh, lambda s, label: calibration.payload(s), options)
    run.executable = executable
    comparison = compare(run.plan.sites, collectives(executable.text, mesh.size))
    run.checks.update(plan_equals_compiled=comparison.equal, compiled=comparison.to_json())
    if not comparison.equal:
        raise RunError(f"{comparison}{_remedy(platform, experiment)}")

    def look(seen: jax.Array) -> None:
        found = check_seen(traced, mesh, seen)
        run.checks.update(values_ok=_everywhere(found.ok), measured_values=found.to_json())
        if not run.checks["values_ok"]:
            raise RunError("; ".join(found.faults) or "wrong values on another process")

    run_steps(
        executable.compiled,
        make_buffers(program, mesh),
        warmup=experiment.warmup,
        steps=experiment.steps,
        timed=run.timed,
        after_first=look,
    )
    run.partial = False


def _record(run: Run, command: Sequence[str]) -> dict[str, Any]:
    """Return the record of a run, whole or not."""
    experiment, executable, timed = run.experiment, run.executable, run.timed
    warnings = run.warnings + ([f"failed: {run.failure}"] if run.failure else [])
    return make_record(
        command=list(command),
        seed=experiment.seed,
        scales={"time_scale": experiment.time_scale, "size_scale": experiment.size_scale},
        experiment=experiment.to_dict(),
        environment=environment(_devices(run)),
        plan=run.plan.to_json(),
        checks=run.checks,
        calibration=run.calibration,
        timing={
            "trace_s": run.plan.trace_s,
            "lower_s": executable.lower_s if executable else None,
            "compile_s": executable.compile_s if executable else None,
            "first_call_s": timed.first_call_s,
        },
        samples={"full": [[seconds] for seconds in timed.samples_s]},
        device_ready_s={"full": timed.ready_s},
        metrics=_metrics(run),
        warnings=warnings,
        partial=run.partial,
    )


def _metrics(run: Run) -> dict[str, Any]:
    """Return the metrics of a run from its samples; null where there are none."""
    idle = run.calibration is not None and run.calibration["payload"] == "none"
    step, compute_s = median(run.timed.samples_s), 0.0 if idle else float(run.plan.compute_s.max())
    batch, n = run.plan.workload.global_batch, step.n

    def derived(name: str, of: Any) -> dict[str, Any]:
        low, high = sorted((of(step.ci_low), of(step.ci_high)), key=lambda v: (v is None, v or 0))
        return metric(name, of(step.value), ci_low=low, ci_high=high, n=n)

    return {
        "step_s": derived("step_s", lambda s: s),
        "compute_s": metric("compute_s", compute_s),
        "exposed_s": derived("exposed_s", lambda s: None if s is None else s - compute_s),
        "throughput": derived("throughput", lambda s: None if s is None else batch / s),
    }


def _lengths(traced: Traced) -> list[float]:
    """Return the lengths of compute that make up most of the program, longest share first."""
    shares: dict[float, float] = {}
    for eqn in equations(traced.closed.jaxpr):
        if eqn.primitive is compute_p:
            seconds = eqn.params["seconds"]
            shares[seconds] = shares.get(seconds, 0.0) + seconds
    return sorted(shares, key=lambda s: -shares[s])[:CHECKED_LENGTHS]


def _calibration_warnings(
    calibration: Calibration, checks: Iterable[Check], record: dict[str, Any]
) -> list[str]:
    warnings = calibration.warnings(checks)
    if record.get("implementation") == "callback":
        warnings.append(
            f"sleeping by callback, not natively, which is less exact: {record['reason']}"
        )
    return warnings


def _remedy(platform: str, experiment: Experiment) -> str:
    if platform == "tpu" and experiment.padding != "tpu":
        return "; TPUs keep a reduce-scatter only of parts that fill their tiles: --padding=tpu"
    return ""


def _everywhere(ok: bool) -> bool:
    """Return whether `ok` holds on every process."""
    if jax.process_count() == 1:
        return ok
    import numpy as np
    from jax.experimental import multihost_utils

    return bool(np.asarray(multihost_utils.process_allgather(np.array([ok]))).all())


def _devices(run: Run) -> list[Any]:
    return list(run.mesh.devices.flat)


def _needed_bytes(run: Run) -> int:
    """Return what a device needs; on CPU, collectives of narrower types are widened to f32."""
    memory, widened = run.plan.memory, 1
    if _devices(run)[0].platform == "cpu":
        widened = 4 // min(find_dtype(run.experiment.dtype), find_dtype(run.experiment.grad_dtype))
    return memory.buffer_bytes + widened * memory.temporary_bytes


def _say(line: str) -> None:
    if jax.process_index() == 0:
        print(line, file=sys.stderr, flush=True)
