"""Recording a profile of some steps, after the timed ones, and reading it.

    reading = profile_run(executable, state, plan, steps=10, folder="results/profile")

The trace stays in `folder` as the profiler writes it: `*.xplane.pb` for XProf (TensorBoard) and
`*.trace.json.gz` for Perfetto (https://ui.perfetto.dev). Recorded steps are no samples of the run;
their times are kept beside the reading, so that it shows if recording slowed them down.

On CPU a recording is repeated until it costs a step no more than it did before. What the profiler
allocates while a program runs splits the blocks of memory that temporary arrays come from, so that
new pages must be fetched: 125,000 page faults and up to eight times the time for a step of four 32
MB all-reduces on 8 ranks. The second or third time, places for all of it have been found.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from jaxbench.errors import InputError, RunError
from jaxbench.measure.agree import agree
from jaxbench.measure.processes import here
from jaxbench.measure.timing import time_step
from jaxbench.readings.build import Executable
from jaxbench.readings.plan import Plan
from jaxbench.readings.profile import read_profile
from jaxbench.readings.profile_reading import ProfileReading
from jaxbench.units import format_bytes, format_seconds

MOST_RECORDINGS = 4  # on CPU, until one is kept that didn't cost page faults
FAULT_S = 2e-6  # about what a page fault costs
FAULTS_SHARE = 0.05  # of a step that page faults may take more than before
SLOWED = 1.25  # recorded steps are that much slower before it is told

# A trace takes a minute to write and to read for each 200 MB: fewer steps then, at least one.
MOST_TRACE_BYTES = 32e6

# Threads record that an operation has ended a little after the step is done.
SETTLE_S = 0.05

# Operations are events of this level on CPU; the level above adds nothing that is read.
HOST_TRACER_LEVEL = 2

# Limits beyond which a CUDA profiler drops events; its own are 2 Mi each.
GPU_LIMITS = {
    "gpu_max_activity_api_events": 16 * 2**20,
    "gpu_max_callback_api_events": 16 * 2**20,
}


@dataclass(frozen=True)
class Recording:
    """A recorded profile: its file, each step's seconds and page faults, the state they left.

    `usual` are the same of steps that weren't recorded.
    """

    path: Path
    cost: Cost
    usual: Cost
    state: Sequence[jax.Array]

    @property
    def undisturbed(self) -> bool:
        """Whether most steps spent no more on page faults than before."""
        allowed = [
            1.25 * min(self.usual.faults) + FAULTS_SHARE * seconds / FAULT_S
            for seconds in self.cost.step_s
        ]
        more = sum(f > most for f, most in zip(self.cost.faults, allowed, strict=True))
        return more <= len(allowed) // 4

    def warnings(self, asked: int) -> list[str]:
        """Say how the recorded steps differ from the timed ones, and from the number asked for."""
        found, steps = [], len(self.cost.step_s)
        if steps < asked:
            size = format_bytes(self.path.stat().st_size / steps)
            found.append(f"profiled {steps} of {asked} steps, since each leaves {size} of trace")
        took, before = statistics.median(self.cost.step_s), max(self.usual.step_s)
        if took > SLOWED * before:
            found.append(
                f"recording slowed the profiled steps down, from {format_seconds(before)} to "
                f"{format_seconds(took)} (on CPU it records every product of a matmul payload)"
            )
        if not self.undisturbed:
            found.append(
                f"recording cost the profiled steps up to {max(self.cost.faults):,} page faults "
                f"each, where there were {min(self.usual.faults):,}"
            )
        return found


@dataclass(frozen=True)
class Cost:
    """What each of some steps took: seconds, and page faults of the process."""

    step_s: tuple[float, ...]
    faults: tuple[int, ...]


def profile_run(
    executable: Executable,
    state: Sequence[jax.Array],
    plan: Plan,
    steps: int,
    folder: str | Path,
) -> ProfileReading:
    """Record `steps` steps of a compiled step and read them; `state` is donated.

    Call it when nothing is to be timed any more and the program has warmed up. Every process
    records and reads its own devices, in a folder of its own if there are several. Errors: see
    `record_profile`, `read_profile`.
    """
    mesh = executable.traced.mesh
    assert isinstance(mesh, Mesh)
    platform = mesh.devices.flat[0].platform
    if here().count > 1:
        folder = Path(folder) / f"process_{here().index}"
    recording = record_profile(executable.compiled, state, steps, folder, platform)
    reading = read_profile(
        str(recording.path),
        text=executable.text,
        plan=plan,
        platform=platform,
        ranks=device_numbers(mesh),
        steps=len(recording.cost.step_s),
        step_s=recording.cost.step_s,
    )
    return replace(reading, warnings=(*reading.warnings, *recording.warnings(steps)))


def record_profile(
    compiled: Any,
    state: Sequence[jax.Array],
    steps: int,
    folder: str | Path,
    platform: str,
) -> Recording:
    """Run `compiled(*state)` some times with the profiler on; the results of a step feed the next.

    Fewer steps are recorded if each leaves very many events. InputError if `folder` can't be
    written; RunError if the profiler is in use or writes nothing.
    """
    if steps < 1:
        raise InputError(f"{steps} steps to profile; at least 1 is needed")
    into = _folder(folder)
    usual, state = _run(compiled, state, 2)
    recording = _record(compiled, state, 1, into, platform, usual)
    affordable = max(1, int(MOST_TRACE_BYTES / recording.path.stat().st_size))
    steps = agree(min(steps, affordable))
    more = MOST_RECORDINGS - 1 if platform == "cpu" else 1
    while more and (len(recording.cost.step_s) < steps or not agree(int(recording.undisturbed))):
        shutil.rmtree(recording.path.parent)
        recording = _record(compiled, recording.state, steps, into, platform, usual)
        more -= 1
    return recording


def _record(
    compiled: Any,
    state: Sequence[jax.Array],
    steps: int,
    folder: Path,
    platform: str,
    usual: Cost,
) -> Recording:
    """Run the steps with the profiler on."""
    before = _written(folder)
    try:
        jax.profiler.start_trace(folder, profiler_options=_options(platform))
    except RuntimeError as error:
        raise RunError(f"the profiler can't be started: {error}") from error
    try:
        cost, state = _run(compiled, state, steps)
        time.sleep(SETTLE_S)
    finally:
        jax.profiler.stop_trace()
    new = [path for path, when in _written(folder).items() if before.get(path) != when]
    if len(new) != 1:
        found = ", ".join(map(str, new)) or "none"
        raise RunError(f"the profiler was to write one *.xplane.pb in {folder}, but wrote: {found}")
    return Recording(new[0], cost, usual, state)


def _run(compiled: Any, state: Sequence[jax.Array], steps: int) -> tuple[Cost, Sequence[jax.Array]]:
    """Run steps, marked for whoever looks at the trace; return what they took and the state."""
    faults, seconds = [], []
    for number in range(steps):
        had = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        with jax.profiler.StepTraceAnnotation("step", step_num=number):
            taken, _, state, _ = time_step(compiled, state)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - had)
        seconds.append(taken)
    return Cost(tuple(seconds), tuple(faults)), state


def device_numbers(mesh: Mesh) -> dict[int, int]:
    """Return the rank of each of this process's devices by the number a profile gives it.

    A device of the host's CPU goes by its number among those of all processes.
    """

    def number(device: Any) -> int:
        local = device.local_hardware_id
        return device.id if local is None or device.platform == "cpu" else local

    return {
        number(device): rank
        for rank, device in enumerate(mesh.devices.flat)
        if device.process_index == jax.process_index()
    }


def _options(platform: str) -> jax.profiler.ProfileOptions:
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = HOST_TRACER_LEVEL
    if platform == "gpu":
        options.advanced_configuration = GPU_LIMITS
    return options


def _folder(folder: str | Path) -> Path:
    """Make the folder, so that a wrong one is told before anything is recorded."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        probe = Path(folder) / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"can't write profiles to {folder}: {error.strerror}") from None
    return Path(folder)


def _written(folder: Path) -> dict[Path, int]:
    """Return the profiles in `folder` with when each was written last."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.xplane.pb")}
