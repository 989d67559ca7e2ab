"""dp with one bucket against the all-reduce of the collectives benchmark, in one interleaved run.

Run in a process of its own with 4 devices; prints the two medians in seconds, as JSON.
"""

from __future__ import annotations

import json
import random
import statistics

import jax

from jaxbench.experiment import Experiment
from jaxbench.measure.calibrate import calibrate
from jaxbench.measure.collectives.bench import Bench
from jaxbench.measure.collectives.cells import Cell
from jaxbench.measure.timing import time_step
from jaxbench.program import trace
from jaxbench.readings.build import compile_step, make_buffers, make_mesh
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.plan import build_program
from jaxbench.readings.variants import payloads, variant

DEVICES, ROUNDS = 4, 40
FLAGS = {
    "strategy": "dp",
    "model": "tiny",
    "devices": str(DEVICES),
    "buckets": "1",
    "dtype": "float32",
    "forward_s": "0.005",
    "backward_s": "0.010",
    "size_scale": "4",
}


def main() -> None:
    """Measure full and sync_only steps and the all-reduce alone, in random order."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    experiment = Experiment.from_flags(FLAGS)
    mesh = make_mesh(experiment, jax.devices())
    _, program = build_program(experiment)
    traced = trace(program, mesh)
    calibration = calibrate(mesh, "sleep", dtype="float32")

    def compiled(name: str):
        choose = payloads(name, lambda seconds, label: calibration.payload(seconds))
        return compile_step(variant(traced, name), mesh, choose, compiler_options("cpu")).compiled

    steps = {name: compiled(name) for name in ("full", "sync_only")}
    state = make_buffers(program, mesh)
    (buffer,) = program.buffers.values()
    bench = Bench(mesh)
    cell = bench.prepare(Cell("all_reduce", "data", DEVICES, "float32", buffer.size.padded))
    assert cell.failure is None, cell.failure
    for step in (*steps.values(), *steps.values()):
        _, _, state, _ = time_step(step, state)
    exposed: list[float] = []
    for _ in range(ROUNDS):
        taken: dict[str, float] = {}
        for name in random.sample([*steps, "alone"], 3):
            if name == "alone":
                bench.visit(cell)
            else:
                taken[name], _, state, _ = time_step(steps[name], state)
        exposed.append(taken["full"] - taken["sync_only"])
    alone = statistics.median(cell.steps_s)
    print(json.dumps({"transfer_exposed_s": statistics.median(exposed), "alone_s": alone}))


if __name__ == "__main__":
    main()
