"""The same quantity measured in two ways, in turns: the all-reduce of a step, and by itself."""

from __future__ import annotations

import statistics

import jax
import pytest

from jaxbench.measure.calibrate import calibrate
from jaxbench.measure.collectives.bench import Bench
from jaxbench.measure.collectives.cells import Cell
from jaxbench.measure.timing import time_step
from jaxbench.payload.interface import Payload
from jaxbench.program import trace
from jaxbench.readings.build import compile_step, make_buffers
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.plan import build_program
from jaxbench.readings.variants import payloads, variant
from tests.cases import cpu_mesh, experiment

# Another process can disturb a measurement; what is wrong stays wrong.
pytestmark = [pytest.mark.timed, pytest.mark.flaky(reruns=2)]

ROUNDS = 40


def test_the_transfer_of_one_bucket_is_the_all_reduce_by_itself() -> None:
    e = experiment(strategy="dp", mesh="data=4", buckets=1, forward_s="0.005", backward_s="0.01")
    mesh = cpu_mesh(e)
    program = build_program(e)[1]
    traced = trace(program, mesh)
    calibration = calibrate(mesh, "sleep", dtype="float32")

    def choose(seconds: float, label: str) -> Payload:
        return calibration.payload(seconds)

    steps = {
        name: compile_step(
            variant(traced, name), mesh, payloads(name, choose), compiler_options("cpu")
        ).compiled
        for name in ("full", "sync_only")
    }
    bench = Bench(mesh)
    elements = program.buffers["gradient 0"].size.padded
    alone = bench.prepare(Cell("all_reduce", "data", 4, "float32", elements))
    state = make_buffers(program, mesh)
    for step in steps.values():
        for _ in range(2):
            _, _, state, _ = time_step(step, state)
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name in bench.order.sample([*steps, "alone"], 3):
            if name == "alone":
                bench.visit(alone)
            else:
                seconds, _, state, _ = time_step(steps[name], state)
                taken[name].append(seconds)
    transfer = statistics.median(taken["full"]) - statistics.median(taken["sync_only"])
    assert alone.collective.value == pytest.approx(transfer, rel=0.20)
    jax.block_until_ready(state)
