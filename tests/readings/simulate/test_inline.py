"""What can start at the same instant on a device whose own thread carries out collectives."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest
from jax import lax

from jaxbench.primitives import tie
from jaxbench.readings.simulate import Semantics, simulate
from tests.readings.simulate.test_step import mapped, traced_case, work
from tests.simple_costs import ByKind

INLINE = Semantics("one", "clique", inline=True)
STREAMS = Semantics("one", "clique")
COSTS = ByKind({"all_reduce": 2.0, "permute": 2.0})


def _step(body: Callable[..., jax.Array], semantics: Semantics, inputs: int = 2) -> float:
    closed, ranks = mapped(body, ("data", 2), inputs=inputs)
    return simulate(closed, ranks, COSTS, semantics).step_s


def _collective_first(x: jax.Array, y: jax.Array) -> jax.Array:
    done = work(x, 1.0)
    reduced = lax.psum(tie(y, done), "data")
    return reduced + work(tie(done, done), 3.0)


def _permute_first(x: jax.Array, y: jax.Array) -> jax.Array:
    done = work(x, 1.0)
    sent = lax.ppermute(tie(y, done), "data", [(0, 1), (1, 0)])
    return sent + work(tie(done, done), 3.0)


@pytest.mark.parametrize("body", [_collective_first, _permute_first])
def test_compute_waits_for_a_collective_that_is_first_at_the_same_instant(
    body: Callable[..., jax.Array],
) -> None:
    assert _step(body, STREAMS) == pytest.approx(4.0)
    assert _step(body, INLINE) == pytest.approx(6.0)


def test_compute_that_needs_no_tie_is_ahead_of_a_collective_that_does() -> None:
    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        done = work(x, 1.0)
        reduced = lax.psum(tie(y, done), "data")
        return reduced + work(done, 3.0)

    assert _step(body, INLINE) == pytest.approx(4.0)


def test_compute_is_ahead_of_a_collective_behind_it_in_the_program() -> None:
    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        done = work(x, 1.0)
        worked = work(tie(done, done), 3.0)
        return worked + lax.psum(tie(y, done), "data")

    assert _step(body, INLINE) == pytest.approx(4.0)


def test_what_can_start_during_a_collective_finds_another_thread() -> None:
    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        first = work(x, 1.0)
        second = work(first, 1.0)
        reduced = lax.psum(tie(y, first), "data")  # 1 to 3
        return reduced + work(tie(second, second), 4.0)  # 2 to 6

    assert _step(body, INLINE) == pytest.approx(6.0)


def test_a_rank_waits_from_when_it_enters_a_collective() -> None:
    """Rank 0 is there at 1 and rank 1 at 2, so both are held until 4."""

    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        first = work(x, 1.0)
        second = lax.axis_index("data") == 1
        done = lax.cond(second, lambda v: work(v, 1.0), lambda v: v, first)
        return lax.psum(tie(y, done), "data") + work(tie(done, done), 3.0)

    closed, ranks = mapped(body, ("data", 2), inputs=2)
    assert simulate(closed, ranks, COSTS, INLINE).end_s == pytest.approx([7.0, 7.0])


def test_a_queue_of_collectives_at_one_instant_is_waited_for_as_a_whole() -> None:
    def body(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
        done = work(x, 1.0)
        reduced = lax.psum(tie(y, done), "data") + lax.psum(tie(z, done), "data")  # 1 to 3 to 5
        return reduced + work(tie(done, done), 3.0)

    assert _step(body, INLINE, inputs=3) == pytest.approx(8.0)


def test_buckets_overlap_and_gathered_units_do_not() -> None:
    """As measured on XLA's CPU runtime: dp hides its all-reduces, fsdp not its gathers."""
    costs = ByKind({"all_reduce": 0.004, "all_gather": 0.004, "reduce_scatter": 0.004})

    def lost(name: str) -> float:
        traced, ranks = traced_case(name)
        inline, streams = (
            simulate(traced.closed, ranks, costs, s).step_s for s in (INLINE, STREAMS)
        )
        return inline - streams

    assert lost("dp-8") == pytest.approx(0.0, abs=1e-6)
    assert lost("fsdp-1x6") > 0.004


@pytest.mark.parametrize("name", ["pp-2x4", "tp-2x2x2"])
def test_every_iteration_of_a_loop_is_walked(name: str) -> None:
    traced, ranks = traced_case(name)
    folded, walked = (
        simulate(traced.closed, ranks, COSTS, INLINE, fold=fold).step_s for fold in (True, False)
    )
    assert folded == walked
