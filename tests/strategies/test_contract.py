"""What holds for every strategy, option and mesh shape of the contract table."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxbench.payload.matmul import Matmul
from jaxbench.program import trace
from jaxbench.readings.build import compile_step, make_buffers
from jaxbench.readings.compiled import compare
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.hlo import collectives
from jaxbench.readings.plan import build_program, plan_traced
from jaxbench.readings.values import check_all_values, check_seen, local_parts
from tests.cases import CASES, NEW_CPU_SCHEDULES, case, cpu_mesh

WORK = Matmul(2, 32, "float32")


@pytest.mark.parametrize("name", CASES)
def test_compiled_equals_plan_and_measured_values_are_right(name: str) -> None:
    e = case(name)
    mesh = cpu_mesh(e)
    workload, program = build_program(e)
    traced = trace(program, mesh)
    plan = plan_traced(e, workload, traced, 0.0)
    options = compiler_options("cpu")
    step = compile_step(traced, mesh, lambda seconds, label: WORK, options)

    comparison = compare(plan.sites, collectives(step.text, mesh.size))
    assert comparison.equal, str(comparison)

    state = make_buffers(program, mesh)
    for _ in range(2):  # the second step starts from what the first one left
        *state, seen = step.compiled(*state)
        found = check_seen(traced, mesh, seen)
        assert found.ok, found.faults
        assert found.expected > 0 or e.devices == 1

    if e.dtype == e.grad_dtype and e.dtype in ("float32", "bfloat16"):
        kept = step.compiled.memory_analysis().argument_size_in_bytes
        assert step.temporary_bytes is not None
        assert plan.memory.buffer_bytes == kept
        total = kept + step.temporary_bytes
        # Two cases take 16 and 25 % more than planned under the newer schedules.
        tolerance = 0.26 if NEW_CPU_SCHEDULES else 0.15
        assert plan.memory.total_bytes == pytest.approx(total, rel=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_every_value_of_every_shard_is_right(name: str) -> None:
    e = case(name)
    check = check_all_values(e, cpu_mesh(e), compiler_options("cpu"))
    assert check.ok, check.faults
    assert check.expected > 0


@pytest.mark.parametrize("name", CASES)
def test_counts_are_the_schedules(name: str) -> None:
    """The compute of a step is the model's time, split over stages, chunks and tensor ranks."""
    e = case(name)
    workload, program = build_program(e)
    plan = plan_traced(e, workload, trace(program, cpu_mesh(e)), 0.0)
    stages = [plan.compute_s[rank] for rank in range(e.devices)]
    shared = workload.p * workload.t
    total = workload.forward_s + workload.backward_s
    assert np.mean(stages) == pytest.approx(total / shared)
    for row in plan.rows:
        assert row.count >= row.useful > 0
        assert row.group_size * row.groups == e.devices


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("pp", "tp", "ep"))])
def test_each_microbatch_passes_every_stage_once_and_in_order(name: str) -> None:
    e = case(name)
    mesh = cpu_mesh(e)
    workload, program = build_program(e)
    traced = trace(program, mesh)
    step = compile_step(traced, mesh, lambda s, label: WORK, compiler_options("cpu"))
    *_, seen = step.compiled(*make_buffers(program, mesh))
    m, v, p = e.microbatches, e.chunks, workload.p
    starts = dict(zip([label for label, _ in traced.layout], _offsets(traced.layout), strict=True))
    # The n-th piece of work of a stage belongs to this microbatch (numbered from 1).
    order = [1 + n // (p * v) * p + n % p for n in range(v * m)]
    for way in ("forward", "backward"):
        begin = starts[f"{way} microbatches"]
        for _, vector in local_parts(seen, mesh):
            assert vector[begin : begin + v * m].tolist() == order


def test_buffers_differ_between_ranks() -> None:
    """Equal data on all ranks would make a wrong group or a missing member invisible."""
    e = case("tp-3x4")
    mesh = cpu_mesh(e)
    _, program = build_program(e)
    for array in make_buffers(program, mesh)[1:]:
        parts = [part for _, part in local_parts(array, mesh)]
        assert all(np.abs(part).min() > 0 for part in parts)
        assert len({part[:64].tobytes() for part in parts}) == e.devices


def _offsets(layout: tuple[tuple[str, int], ...]) -> list[int]:
    return np.cumsum([0, *(size for _, size in layout)])[:-1].tolist()


def test_results_of_a_step_feed_the_next() -> None:
    """The step's results have the shapes and shardings of its arguments, so it can be repeated."""
    e = case("pp-2x4")
    mesh = cpu_mesh(e)
    _, program = build_program(e)
    traced = trace(program, mesh)
    step = compile_step(traced, mesh, lambda s, label: WORK, compiler_options("cpu"))
    state = make_buffers(program, mesh)
    shapes = [(a.shape, a.dtype, a.sharding) for a in state]
    *after, _ = step.compiled(*state)
    assert [(a.shape, a.dtype, a.sharding) for a in after] == shapes
    assert all(a.is_deleted() for a in state), "buffers must be donated, not copied"
    jax.block_until_ready(after)
