#!/usr/bin/env python3
"""How exactly payloads take the time they are asked for, on virtual CPU devices.

Prints a table and exits 1 if a target is missed. The error is |achieved / wanted - 1| of the median
over samples, whose durations are measured in turns. Every payload and device count has several
processes of its own, each with its own calibration.

A core's speed at matrix products moves by tens of percent within seconds where a virtual machine
shares it with others, and no count of products fixed beforehand can follow that. So for `matmul` a
long compute is measured in the same rounds, and the error is that of the short one against the
speed the long one shows; the speed, relative to that during calibration, is printed beside it.

    python scripts/benchmark_payloads.py
    python scripts/benchmark_payloads.py --only=sleep
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

EFFORT = 3  # times the samples of a calibration's own check
PROCESSES = 3
LIMIT_S = 300
LONG_S = 0.100  # the compute that tells the speed of the moment


class Target(NamedTuple):
    """The largest median error allowed; None where the row is only for information."""

    payload: str
    devices: int
    wanted_s: float
    error: float | None


TARGETS = (
    Target("sleep", 8, 0.001, None),
    Target("sleep", 8, 0.005, 0.05),
    Target("sleep", 8, 0.020, 0.02),
    Target("sleep", 128, 0.005, None),
    Target("sleep", 128, 0.020, 0.10),
    Target("matmul", 2, 0.001, None),
    Target("matmul", 2, 0.010, 0.05),
)

COLUMNS = "payload  devices   wanted    achieved [quartiles] in ms   speed    error  target"


def main() -> int:
    """Measure all targets and return the exit code."""
    parser = argparse.ArgumentParser(description="Errors of the payloads on CPU.")
    parser.add_argument("--only", choices=sorted({target.payload for target in TARGETS}))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        payload, devices, seed = options.child
        print(json.dumps(measure(payload, int(devices), int(seed))))
        return 0
    print(COLUMNS)
    missed = 0
    for payload, devices in dict.fromkeys((t.payload, t.devices) for t in TARGETS):
        if options.only in (None, payload):
            parts = [measure_apart(payload, devices, seed) for seed in range(PROCESSES)]
            missed += report(payload, devices, parts)
    print("all targets met" if not missed else f"{missed} missed")
    return 1 if missed else 0


def targets_of(payload: str, devices: int) -> list[Target]:
    """Return the rows that one process measures."""
    return [t for t in TARGETS if (t.payload, t.devices) == (payload, devices)]


def measure_apart(payload: str, devices: int, seed: int) -> dict:
    """Run `measure` in a process with the environment that jaxbench gives its runs."""
    from jaxbench.launch.environment import additions

    done = subprocess.run(
        [sys.executable, __file__, "--child", payload, str(devices), str(seed)],
        env={**os.environ, **additions(os.environ), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(payload: str, devices: int, seed: int) -> dict:
    """Calibrate and take samples of every wanted duration, in turns."""
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    from jaxbench.measure.calibrate import MeshClock, calibrate

    mesh = jax.make_mesh((devices,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    start_s, busy_s, own_s = time.perf_counter(), machine_cpu_s(), time.process_time()
    calibration = calibrate(mesh, payload, dtype="float32", seed=seed)
    wanted_s = [t.wanted_s for t in targets_of(payload, devices)]
    if payload == "matmul":
        wanted_s.append(LONG_S)
    wanted = [calibration.payload(seconds) for seconds in wanted_s]
    samples = MeshClock(mesh, seed=seed, effort=EFFORT).samples(wanted)
    speeds = [LONG_S / s for s in samples.pop()] if payload == "matmul" else [1.0] * len(samples[0])
    others_s = machine_cpu_s() - busy_s - (time.process_time() - own_s)
    others = max(0.0, others_s / (time.perf_counter() - start_s))
    found = {"samples": samples, "speeds": speeds, "others": others}
    return {"calibration": calibration.to_dict(), **found}


def machine_cpu_s() -> float:
    """Return the processor seconds that all processes of the machine have used (Linux)."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    user, nice, system, _idle, _iowait, *interrupts = ticks[:8]
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def report(payload: str, devices: int, parts: list[dict]) -> int:
    """Print a row per duration and return how many missed their target."""
    missed = 0
    speeds = [speed for part in parts for speed in part["speeds"]]
    for row, target in enumerate(targets_of(payload, devices)):
        samples = [sample for part in parts for sample in part["samples"][row]]
        low, middle, high = (s * 1e3 for s in statistics.quantiles(samples, n=4))
        at_speed = [s * speed / target.wanted_s for s, speed in zip(samples, speeds, strict=True)]
        error = abs(statistics.median(at_speed) - 1)
        allowed = "" if target.error is None else f"{target.error:.0%}"
        failed = target.error is not None and error > target.error
        missed += failed
        print(
            f"{payload:8} {devices:7} {target.wanted_s * 1e3:5.0f} ms "
            f"{middle:9.3f} [{low:7.3f}, {high:7.3f}]  {statistics.median(speeds):5.2f}  "
            f"{error:7.2%}  {allowed:>4}"
            f"{'  MISSED' if failed else ''}"
        )
    took_s = statistics.median(part["calibration"]["took_s"] for part in parts)
    others = max(part["others"] for part in parts)
    print(
        f"         {parts[0]['calibration']['implementation']}, calibrated in {took_s:.1f} s; "
        f"other processes used up to {others:.1f} cores"
    )
    return missed


if __name__ == "__main__":
    sys.exit(main())
