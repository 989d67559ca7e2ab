"""Random programs: against a simulator of one page, and what must follow from other costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec

from jaxbench.primitives import compute, tie
from jaxbench.program import abstract_mesh, trace
from jaxbench.readings.plan import build_program
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Semantics, Simulation, simulate, simulate_all
from tests.cases import case
from tests.simple_costs import ByKind, TwoTiers

AXES = (("data", 3), ("tensor", 4))
RANKS = Ranks(AXES)
VALUES = 3

Op = tuple[Any, ...]

values = st.integers(0, VALUES - 1)
seconds = st.sampled_from([0.25, 1.0, 3.0, 10.0])
chains = st.permutations(range(4)).flatmap(
    lambda p: st.integers(1, 4).map(lambda n: tuple(zip(range(4), p, strict=True))[:n])
)
works = st.tuples(st.just("work"), values, seconds)
joins = st.tuples(st.just("join"), values, values)
sums = st.tuples(st.just("sum"), values, st.sampled_from(["data", "tensor"]))
looks = st.tuples(st.just("look"), values, st.sampled_from(["data", "tensor"]))
hops = st.tuples(st.just("hop"), values, chains)
tensor_sums = st.tuples(st.just("sum"), values, st.just("tensor"))
whens = st.tuples(
    st.just("when"),
    st.integers(0, 2),
    st.lists(st.one_of(works, joins, tensor_sums, hops), min_size=1, max_size=3),
)
simple = st.one_of(works, joins, sums, looks, hops, whens)
loops = st.tuples(
    st.just("loop"), st.integers(1, 9), st.lists(simple, min_size=1, max_size=4), st.booleans()
)
programs = st.lists(st.one_of(simple, loops), min_size=1, max_size=5)
semantics = st.builds(
    Semantics,
    st.sampled_from(["axis", "one", "unlimited"]),
    st.sampled_from(["pair", "clique"]),
    shared=st.booleans(),
)
tiers = st.builds(
    TwoTiers,
    latency_s=st.sampled_from([0.0, 0.1, 2.0]),
    Bps=st.sampled_from([1.0, 8.0, 1e9]),
    per_node=st.sampled_from([2, 3, 4, 8]),
    crowd=st.sampled_from([0.0, 0.5]),
    outside=st.sampled_from([1.0, 2.5]),
)


def run(ops: Sequence[Op], state: list[jax.Array]) -> list[jax.Array]:
    """The program in JAX; the last value of the state is what was looked at, and leads nowhere."""
    state = list(state)
    for op in ops:
        if op[0] == "work":
            state[op[1]] = compute(state[op[1]], op[2], "work")
        elif op[0] == "join":
            state[op[1]] = tie(state[op[1]], state[op[2]])
        elif op[0] == "sum":
            state[op[1]] = lax.psum(state[op[1]], op[2])
        elif op[0] == "look":
            state[-1] = state[-1] + lax.psum(state[op[1]], op[2])
        elif op[0] == "hop":
            state[op[1]] = lax.ppermute(state[op[1]], "tensor", op[2])
        elif op[0] == "when":
            mine = lax.axis_index("data") == op[1]
            state = lax.cond(mine, lambda s, op=op: run(op[2], s), lambda s: list(s), state)
        else:
            state = loop(op, state)
    return state


def loop(op: Op, state: list[jax.Array]) -> list[jax.Array]:
    """Values that the body doesn't change are constants of the loop."""
    _, trips, ops, counts = op
    changing = sorted(changed(ops) | ({0} if counts else set()) | {VALUES})

    def body(index: jax.Array, carry: list[jax.Array]) -> list[jax.Array]:
        whole = list(state)
        for value, now in zip(changing, carry, strict=True):
            whole[value] = now
        done = run(ops, whole)
        if counts:  # something else in one iteration
            extra: list[Op] = [("work", 0, 2.0)]
            done = lax.cond(index == 1, lambda s: run(extra, s), lambda s: list(s), done)
        return [done[value] for value in changing]

    result = list(state)
    last = lax.fori_loop(0, trips, body, [state[value] for value in changing])
    for value, now in zip(changing, last, strict=True):
        result[value] = now
    return result


def changed(ops: Sequence[Op]) -> set[int]:
    """Return the values that operations may change."""
    changes = [op for op in ops if op[0] != "look"]
    return {v for op in changes for v in (changed(op[2]) if op[0] == "when" else {op[1]})}


def build(ops: Sequence[Op]) -> Any:
    """Trace the program."""
    spec = PartitionSpec(("data", "tensor"))
    step = jax.shard_map(
        lambda *state: tuple(run(ops, list(state))),
        mesh=abstract_mesh(AXES),
        in_specs=(spec,) * (VALUES + 1),
        out_specs=(spec,) * (VALUES + 1),
        check_vma=False,
    )
    argument = jax.ShapeDtypeStruct((12,), jnp.float32)
    return jax.jit(step).trace(*[argument] * (VALUES + 1)).jaxpr


class OnePage:
    """The same rules written down rank by rank, with nothing shared, skipped or folded."""

    def __init__(self, costs: TwoTiers, semantics: Semantics):
        self.costs, self.semantics = costs, semantics
        self.work_free = [0.0] * 12
        self.free = {(rank, name): 0.0 for rank in range(12) for name in ("data", "tensor", "all")}
        self.done = [0.0] * 12
        self.state = [[0.0] * 12 for _ in range(VALUES)]

    def run(self, ops: Sequence[Op], active: set[int]) -> None:
        for op in ops:
            getattr(self, op[0])(active, *op[1:])

    def work(self, active: set[int], value: int, seconds: float) -> None:
        for rank in active:
            end = max(self.state[value][rank], self.work_free[rank]) + seconds
            self.state[value][rank] = self.work_free[rank] = self.done[rank] = end

    def join(self, active: set[int], value: int, other: int) -> None:
        for rank in active:
            self.state[value][rank] = max(self.state[value][rank], self.state[other][rank])

    def stream(self, rank: int, axis: str) -> tuple[int, str]:
        return rank, axis if self.semantics.streams == "axis" else "all"

    def free_at(self, rank: int, axis: str) -> float:
        return 0.0 if self.semantics.streams == "unlimited" else self.free[self.stream(rank, axis)]

    def hold(self, rank: int, axis: str, until: float) -> None:
        name = self.stream(rank, axis)
        self.free[name] = max(self.free[name], until)

    def look(self, active: set[int], value: int, axis: str) -> None:
        before = list(self.state[value])
        self.sum(active, value, axis)
        self.state[value] = before

    def sum(self, active: set[int], value: int, axis: str) -> None:
        groups = RANKS.groups(axis)
        if self.semantics.shared:
            groups = groups[[set(group) <= active for group in groups.tolist()]]
        answer = self.costs.collective("all_reduce", 4, "float32", groups, (axis,))
        for group, cost in zip(groups.tolist(), answer.seconds, strict=True):
            if set(group) <= active:
                start = max(max(self.state[value][r], self.free_at(r, axis)) for r in group)
                for rank in group:
                    self.state[value][rank] = start + cost
                    self.hold(rank, axis, start + cost)

    def hop(self, active: set[int], value: int, pairs: Sequence[tuple[int, int]]) -> None:
        ready = [max(self.state[value][r], self.free_at(r, "tensor")) for r in range(12)]
        free = [self.free_at(r, "tensor") for r in range(12)]
        met = max(ready)  # active or not: a permute inside a conditional needs them all as well
        arrived = dict.fromkeys(active, met if self.semantics.permute == "clique" else 0.0)
        for group in RANKS.groups("tensor").tolist():
            for s, d in ((group[s], group[d]) for s, d in pairs):
                pair = np.array([[s, d]])
                cost = self.costs.collective("permute", 4, "float32", pair, ("tensor",)).seconds[0]
                if s in active:
                    start = met if self.semantics.permute == "clique" else max(ready[s], free[d])
                    arrived[d] = start + cost
                    self.hold(s, "tensor", start + cost)
        for rank, at in arrived.items():
            self.state[value][rank] = at
            self.hold(rank, "tensor", at)

    def when(self, active: set[int], which: int, ops: Sequence[Op]) -> None:
        self.run(ops, {rank for rank in active if rank // 4 == which})

    def loop(self, active: set[int], trips: int, ops: Sequence[Op], counts: bool) -> None:
        for turn in range(trips):
            self.run(ops, active)
            if counts and turn == 1:
                self.run([("work", 0, 2.0)], active)

    def end(self) -> list[float]:
        return [
            max(self.work_free[r], *(self.free[r, name] for name in ("data", "tensor", "all")))
            for r in range(12)
        ]


def in_cond(ops: Sequence[Op]) -> bool:
    """Whether a permute is inside a conditional (where a clique of all ranks can't meet)."""
    return any(
        (op[0] == "when" and any(inner[0] == "hop" for inner in op[2]))
        or (op[0] == "loop" and in_cond(op[2]))
        for op in ops
    )


@settings(max_examples=150)
@given(ops=programs, costs=tiers, semantics=semantics, fold=st.booleans())
def test_a_program_takes_what_one_page_says(
    ops: list[Op], costs: TwoTiers, semantics: Semantics, fold: bool
) -> None:
    if in_cond(ops):
        semantics = replace(semantics, permute="pair")
    page = OnePage(costs, semantics)
    page.run(ops, set(range(12)))
    found = simulate(build(ops), RANKS, costs, semantics, fold=fold)
    assert found.end_s == pytest.approx(page.end(), rel=1e-12, abs=1e-12)


def step_s(ops: Sequence[Op], costs: Any, semantics: Semantics) -> float:
    return simulate(build(ops), RANKS, costs, semantics).step_s


@given(ops=programs, costs=tiers, semantics=semantics, more=st.sampled_from([1.0, 1.5, 40.0]))
def test_more_bandwidth_is_never_slower_and_more_latency_never_faster(
    ops: list[Op], costs: TwoTiers, semantics: Semantics, more: float
) -> None:
    now = step_s(ops, costs, semantics)
    assert step_s(ops, replace(costs, Bps=costs.Bps * more), semantics) <= now * (1 + 1e-12)
    late = replace(costs, latency_s=costs.latency_s * more)
    assert step_s(ops, late, semantics) >= now * (1 - 1e-12)


@given(ops=programs, costs=tiers)
def test_fewer_streams_and_larger_cliques_are_never_faster(ops: list[Op], costs: TwoTiers) -> None:
    closed = build(ops)
    for permute in ("pair", "clique"):
        unlimited, axis, one = (
            simulate(closed, RANKS, costs, Semantics(streams, permute)).end_s
            for streams in ("unlimited", "axis", "one")
        )
        assert (unlimited <= axis * (1 + 1e-12)).all()
        assert (axis <= one * (1 + 1e-12)).all()
    for streams in ("unlimited", "axis", "one"):
        pair, clique = (
            simulate(closed, RANKS, costs, Semantics(streams, permute)).end_s
            for permute in ("pair", "clique")
        )
        assert (pair <= clique * (1 + 1e-12)).all()


@given(ops=programs, models=st.lists(tiers, min_size=2, max_size=4), semantics=semantics)
def test_several_cost_models_at_once_give_what_each_gives_alone(
    ops: list[Op], models: list[TwoTiers], semantics: Semantics
) -> None:
    closed = build(ops)
    together = simulate_all(closed, RANKS, models, semantics)
    for model, found in zip(models, together, strict=True):
        alone = simulate(closed, RANKS, model, semantics)
        assert found.end_s == pytest.approx(alone.end_s, rel=1e-12)
        assert found.uses == alone.uses


@given(ops=programs, semantics=semantics, swap=st.permutations(range(3)), turn=st.integers(0, 3))
def test_permuting_equal_ranks_changes_nothing(
    ops: list[Op], semantics: Semantics, swap: list[int], turn: int
) -> None:
    """Nodes of four against each other, and the devices of a node: all links stay as they were."""
    moved = tuple(swap[r // 4] * 4 + (r + turn) % 4 for r in range(12))
    costs = TwoTiers(per_node=4)
    before = simulate(build(ops), RANKS, costs, semantics)
    after = simulate(build(ops), RANKS, replace(costs, moved=moved), semantics)
    assert np.array_equal(before.end_s, after.end_s)
    assert before.uses == after.uses


@pytest.mark.parametrize("name", ["dp-8", "fsdp-2x4", "pp-2x4", "tp-2x2x2", "ep-2x2x2"])
def test_another_topology_changes_the_step(name: str) -> None:
    e = case(name)
    closed = trace(build_program(e)[1], abstract_mesh(e.mesh)).closed

    def step(costs: Any) -> Simulation:
        return simulate(closed, Ranks(e.mesh), costs, Semantics("axis"))

    near = step(TwoTiers(per_node=8))
    assert step(TwoTiers(per_node=2)).step_s > near.step_s
    assert step(TwoTiers(per_node=2, outside=1.0)).step_s == near.step_s
    assert near.step_s > step(ByKind()).step_s


@given(ops=programs, costs=tiers, semantics=semantics)
def test_events_tell_the_same_story(ops: list[Op], costs: TwoTiers, semantics: Semantics) -> None:
    found = simulate(build(ops), RANKS, costs, semantics, record=[0, 7])
    for rank in (0, 7):
        mine = [event for event in found.events if event.rank == rank]
        worked = [e for e in mine if e.kind == "compute"]
        assert sum(e.end_s - e.start_s for e in worked) == pytest.approx(found.compute_s[rank])
        for first, second in zip(worked, worked[1:], strict=False):
            assert first.end_s <= second.start_s * (1 + 1e-12)  # one stream, in program order
        for event in mine:
            assert event.ready_s <= event.start_s * (1 + 1e-12) or event.kind == "permute"
            if event.cost and event.kind != "permute":
                assert event.end_s - event.start_s == pytest.approx(event.cost.seconds, abs=1e-9)
        executed = sum(int(use.executions[rank]) for use in found.uses if use.kind != "permute")
        assert executed == len([e for e in mine if e.kind not in ("compute", "permute")])
        if not any(use.kind == "permute" for use in found.uses):
            assert max((e.end_s for e in mine), default=0.0) == pytest.approx(found.end_s[rank])
