#!/usr/bin/env python3
"""What the timed loop adds to a step: jaxbench's loop against a bare one over the same program.

Both run in every round, in random order, on 8 virtual devices. Prints the difference with its
quartiles, and exits 1 if it is above the larger of 2 % and 20 us a step.

    python scripts/benchmark_timed_loop.py
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jax

jax.config.update("jax_num_cpu_devices", 8)

from jaxbench.experiment import Experiment
from jaxbench.measure.timing import time_step
from jaxbench.payload.none import NoPayload
from jaxbench.program import trace
from jaxbench.readings.build import compile_step, make_buffers, make_mesh
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.plan import build_program

SHARE, FLOOR_S = 0.02, 20e-6
ROUNDS = 1500  # the median of a difference is then known to a thirtieth of its spread or so


def main() -> int:
    """Measure a short and a longer step; return the exit code."""
    missed = [name for name in ("0.001", "1.0") if not within_target(name)]
    return 1 if missed else 0


def within_target(size_scale: str) -> bool:
    """Compare the loops on a dp step whose messages are scaled by `size_scale`."""
    flags = {"strategy": "dp", "model": "tiny", "devices": "8", "buckets": "4"}
    e = Experiment.from_flags(
        {**flags, "dtype": "float32", "forward_s": "0.01", "size_scale": size_scale}
    )
    mesh = make_mesh(e, jax.devices())
    _, program = build_program(e)
    traced = trace(program, mesh)
    step = compile_step(traced, mesh, lambda s, label: NoPayload(), compiler_options("cpu"))
    state = make_buffers(program, mesh)
    taken: dict[str, list[float]] = {"bare": [], "timed": []}
    for _ in range(ROUNDS):
        for loop in random.sample(sorted(taken), 2):
            start = time.perf_counter()
            if loop == "bare":
                *state, _ = jax.block_until_ready(step.compiled(*state))
            else:
                _, _, state, _ = time_step(step.compiled, state)
            taken[loop].append(time.perf_counter() - start)
    bare, timed = taken["bare"], taken["timed"]
    low, middle, high = statistics.quantiles([t - b for t, b in zip(timed, bare, strict=True)], n=4)
    median = statistics.median(bare)
    allowed = max(SHARE * median, FLOOR_S)
    print(
        f"bare step {median * 1e6:.0f} us, timed loop {middle * 1e6:+.1f} us "
        f"[{low * 1e6:+.1f}, {high * 1e6:+.1f}] a step; allowed {allowed * 1e6:.1f} us"
    )
    return middle <= allowed


if __name__ == "__main__":
    sys.exit(main())
