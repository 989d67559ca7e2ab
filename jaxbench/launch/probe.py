"""What JAX can do here, found out in a process of its own: a broken backend may hang or abort.

The child prints a JSON line per stage, so that the parent knows how far it came.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

CODE = "import sys; from jaxbench.launch.probe import main; main(int(sys.argv[1]))"
STAGES = ("import", "backend", "psum", "native")


class Probe(NamedTuple):
    """What a child found, by stage, and why it went no further ('' if it came to its end)."""

    stages: dict[str, dict[str, Any]]
    failure: str

    @property
    def failed_stage(self) -> str | None:
        """The stage in which the child ended or was ended; None if it came through."""
        return next((s for s in STAGES if s not in self.stages), None) if self.failure else None


class Running(NamedTuple):
    """A child at work, and the files that it writes to."""

    process: subprocess.Popen[bytes]
    output: Any
    errors: Any


def start_probe(env: Mapping[str, str], virtual_devices: int = 0) -> Running:
    """Start a child in this environment, with as many virtual CPU devices if any are asked for."""
    output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, str(virtual_devices)],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,  # with all that it starts it can be ended as one
    )
    return Running(process, output, errors)


def finish_probe(running: Running, deadline: float) -> Probe:
    """Wait for a child until `deadline` (of time.monotonic), end it then, and return its finds."""
    process, limit = running.process, max(0.0, deadline - time.monotonic())
    failure = ""
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        failure = "it did not come to an end in time"
    stop_probe(running)
    stages = _read(running.output)
    error = stages.pop("error", None)
    if error:
        failure = str(error["error"])
    elif not failure and process.returncode:
        failure = f"{_ending(process.returncode)}: {_last_words(running.errors)}"
    running.output.close()
    running.errors.close()
    return Probe(stages, failure)


def stop_probe(running: Running) -> None:
    """End a child, with all that it started; nothing if it has ended."""
    if running.process.poll() is None:
        os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()


def main(virtual_devices: int) -> None:
    """Be the child."""
    try:
        _tell("import", _import())
        _tell("backend", _backend(virtual_devices))
        _tell("psum", _psum())
        _tell("native", _native() if virtual_devices else {})
    except Exception as error:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        _tell("error", {"error": f"{type(error).__name__}: {first}"})


def _import() -> dict[str, Any]:
    import jax

    return {"version": jax.__version__, "x64": jax.config.values["jax_enable_x64"]}


def _backend(virtual_devices: int) -> dict[str, Any]:
    import jax

    if virtual_devices:
        jax.config.update("jax_num_cpu_devices", virtual_devices)
    devices = jax.local_devices()
    return {
        "platform": jax.default_backend(),
        "devices": len(devices),
        "kinds": sorted({device.device_kind for device in devices}),
    }


def _psum() -> dict[str, Any]:
    """Add a number per device over all of them; every device must hold the sum."""
    import jax
    import numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    devices = jax.local_devices()
    count = len(devices)
    mesh = jax.make_mesh((count,), ("all",), axis_types=(AxisType.Auto,), devices=devices)
    spec = PartitionSpec("all")
    add = jax.shard_map(lambda x: jax.lax.psum(x, "all"), mesh=mesh, in_specs=spec, out_specs=spec)
    numbers = jax.device_put(np.arange(1, count + 1, dtype=np.float32), NamedSharding(mesh, spec))
    shards = jax.jit(add)(numbers).addressable_shards
    held = {int(shard.device.id): float(np.asarray(shard.data)[0]) for shard in shards}
    wanted = count * (count + 1) / 2
    return {"wanted": wanted, "wrong": {d: value for d, value in held.items() if value != wanted}}


def _native() -> dict[str, Any]:
    """Build or load the native sleep handler, and let it sleep once."""
    from jaxbench.data import cache_folder
    from jaxbench.payload import native

    try:
        compiler, missing = " ".join(native.find_compiler()), ""
    except Exception as error:  # its own, which says what is missing
        compiler, missing = "", str(error)
    handler = native.load()
    return {
        "compiler": compiler,
        "missing": missing,
        "available": handler.available,
        "reason": handler.reason,
        "cache": str(cache_folder()),
    }


def _tell(stage: str, found: Mapping[str, Any]) -> None:
    print(json.dumps({"stage": stage, **found}), flush=True)


def _read(output: Any) -> dict[str, dict[str, Any]]:
    """Return the finds by stage; libraries may have printed lines of their own between them."""
    output.seek(0)
    stages = {}
    for line in output.read().decode(errors="replace").splitlines():
        try:
            found = json.loads(line)
            stages[found.pop("stage")] = found
        except (ValueError, AttributeError, KeyError, TypeError):
            continue
    return stages


def _ending(code: int) -> str:
    try:
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    except ValueError:
        return f"killed by signal {-code}"


def _last_words(errors: Any) -> str:
    """Return the line of stderr that says most: XLA's fatal one, else the last."""
    errors.seek(0)
    lines = [
        line.strip()
        for line in errors.read().decode(errors="replace").splitlines()
        if line.strip() and not line.startswith(("    @", "***", "WARNING: All log messages"))
    ]
    fatal = [line for line in lines if line.startswith("F") or "Error" in line]
    said = (fatal or lines or ["it said nothing"])[-1]
    return re.sub(r"^[A-Z]\d{4} \S+ +\d+ \S+\] ", "", said)  # time and place of a log line
