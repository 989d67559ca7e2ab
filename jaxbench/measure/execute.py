"""The main job: build, check, calibrate, time and record experiments, one after the other."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from jaxbench.errors import RunError
from jaxbench.experiment import Experiment
from jaxbench.jaxprs import equations
from jaxbench.measure.agree import agree, digest, everywhere, odd_processes
from jaxbench.measure.calibrate import Calibration, Check, calibrate
from jaxbench.measure.machine import choose_payload
from jaxbench.measure.processes import devices_for, here
from jaxbench.measure.profile import profile_run
from jaxbench.measure.record import append_record
from jaxbench.measure.run import Run, measured_so_far, record_of
from jaxbench.measure.timing import run_rounds, warm_up
from jaxbench.payload.interface import Payload
from jaxbench.primitives import compute_p
from jaxbench.program import Traced, trace
from jaxbench.readings.build import compile_step, make_buffers, make_mesh
from jaxbench.readings.compiled import Comparison, compare
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.hlo import collectives
from jaxbench.readings.plan import build_program, plan_experiment, plan_traced
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import find_sites
from jaxbench.readings.values import check_all_values, check_seen
from jaxbench.readings.variants import VARIANTS, payloads, variant, variant_fault

PROFILED_STEPS = 3
KEEP_WAIT_S = 1.0  # for the main thread to finish writing a record

CHECKED_LENGTHS = 2  # computes whose achieved time is verified, those that make up most of a step


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

    The backend must have been started (`jaxbench.launch.start`) with enough devices, and
    `machine_faults` asked. A run that fails is recorded as `partial` with what was wrong among its
    warnings, and the others go on.
    """
    devices = jax.devices()
    platform = devices[0].platform
    runs = [
        Run(
            e,
            plan_experiment(e, platform),
            make_mesh(e, devices_for(e.devices, devices)),
            here().from_first(uuid.uuid4().hex),
        )
        for e in experiments
    ]
    calibrations = Calibrations()
    records = []
    for run in runs:
        keeper = Keeper(run, out, command)
        _say(f"{run.experiment.describe()} ...")
        with here().keeping(keeper.mine, keeper.keep):
            try:
                _execute(run, calibrations, out)
            except RunError as error:
                run.failure = str(error)
            except Exception as error:  # of JAX or the system: it costs this run only
                run.failure = f"{type(error).__name__}: {error}"
            except BaseException:
                run.failure = "interrupted"
                raise
            finally:
                if run.failure != "interrupted":
                    run.failure = here().settle(run.failure)
                    run.partial |= run.failure is not None
                records.append(keeper.record())
        if run.failure:
            _say(f"failed: {run.failure}")
    return records


class Keeper:
    """Writes the record of a run, once: at its end, or when a job of many processes is ended."""

    def __init__(self, run: Run, out: str, command: Sequence[str]):
        self.run, self.out, self.command = run, out, command
        self._writing = threading.Lock()
        self._record: dict[str, Any] | None = None

    def record(self) -> dict[str, Any]:
        """Return the record, written by process 0."""
        # Not under the lock: if the job ends while the others are waited for, `keep` needs it.
        parts = None if self.run.partial else here().to_first(self.mine())
        with self._writing:
            if self._record is None:
                self._record = record_of(self.run, self.command, parts)
                if here().index == 0:
                    append_record(self.out, self._record)
            return self._record

    def mine(self) -> dict[str, Any]:
        """Return what this process has measured so far."""
        return measured_so_far(self.run)

    def keep(self, parts: Sequence[dict[str, Any] | None], why: str) -> None:
        """Write what all processes have measured so far; None where that is not known."""
        if not self._writing.acquire(timeout=KEEP_WAIT_S):
            return  # the main thread is about to write the whole
        if self._record is None:
            self.run.failure, self.run.partial = self.run.failure or why, True
            self._record = record_of(self.run, self.command, parts)
            append_record(self.out, self._record)


def _execute(run: Run, calibrations: Calibrations, out: str) -> None:
    """Check, calibrate, compile, check what was compiled, and time."""
    experiment, mesh = run.experiment, run.mesh
    run.warnings += experiment.notes
    platform = mesh.devices.flat[0].platform
    options = compiler_options(platform)
    here().stage("compile")

    start = time.perf_counter()
    workload, program = build_program(experiment)
    traced = trace(program, mesh)
    trace_s = time.perf_counter() - start
    run.plan = plan_traced(experiment, workload, traced, trace_s, platform)
    if odd := odd_processes(digest(traced.closed) if here().count > 1 else ""):
        listed = ", ".join(map(str, odd))
        raise RunError(
            f"process {listed}: the experiment is traced to another program than on process 0; "
            "is another source code installed there?"
        )

    values = check_all_values(experiment, mesh, options)
    run.checks.update(values_ok=everywhere(values.ok), values=values.to_json())
    if not run.checks["values_ok"]:
        raise RunError("; ".join(values.faults) or "wrong values, on another process only")

    here().stage("calibration")
    calibration = calibrations.get(
        mesh,
        choose_payload(experiment.payload, experiment.devices, platform),
        experiment.dtype,
        experiment.seed,
    )
    lengths = [] if calibration.name == "none" else _lengths(traced)
    checks = [calibration.check(seconds) for seconds in lengths]
    run.calibration = calibration.to_dict(checks)
    run.warnings += _calibration_warnings(calibration, checks, run.calibration)

    def choose(seconds: float, label: str) -> Payload:
        return calibration.payload(seconds)

    here().stage("compile")
    wanted = list(VARIANTS) if experiment.decompose else ["full"]
    compared: dict[str, Comparison] = {}
    for name in wanted:
        program_of = variant(traced, name)
        built = compile_step(program_of, mesh, payloads(name, choose), options)
        sites = find_sites(program_of.closed, Ranks(experiment.mesh))
        compared[name] = compare(sites, collectives(built.text, mesh.size))
        equal = everywhere(compared[name].equal)
        run.executables[name] = built
        run.checks.update(
            plan_equals_compiled=all(c.equal for c in compared.values()),
            compiled={name: c.to_json() for name, c in compared.items()},
        )
        if not equal:
            which = "" if name == "full" else f"variant {name}: "
            what = compared[name]
            differs = "another process has compiled other collectives" if what.equal else f"{what}"
            raise RunError(f"{which}{differs}{_remedy(platform, experiment)}")
        if fault := variant_fault(name, sites):
            raise RunError(fault)

    def look(seen: jax.Array) -> None:
        found = check_seen(traced, mesh, seen)
        run.checks.update(values_ok=everywhere(found.ok), measured_values=found.to_json())
        if not run.checks["values_ok"]:
            raise RunError("; ".join(found.faults) or "wrong values, on another process only")

    programs = {name: built.compiled for name, built in run.executables.items()}
    state = make_buffers(program, mesh)
    here().stage("warm-up")
    warm_up(programs, state, rule=run.warm_up, timed=run.timed, after_first=look)
    run_rounds(
        programs,
        rule=run.stop,
        seed=agree(experiment.seed),
        timed=run.timed,
        watched=("compute_only",),
        before=_before_step,
    )
    run.clocks = here().clocks()
    if experiment.profile:
        here().stage("profile")
        folder = Path(out) / "profile" / run.id
        full = run.executables["full"]
        run.profile = profile_run(full, run.timed.state, run.plan, PROFILED_STEPS, folder)
    run.partial = False
    here().stage("gather")


def _before_step(number: int) -> None:
    """Start the step at the same moment on all processes."""
    here().stage("step", number)
    here().align()


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


def _say(line: str) -> None:
    if here().index == 0:
        print(line, file=sys.stderr, flush=True)
