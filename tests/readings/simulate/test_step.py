"""The simulated step against closed forms, and what must follow from a change of the costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from jaxbench.errors import RunError
from jaxbench.primitives import compute, tie
from jaxbench.program import Traced, abstract_mesh, trace
from jaxbench.readings.counting import Counting
from jaxbench.readings.plan import build_program
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Semantics, simulate
from tests.cases import CASES, case, experiment
from tests.simple_costs import ByKind, TwoTiers

ALL_SEMANTICS = [
    Semantics(streams, permute)
    for streams in ("axis", "one", "unlimited")
    for permute in ("pair", "clique")
]
AXIS = Semantics("axis", "pair")
FREE = ByKind()
F, G = 0.020, 0.040  # of tests.cases


def traced_flags(**flags: Any) -> tuple[Traced, Ranks]:
    e = experiment(**flags)
    return trace(build_program(e)[1], abstract_mesh(e.mesh)), Ranks(e.mesh)


def traced_case(name: str) -> tuple[Traced, Ranks]:
    e = case(name)
    return trace(build_program(e)[1], abstract_mesh(e.mesh)), Ranks(e.mesh)


def mapped(body: Callable[..., Any], *axes: tuple[str, int], inputs: int = 1) -> tuple[Any, Ranks]:
    """Trace a shard_map of `body` over f32[4]s of each rank."""
    mesh = abstract_mesh(axes)
    spec = PartitionSpec(tuple(name for name, _ in axes))
    step = jax.shard_map(
        body, mesh=mesh, in_specs=(spec,) * inputs, out_specs=spec, check_vma=False
    )
    argument = jax.ShapeDtypeStruct((4 * mesh.size,), jnp.float32)
    return jax.jit(step).trace(*[argument] * inputs).jaxpr, Ranks(axes)


def work(value: jax.Array, seconds: float) -> jax.Array:
    """Compute without a token: `value`, later."""
    return compute(value, seconds, "work")


# --- closed forms ---


@pytest.mark.parametrize("semantics", ALL_SEMANTICS, ids=str)
@pytest.mark.parametrize(
    ("schedule", "chunks", "p"),
    [
        ("gpipe", 1, 2),
        ("gpipe", 1, 4),
        ("1f1b", 1, 2),
        ("1f1b", 1, 4),
        ("interleaved", 2, 2),
        ("interleaved", 2, 4),
        ("interleaved", 4, 2),
    ],
)
@pytest.mark.parametrize("m", [4, 16])
def test_a_free_network_leaves_the_bubble(
    semantics: Semantics, schedule: str, chunks: int, p: int, m: int
) -> None:
    """(M + p - 1)(F + G)/(p M), interleaved M(F+G)/(pM) + (p - 1)(F + G)/(v p M) of compute."""
    traced, ranks = traced_flags(
        strategy="dp_pp",
        mesh=f"data=2,pipeline={p}",
        microbatches=m,
        schedule=schedule,
        chunks=chunks,
    )
    found = simulate(traced.closed, ranks, FREE, semantics)
    slot = (F + G) / (p * m)
    assert found.step_s == pytest.approx(m * slot + (p - 1) * slot / chunks, rel=1e-12)
    assert found.compute_s == pytest.approx(np.full(2 * p, m * slot), rel=1e-12)
    assert found.blocked_s == pytest.approx(np.full(2 * p, (p - 1) * slot / chunks), rel=1e-9)


@pytest.mark.parametrize("semantics", ALL_SEMANTICS, ids=str)
@pytest.mark.parametrize("strategy", ["dp_pp_tp", "dp_pp_ep"])
def test_the_bubble_doesn_t_depend_on_what_is_inside_a_stage(
    strategy: str, semantics: Semantics
) -> None:
    axis = "tensor" if strategy == "dp_pp_tp" else "expert"
    traced, ranks = traced_flags(
        strategy=strategy, mesh=f"data=2,pipeline=4,{axis}=2", microbatches=8
    )
    share = 2 if axis == "tensor" else 1
    found = simulate(traced.closed, ranks, FREE, semantics)
    assert found.step_s == pytest.approx((F + G) / share / 4 * (1 + 3 / 8), rel=1e-12)


@pytest.mark.parametrize("semantics", ALL_SEMANTICS, ids=str)
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_one_collective_takes_what_the_formula_says(kind: str, semantics: Semantics) -> None:
    bodies = {
        "all_reduce": lambda x: lax.psum(x, "tensor"),
        "all_gather": lambda x: lax.all_gather(x, "tensor", tiled=True)[:4],
        "reduce_scatter": lambda x: lax.psum_scatter(x, "tensor", tiled=True).repeat(4),
        "all_to_all": lambda x: lax.all_to_all(x, "tensor", 0, 0, tiled=True),
    }
    closed, ranks = mapped(bodies[kind], ("data", 3), ("tensor", 4))
    nbytes = 64 if kind == "all_gather" else 16
    costs = TwoTiers(latency_s=1e-6, Bps=1e6)
    found = simulate(closed, ranks, costs, semantics)
    assert found.end_s == pytest.approx(np.full(12, costs.seconds(kind, nbytes, 4, 1.0)[0]))
    (use,) = found.uses
    assert (use.kind, use.axes, use.group_size, use.groups) == (kind, ("tensor",), 4, 3)
    assert (use.nbytes, use.count, use.dtype) == (nbytes, 1, "float32")
    assert use.seconds == pytest.approx(use.cost.seconds) == found.step_s
    assert use.bound == "node"


def test_groups_that_cross_nodes_take_longer() -> None:
    closed, ranks = mapped(lambda x: lax.psum(x, "tensor"), ("data", 2), ("tensor", 6))
    costs = TwoTiers(per_node=6)
    assert len(set(simulate(closed, ranks, costs, AXIS).end_s)) == 1
    costs = TwoTiers(per_node=8)  # ranks 0-7 and 8-11: the second group crosses
    end = simulate(closed, ranks, costs, AXIS).end_s
    assert end[:6] == pytest.approx(np.full(6, costs.seconds("all_reduce", 16, 6, 1.0)[0]))
    assert end[6:] == pytest.approx(np.full(6, costs.seconds("all_reduce", 16, 6, 3.0)[0]))


def test_a_collective_waits_for_its_last_member_only() -> None:
    def body(x: jax.Array) -> jax.Array:
        late = lax.axis_index("data") * 3 + lax.axis_index("tensor")
        x = lax.switch(late, [lambda v, s=s: work(v, 0.1 * (1 + s)) for s in range(6)], x)
        return lax.psum(x, "tensor")

    closed, ranks = mapped(body, ("data", 2), ("tensor", 3))
    found = simulate(closed, ranks, ByKind({"all_reduce": 1.0}), AXIS)
    assert found.end_s == pytest.approx([1.3] * 3 + [1.6] * 3)
    assert found.compute_s == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert found.blocked_s == pytest.approx(1.6 - found.compute_s)


# --- streams ---


def test_compute_is_a_resource_without_any_token() -> None:
    closed, ranks = mapped(lambda x, y: work(x, 1.0) + work(y, 2.0), ("data", 2), inputs=2)
    found = simulate(closed, ranks, FREE, Semantics("unlimited"))
    assert found.end_s == pytest.approx([3.0, 3.0])
    assert found.compute_by_label == {"work": pytest.approx(3.0)}


@pytest.mark.parametrize(
    ("streams", "same", "other"), [("axis", 4.0, 2.0), ("one", 4.0, 4.0), ("unlimited", 2.0, 2.0)]
)
def test_streams_say_what_queues(streams: Any, same: float, other: float) -> None:
    costs = ByKind({"all_reduce": 2.0})
    for second, wanted in (("data", same), ("tensor", other)):
        closed, ranks = mapped(
            lambda x, y, second=second: lax.psum(x, "data") + lax.psum(y, second),
            ("data", 2),
            ("tensor", 2),
            inputs=2,
        )
        assert simulate(closed, ranks, costs, Semantics(streams)).step_s == pytest.approx(wanted)
    both, ranks = mapped(
        lambda x, y: lax.psum(x, ("data", "tensor")) + lax.psum(y, "tensor"),
        ("data", 2),
        ("tensor", 2),
        inputs=2,
    )
    wanted = 2.0 if streams == "unlimited" else 4.0  # a stream of each of its axes is taken
    assert simulate(both, ranks, costs, Semantics(streams)).step_s == pytest.approx(wanted)


def test_a_queue_keeps_the_order_of_the_program() -> None:
    """The first in the text is ready last: with one stream the second waits for it."""

    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        slow = lax.psum(work(x, 10.0), "data")
        return slow + lax.psum(y, "tensor")

    closed, ranks = mapped(body, ("data", 2), ("tensor", 2), inputs=2)
    costs = ByKind({"all_reduce": 1.0})
    assert simulate(closed, ranks, costs, Semantics("axis")).step_s == pytest.approx(11.0)
    assert simulate(closed, ranks, costs, Semantics("one")).step_s == pytest.approx(12.0)


def test_communication_overlaps_compute_that_doesn_t_need_it() -> None:
    def free(x: jax.Array, y: jax.Array) -> jax.Array:
        return lax.psum(x, "data") + work(y, 3.0)

    def bound(x: jax.Array, y: jax.Array) -> jax.Array:
        return work(lax.psum(x, "data") + y, 3.0)

    costs = ByKind({"all_reduce": 2.0})
    for body, wanted in ((free, 3.0), (bound, 5.0)):
        closed, ranks = mapped(body, ("data", 2), inputs=2)
        found = simulate(closed, ranks, costs, AXIS)
        assert found.step_s == pytest.approx(wanted)
        assert found.blocked_s == pytest.approx(np.full(2, wanted - 3.0))


# --- permutes ---


def delayed_hop(*pairs: tuple[int, int]) -> tuple[Any, Ranks]:
    """A hop over `stage` on 2 x 4 ranks where rank r is ready at r seconds, then 1 s of work."""

    def body(x: jax.Array) -> jax.Array:
        rank = lax.axis_index("data") * 4 + lax.axis_index("stage")
        late = [lambda v, s=s: work(v, float(s)) if s else v for s in range(8)]
        return lax.ppermute(lax.switch(rank, late, x), "stage", pairs)

    return mapped(body, ("data", 2), ("stage", 4))


def test_a_message_needs_its_sender_and_what_receives_nothing_waits_for_nothing() -> None:
    closed, ranks = delayed_hop((3, 0), (0, 1))
    found = simulate(closed, ranks, ByKind({"permute": 0.25}), AXIS)
    # 0 gets what 3 sends at 3; 1 gets what 0 sends at 0, long before it is done itself.
    assert found.end_s == pytest.approx([3.25, 1, 2, 3.25, 7.25, 5, 6, 7.25])


def test_a_clique_waits_for_all_ranks_of_the_mesh() -> None:
    closed, ranks = delayed_hop((0, 1))
    found = simulate(closed, ranks, ByKind({"permute": 0.25}), Semantics("one", "clique"))
    assert found.end_s == pytest.approx([7.25, 7.25, 7, 7, 7.25, 7.25, 7, 7])


def test_a_message_occupies_the_streams_of_both_ends() -> None:
    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        return lax.ppermute(x, "stage", [(0, 1)]) + lax.ppermute(y, "stage", [(1, 2)])

    closed, ranks = mapped(body, ("stage", 4), inputs=2)
    costs = ByKind({"permute": 1.0})
    assert simulate(closed, ranks, costs, AXIS).end_s == pytest.approx([1, 2, 2, 0])
    assert simulate(closed, ranks, costs, Semantics("unlimited")).end_s == pytest.approx(
        [1, 1, 1, 0]
    )


def test_a_ring_works_in_both_directions_at_once() -> None:
    ring = [(i, (i + 1) % 4) for i in range(4)]
    closed, ranks = mapped(lambda x: lax.ppermute(x, "stage", ring), ("stage", 4))
    costs = TwoTiers(per_node=2)
    inside, outside = (costs.seconds("permute", 16, 2, f)[0] for f in (1.0, 3.0))
    found = simulate(closed, ranks, costs, AXIS)
    assert found.end_s == pytest.approx(np.full(4, outside))  # each is at one end of a slow one
    assert inside < outside
    (use,) = found.uses
    assert use.count == 1
    assert (use.cost.seconds, use.bound) == (pytest.approx(outside), "nic")


# --- conditionals and loops ---


def test_only_ranks_that_take_a_branch_do_its_work() -> None:
    def body(x: jax.Array) -> jax.Array:
        mine = lax.axis_index("data") == 1
        y = lax.cond(mine, lambda v: lax.psum(work(v, 2.0), "tensor"), lambda v: v, x)
        return work(jnp.where(mine, x, y), 1.0)  # which is there from the start on every rank

    closed, ranks = mapped(body, ("data", 2), ("tensor", 2))
    found = simulate(closed, ranks, ByKind({"all_reduce": 5.0}), AXIS)
    assert found.compute_s == pytest.approx([1, 1, 3, 3])
    assert found.end_s == pytest.approx([1, 1, 7, 7])
    (use,) = found.uses
    assert use.executions.tolist() == [0, 0, 1, 1]


def test_a_group_divided_by_a_conditional_is_refused_by_its_ranks() -> None:
    def body(x: jax.Array) -> jax.Array:
        odd = lax.axis_index("tensor") == 1
        return lax.cond(odd, lambda v: lax.psum(v, "tensor"), lambda v: v, x)

    closed, ranks = mapped(body, ("data", 2), ("tensor", 2))
    with pytest.raises(RunError, match=r"ranks \[0, 1\] of one group decide differently"):
        simulate(closed, ranks, FREE, AXIS)


def test_a_predicate_of_data_is_refused() -> None:
    closed, ranks = mapped(
        lambda x: lax.cond(x[0] > 0, lambda v: lax.psum(v, "data"), lambda v: v, x), ("data", 2)
    )
    with pytest.raises(RunError, match="computed data"):
        simulate(closed, ranks, FREE, AXIS)


def test_a_predicate_of_data_that_leads_to_nothing_is_not_looked_at() -> None:
    def body(x: jax.Array) -> jax.Array:
        reduced = lax.psum(x, "data")
        return lax.cond(reduced[0] > 0, lambda v: v * 2, lambda v: v, reduced)

    closed, ranks = mapped(body, ("data", 2))
    assert simulate(closed, ranks, ByKind({"all_reduce": 1.0}), AXIS).step_s == 1.0


def test_a_while_loop_runs_as_often_as_each_rank_says() -> None:
    def body(x: jax.Array) -> jax.Array:
        trips = lax.axis_index("data") + 1
        _, x = lax.while_loop(
            lambda c: c[0] < trips, lambda c: (c[0] + 1, work(c[1], 1.0)), (jnp.int32(0), x)
        )
        return x

    closed, ranks = mapped(body, ("data", 3))
    assert simulate(closed, ranks, FREE, AXIS).end_s == pytest.approx([1, 2, 3])


def test_a_collective_of_a_tuple_is_one_after_the_other() -> None:
    closed, ranks = mapped(lambda x, y: sum(lax.psum((x, y), "data")), ("data", 2), inputs=2)
    found = simulate(closed, ranks, ByKind({"all_reduce": 1.0}), AXIS)
    assert found.step_s == pytest.approx(2.0)
    assert len(found.uses) == 2


# --- every strategy ---


@pytest.mark.parametrize("name", CASES)
def test_counts_and_compute_are_the_plan_s(name: str) -> None:
    traced, ranks = traced_case(name)
    counted = Counting(ranks).count(traced.closed)
    found = simulate(traced.closed, ranks, TwoTiers(), AXIS)
    executed = {use.path: use.executions for use in found.uses}
    assert executed.keys() == counted.counts.keys()
    for path, counts in counted.counts.items():
        assert np.array_equal(executed[path], counts)
    compute = sum(counted.compute_s.values(), np.zeros(ranks.count))
    assert found.compute_s == pytest.approx(compute, rel=1e-12)
    wanted = {label: seconds.max() for label, seconds in counted.compute_s.items()}
    assert found.compute_by_label == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("semantics", [AXIS, Semantics("one", "clique")], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_folded_loop_takes_what_all_its_iterations_take(name: str, semantics: Semantics) -> None:
    traced, ranks = traced_case(name)
    costs = TwoTiers(per_node=2, Bps=1e9)
    folded, walked = (
        simulate(traced.closed, ranks, costs, semantics, record=[0, ranks.count - 1], fold=fold)
        for fold in (True, False)
    )
    assert folded.end_s == pytest.approx(walked.end_s, rel=1e-12)
    assert folded.compute_s == pytest.approx(walked.compute_s, rel=1e-12)
    assert len(folded.events) == len(walked.events)
    for one, other in zip(
        sorted(folded.events, key=order), sorted(walked.events, key=order), strict=True
    ):
        assert (one.rank, one.kind, one.label, one.path) == (
            other.rank,
            other.kind,
            other.label,
            other.path,
        )
        spans = [(e.ready_s, e.start_s, e.end_s) for e in (one, other)]
        assert spans[0] == pytest.approx(spans[1], rel=1e-9, abs=1e-12)
    for one, other in zip(folded.uses, walked.uses, strict=True):
        assert dataclasses.astuple(one)[:10] == dataclasses.astuple(other)[:10]
        assert one.seconds == pytest.approx(other.seconds, rel=1e-12)


def order(event: Any) -> tuple[Any, ...]:
    return event.rank, event.path, round(event.end_s, 9)


def test_a_constant_that_decides_the_first_iteration_only_is_no_shift() -> None:
    """The first one waits 10 s for what is outside of the loop, the others for nothing."""

    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        slow = lax.psum(y, "data")
        return lax.fori_loop(0, 8, lambda _, v: work(tie(v, slow), 1.0), x)

    closed, ranks = mapped(body, ("data", 2), inputs=2)
    found = simulate(closed, ranks, ByKind({"all_reduce": 10.0}), AXIS)
    assert found.step_s == pytest.approx(18.0)


def test_a_stream_that_is_busy_at_first_is_no_shift() -> None:
    """The loop's collectives queue behind one of 10 s; from then on each turn takes 2 s."""

    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        y = lax.all_gather(y, "data", tiled=True)
        x = lax.fori_loop(0, 8, lambda _, v: lax.psum(work(v, 1.0), "data"), x)
        return x + y[:4]

    closed, ranks = mapped(body, ("data", 2), inputs=2)
    costs = ByKind({"all_gather": 10.0, "all_reduce": 1.0})
    assert simulate(closed, ranks, costs, AXIS).step_s == pytest.approx(10.0 + 1.0 + 7 * 2.0)


@pytest.mark.parametrize(
    ("backlog", "each", "turns", "step"),
    [
        (0.0, 3.0, 8, 1.0 + 8 * 3.0),  # falls behind for ever
        (10.0, 0.5, 8, 10.0 + 8 * 0.5),  # hasn't caught up at the end
        (10.0, 0.5, 40, 40.5),  # has caught up after 20 turns
    ],
)
@pytest.mark.parametrize("fold", [True, False])
def test_a_stream_that_no_turn_waits_for_must_move_as_the_turns_do(
    backlog: float, each: float, turns: int, step: float, fold: bool
) -> None:
    """What is carried moves by 1 s from the first turn on, its collectives at their own pace."""

    def body(x: jax.Array, y: jax.Array) -> jax.Array:
        def turn(carry: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            carry = work(carry, 1.0)
            return carry, lax.psum(carry, "data")

        y = lax.all_gather(y, "data", tiled=True)
        x, sums = lax.scan(turn, x, None, length=turns)
        return x + y[:4] + sums[0]

    closed, ranks = mapped(body, ("data", 2), inputs=2)
    costs = ByKind({"all_gather": backlog, "all_reduce": each})
    assert simulate(closed, ranks, costs, AXIS, fold=fold).step_s == pytest.approx(step)


def test_what_a_loop_scans_over_steers_it_or_is_waited_for() -> None:
    def steered(x: jax.Array) -> jax.Array:
        def turn(carry: jax.Array, index: jax.Array) -> tuple[jax.Array, None]:
            return lax.cond(index % 3 == 0, lambda v: work(v, 1.0), lambda v: v, carry), None

        return lax.scan(turn, x, jnp.arange(8))[0]

    closed, ranks = mapped(steered, ("data", 2))
    assert simulate(closed, ranks, FREE, AXIS).step_s == pytest.approx(3.0)

    def late(x: jax.Array, y: jax.Array) -> jax.Array:
        rows = lax.psum(y, "data")
        return lax.scan(lambda v, row: (work(tie(v, row), 1.0), None), x, rows)[0]

    closed, ranks = mapped(late, ("data", 2), inputs=2)
    costs = ByKind({"all_reduce": 10.0})
    assert simulate(closed, ranks, costs, AXIS).step_s == pytest.approx(14.0)


@pytest.mark.parametrize("reverse", [False, True])
def test_what_a_loop_stacks_is_there_with_its_last_part(reverse: bool) -> None:
    def body(x: jax.Array) -> jax.Array:
        def turn(carry: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            done = work(carry, 1.0)
            return done, done[0]

        _, parts = lax.scan(turn, x, None, length=4, reverse=reverse)
        return lax.psum(parts, "data")

    closed, ranks = mapped(body, ("data", 2))
    for fold in (True, False):
        found = simulate(closed, ranks, ByKind({"all_reduce": 0.5}), AXIS, fold=fold)
        assert found.step_s == pytest.approx(4.5)


def test_whole_numbers_that_a_loop_stacks_steer_what_follows() -> None:
    def body(x: jax.Array) -> jax.Array:
        def turn(carry: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
            return carry, index * 2

        x, doubled = lax.scan(turn, x, jnp.arange(4))
        return lax.cond(doubled[3] == 6, lambda v: work(v, 1.0), lambda v: work(v, 5.0), x)

    closed, ranks = mapped(body, ("data", 2))
    assert simulate(closed, ranks, FREE, AXIS).step_s == pytest.approx(1.0)
