"""What must turn the checks red, done deliberately: each mutation and the check that sees it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest
from jax.interpreters import mlir

from jaxbench import primitives
from jaxbench.payload.matmul import Matmul
from jaxbench.program import trace
from jaxbench.rank import Rank
from jaxbench.readings.build import Executable, compile_step, make_buffers
from jaxbench.readings.compiled import Comparison, compare
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.hlo import collectives
from jaxbench.readings.plan import build_program, plan_traced
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import find_sites
from jaxbench.readings.values import check_all_values, check_seen
from tests.cases import NEW_CPU_SCHEDULES, case, cpu_mesh

WORK = Matmul(2, 32, "float32")


def compiled(name: str, allow: frozenset[str] = frozenset()) -> tuple[Executable, Comparison]:
    e = case(name)
    mesh = cpu_mesh(e)
    _, program = build_program(e)
    traced = trace(program, mesh)
    step = compile_step(traced, mesh, lambda s, label: WORK, compiler_options("cpu", allow=allow))
    sites = find_sites(traced.closed, Ranks(e.mesh))
    return step, compare(sites, collectives(step.text, mesh.size))


barriers_are_dropped = pytest.mark.skipif(
    NEW_CPU_SCHEDULES, reason="this jax keeps barriers on CPU: nothing to show"
)


@pytest.fixture
def barrier_ties() -> Iterator[None]:
    """On CPU, tie by `optimization_barrier` alone, as a first attempt would."""

    def lower(rule: Callable[..., jax.Array]) -> None:
        function = mlir.lower_fun(rule, multiple_results=False)
        mlir.register_lowering(primitives.tie_p, function, platform="cpu")
        jax.clear_caches()

    lower(lambda value, after: jax.lax.optimization_barrier((value, after))[0])
    yield
    lower(primitives.tie_by_element)


def test_the_all_reduce_combiner_merges_what_is_written_apart() -> None:
    _, comparison = compiled("dp-8", allow=frozenset({"cpu-all-reduce-combiner"}))
    assert not comparison.equal
    assert "combined into one" in str(comparison)


def test_ties_alone_keep_gathers_apart_even_from_cse() -> None:
    _, comparison = compiled("fsdp-2x4", allow=frozenset({"cse"}))
    assert comparison.equal, str(comparison)


@barriers_are_dropped
@pytest.mark.usefixtures("barrier_ties")
def test_a_barrier_orders_nothing_on_cpu() -> None:
    """Gathers merge with their re-gathers, and reductions lose the compute they depend on."""
    _, comparison = compiled("fsdp-2x4", allow=frozenset({"cse"}))
    assert not comparison.equal


@barriers_are_dropped
@pytest.mark.usefixtures("barrier_ties")
def test_a_barrier_lets_all_gathers_run_first() -> None:
    """Even where nothing merges, all units are gathered at once: memory shows it."""
    e = dataclasses.replace(case("fsdp-2x4"), units=16)
    mesh = cpu_mesh(e)
    workload, program = build_program(e)
    traced = trace(program, mesh)
    plan = plan_traced(e, workload, traced, 0.0)
    step = compile_step(traced, mesh, lambda s, label: WORK, compiler_options("cpu"))
    assert step.temporary_bytes is not None
    total = plan.memory.buffer_bytes + step.temporary_bytes
    assert plan.memory.total_bytes != pytest.approx(total, rel=0.15)


def test_a_dropped_collective_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that nobody looks at is removed by the compiler: here that of one bucket."""
    see = Rank.see

    def blind(self: Rank, label: str, value: jax.Array) -> None:
        if label != "gradient 3":
            see(self, label, value)

    monkeypatch.setattr(Rank, "see", blind)
    _, comparison = compiled("dp-3")
    ((key, count),) = comparison.missing
    assert (key.kind, count, comparison.extra) == ("all_reduce", 1, ())


def test_a_collective_the_plan_lacks_is_told() -> None:
    e = case("fsdp-2x4")
    mesh = cpu_mesh(e)
    traced = trace(build_program(e)[1], mesh)
    step = compile_step(traced, mesh, lambda s, label: WORK, compiler_options("cpu"))
    sites = find_sites(traced.closed, Ranks(e.mesh))
    comparison = compare(sites[1:], collectives(step.text, mesh.size))
    assert not comparison.equal and len(comparison.extra) == 1


@pytest.mark.parametrize("change", ["elements", "groups", "order", "trips", "conditional", "kind"])
def test_each_part_of_a_collective_is_compared(change: str) -> None:
    e = case("tp-2x2x2") if change in ("trips", "conditional") else case("fsdp-2x4")
    mesh = cpu_mesh(e)
    traced = trace(build_program(e)[1], mesh)
    step = compile_step(traced, mesh, lambda s, label: WORK, compiler_options("cpu"))
    sites = find_sites(traced.closed, Ranks(e.mesh))
    found = collectives(step.text, mesh.size)
    assert compare(sites, found).equal
    index = next(
        i for i, s in enumerate(sites) if s.kind in ("all_gather", "all_reduce") and s.trips
    )
    site = sites[index]
    swapped = tuple((g[1], g[0], *g[2:]) for g in site.groups)
    changed: dict[str, Any] = {
        "elements": {"elements": site.elements - 1},
        "groups": {"groups": (tuple(range(e.devices)),)},
        "order": {"groups": swapped},
        "trips": {"trips": (site.trips or 0) + 1},
        "conditional": {"conditional": not site.conditional},
        "kind": {"kind": "all_to_all"},
    }[change]
    sites[index] = dataclasses.replace(site, **changed)
    assert not compare(sites, found).equal


def test_a_permute_with_wrong_pairs_is_told() -> None:
    e = case("pp-2x4")
    mesh = cpu_mesh(e)
    traced = trace(build_program(e)[1], mesh)
    step = compile_step(traced, mesh, lambda s, label: WORK, compiler_options("cpu"))
    sites = find_sites(traced.closed, Ranks(e.mesh))
    place = next(i for i, s in enumerate(sites) if s.kind == "permute")
    turned = tuple(sorted((d, s) for s, d in sites[place].pairs))
    sites[place] = dataclasses.replace(sites[place], pairs=turned)
    assert not compare(sites, collectives(step.text, mesh.size)).equal


def test_a_wrong_sum_fails_both_value_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy that reduces over the wrong axis: same shapes, other values."""
    original = Rank.all_reduce

    def wrong(self: Rank, operand: str | jax.Array, axis: str, label: str) -> jax.Array:
        return original(self, operand, "pipeline" if axis == "data" else axis, label)

    e = case("pp-2x4")
    mesh = cpu_mesh(e)
    right = trace(build_program(e)[1], mesh)
    monkeypatch.setattr(Rank, "all_reduce", wrong)
    traced = trace(build_program(e)[1], mesh)
    step = compile_step(traced, mesh, lambda s, label: WORK, compiler_options("cpu"))
    *_, seen = step.compiled(*make_buffers(traced.program, mesh))
    assert check_seen(traced, mesh, seen).ok  # consistent with itself
    assert not check_seen(right, mesh, seen).ok  # but not what the strategy says
    assert not compare(
        find_sites(right.closed, Ranks(e.mesh)), collectives(step.text, mesh.size)
    ).equal


def test_nothing_compared_is_not_ok() -> None:
    e = case("dp-8")
    check = check_all_values(e, cpu_mesh(e), compiler_options("cpu"))
    assert check.ok and check.compared == check.expected > 0
    assert not dataclasses.replace(check, compared=0).ok
