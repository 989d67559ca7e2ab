"""The trace as a viewer reads it: against the simulation it was made from, and by known answers."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec

from jaxbench import primitives
from jaxbench.axes import AXES
from jaxbench.costs.interface import Cost, Costs
from jaxbench.errors import RunError
from jaxbench.program import abstract_mesh, trace
from jaxbench.readings.plan import build_program
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Event, Semantics, Simulation, simulate
from jaxbench.report.timeline import (
    MOST_RANKS,
    representative_ranks,
    timeline_faults,
    write_timeline,
)
from jaxbench.report.timeline_arrows import find_arrows
from jaxbench.report.timeline_slices import make_slices
from tests.cases import CASES, experiment
from tests.simple_costs import ByKind, TwoTiers

Json = dict[str, Any]

NS = 1e-3  # microseconds
ONE, AXIS = Semantics("one"), Semantics("axis")

SHOWN = [
    ("dp-3", ONE),
    ("fsdp-2x4", AXIS),
    ("pp-uneven", ONE),
    ("tp-2x2x2", AXIS),
    ("tp-sequence-1f1b", Semantics("one", "clique")),
    ("ep-2x2x2", ONE),
    ("dp-8", Semantics("unlimited")),
]


class Shown:
    """A simulated experiment and its trace, read back."""

    def __init__(
        self,
        path: Path,
        semantics: Semantics,
        costs: Costs | None = None,
        record: tuple[int, ...] | None = None,
        **flags: Any,
    ):
        e = experiment(**flags)
        self.ranks = Ranks(e.mesh)
        self.closed = trace(build_program(e)[1], abstract_mesh(e.mesh)).closed
        self.record = tuple(range(self.ranks.count)) if record is None else record
        self.simulation = simulate(
            self.closed, self.ranks, costs or TwoTiers(), semantics, record=self.record
        )
        write_timeline(path, self.simulation, self.ranks, semantics, self.closed, title="shown")
        self.text = path.read_text()
        self.trace: Json = json.loads(self.text)
        self.events: list[Json] = self.trace["traceEvents"]

    def of(self, phase: str) -> list[Json]:
        return [event for event in self.events if event["ph"] == phase]

    def named(self, what: str) -> dict[tuple[int, int], str]:
        return {(e["pid"], e["tid"]): e["args"]["name"] for e in self.of("M") if e["name"] == what}

    def rank(self, event: Json) -> int:
        [name] = [n for (pid, _), n in self.named("process_name").items() if pid == event["pid"]]
        return int(name.split(":")[0].removeprefix("rank "))

    def threads(self) -> dict[tuple[int, int], list[Json]]:
        found = defaultdict(list)
        for event in self.of("X"):
            found[event["pid"], event["tid"]].append(event)
        return found

    def arrows(self) -> list[tuple[tuple[int, str], tuple[int, str]]]:
        """Return from where to where arrows lead: (rank, name of the slice around that end)."""
        ends: dict[int, dict[str, tuple[int, str]]] = defaultdict(dict)
        for event in [*self.of("s"), *self.of("f")]:
            inside = [
                x
                for x in self.threads()[event["pid"], event["tid"]]
                if x["ts"] - NS / 2 <= event["ts"] < x["ts"] + x["dur"]
            ]
            ends[event["id"]][event["ph"]] = (self.rank(event), inside[-1]["name"])
        assert all(set(pair) == {"s", "f"} for pair in ends.values())
        return [(pair["s"], pair["f"]) for pair in ends.values()]


@pytest.fixture(params=SHOWN, ids=lambda row: f"{row[0]}-{row[1].streams}")
def shown(request: pytest.FixtureRequest, tmp_path: Path) -> Shown:
    name, semantics = request.param
    return Shown(tmp_path / "t.json", semantics, **CASES[name])


def test_nothing_overlaps_within_a_thread_and_all_is_in_order(shown: Shown) -> None:
    assert len(shown.of("X")) == len(shown.simulation.events) > 0
    places = [(e["pid"], e["tid"], e["ts"]) for e in shown.of("X")]
    assert places == sorted(places)
    for events in shown.threads().values():
        for before, after in zip(events, events[1:], strict=False):
            assert before["ts"] + before["dur"] <= after["ts"] + NS / 10
    for event in shown.of("X"):
        for number in (event["ts"], event["dur"], event["args"]["waiting_us"]):
            assert number >= 0 and number * 1000 == pytest.approx(round(number * 1000), abs=1e-3)


def test_computes_and_waits_are_those_of_the_simulation(shown: Shown) -> None:
    simulation = shown.simulation
    computes = defaultdict(list)
    for event in shown.of("X"):
        if event["cat"] == "compute":
            computes[shown.rank(event)].append(event)
    assert set(computes) == set(range(shown.ranks.count))
    for rank, events in computes.items():
        slack = (len(events) + 1) * NS
        spent = sum(event["dur"] for event in events)
        assert spent == pytest.approx(simulation.compute_s[rank] * 1e6, abs=slack)
        end = max(event["ts"] + event["dur"] for event in events)
        idle = sum(event["args"]["waiting_us"] for event in events)
        blocked = idle + simulation.step_s * 1e6 - end
        assert blocked == pytest.approx(simulation.blocked_s[rank] * 1e6, abs=2 * slack)
    last = max(event["ts"] + event["dur"] for event in shown.of("X"))
    assert last == pytest.approx(simulation.step_s * 1e6, abs=NS)
    assert shown.trace["otherData"]["step_us"] == pytest.approx(simulation.step_s * 1e6)


def test_collectives_are_those_of_the_simulation(shown: Shown) -> None:
    expected: Counter[Any] = Counter()
    for use in shown.simulation.uses:
        for rank, count in enumerate(use.executions.tolist()):
            expected[rank, f"{use.kind} {use.label}", "+".join(use.axes), use.nbytes] += count
    found: Counter[Any] = Counter()
    for event in shown.of("X"):
        if event["cat"] == "communication":
            args = event["args"]
            found[shown.rank(event), event["name"], args["axes"], args["bytes"]] += 1
            assert args["algorithm"] == "ring" and args["bound"] in ("node", "nic")
            assert 0 < args["latency_us"] <= event["dur"] + NS
    permutes = {key for key in expected if key[1].startswith("permute")}
    for key, count in expected.items():
        # A rank that neither sends nor receives executes a permute and shows nothing.
        assert found[key] == count or (key in permutes and found[key] == 0)
    assert set(found) <= set(expected)


def test_threads_are_streams(shown: Shown) -> None:
    names = shown.named("thread_name")
    assert set(names) == set(shown.threads())
    for (pid, tid), events in shown.threads().items():
        name = names[pid, tid]
        assert {event["cat"] for event in events} == {name.split()[0]}
        if " over " in name:
            assert {event["args"]["axes"] for event in events} == {name.split(" over ")[1]}
        assert (name == "compute") == (tid == 1)
    sorts = {(e["pid"], e["tid"]): e["args"] for e in shown.of("M") if "sort" in e["name"]}
    assert set(sorts) >= set(names)
    assert shown.trace["displayTimeUnit"] in ("ms", "ns")
    assert shown.trace["otherData"]["title"] == "shown"


def test_arrows_lead_forward_between_ranks(shown: Shown) -> None:
    begins = {event["id"]: event for event in shown.of("s")}
    for event in shown.of("f"):
        assert event["bp"] == "e"
        assert (
            event["ts"] >= begins[event["id"]]["ts"] and event["pid"] != begins[event["id"]]["pid"]
        )
    assert len(shown.arrows()) == len(begins)


@pytest.mark.parametrize(
    ("semantics", "threads"),
    [
        (ONE, ["compute", "communication"]),
        (AXIS, ["compute", "communication over data", "communication over fsdp"]),
        (Semantics("unlimited"), ["compute", "communication", "communication (2)"]),
    ],
    ids=str,
)
def test_streams_by_semantics(semantics: Semantics, threads: list[str], tmp_path: Path) -> None:
    costs = ByKind({"reduce_scatter": 0.004, "all_reduce": 0.013})
    flags = {"strategy": "fsdp", "mesh": "data=2,fsdp=2", "units": 4}
    shown = Shown(tmp_path / "t.json", semantics, costs, (0,), **flags)
    assert list(shown.named("thread_name").values()) == threads


def test_whoever_is_late_is_pointed_at(tmp_path: Path) -> None:
    flags = {"strategy": "dp", "mesh": "data=4", "buckets": 1, "inject_delay": "2:7000"}
    shown = Shown(tmp_path / "t.json", ONE, **flags)
    late = (2, "backward 0")
    assert shown.arrows() == [(late, (rank, "all_reduce gradient 0")) for rank in (0, 1, 3)]
    waits = {
        shown.rank(event): event["args"]["waiting_us"]
        for event in shown.of("X")
        if event["cat"] == "communication"
    }
    assert waits == pytest.approx({0: 7000, 1: 7000, 2: 0, 3: 7000})
    # Who isn't shown is not pointed at, and nobody else in its place.
    shown = Shown(tmp_path / "t.json", ONE, record=(0, 1, 3), **flags)
    assert shown.arrows() == [] and len(shown.of("X")) == 9


def test_a_busy_stream_is_nobody_s_fault(tmp_path: Path) -> None:
    """The second bucket waits for the first one, however late a rank comes to it."""
    flags = {"strategy": "dp", "mesh": "data=2", "buckets": 2, "inject_delay": "1:1000"}
    shown = Shown(tmp_path / "t.json", ONE, ByKind({"all_reduce": 1.0}), **flags)
    assert shown.arrows() == [((1, "backward 1"), (0, "all_reduce gradient 1"))]


def test_messages_come_from_the_stage_before(tmp_path: Path) -> None:
    flags = {"strategy": "dp_pp", "mesh": "pipeline=3", "microbatches": 4}
    shown = Shown(tmp_path / "t.json", ONE, ByKind({"permute": 1e-3}), **flags)
    arrows = shown.arrows()
    there, back = "permute forward hop", "permute backward hop"
    assert arrows[:2] == [((0, "forward"), (1, there)), ((1, "forward"), (2, there))]
    assert arrows and all(abs(a[0] - b[0]) == 1 for a, b in arrows)
    assert {b[0] - a[0] for a, b in arrows if b[1] == there} == {1}
    assert {b[0] - a[0] for a, b in arrows if b[1] == back} == {-1}


def test_messages_inside_of_a_conditional_come_from_their_sender() -> None:
    mesh = abstract_mesh([("a", 2), ("b", 3)])

    def step(token: jax.Array) -> jax.Array:
        late = primitives.compute(token, 1e-3, "late")
        token = lax.cond(lax.axis_index("b") == 1, lambda: late, lambda: token)

        def send() -> jax.Array:
            return lax.ppermute(token, "b", [(0, 2), (1, 0), (2, 1)])

        return lax.cond(lax.axis_index("a") == 1, send, lambda: token)

    spec = PartitionSpec(("a", "b"))
    mapped = jax.shard_map(step, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    closed = jax.jit(mapped).trace(jax.ShapeDtypeStruct((6,), jnp.float32)).jaxpr
    ranks = Ranks([("a", 2), ("b", 3)])
    # All ranks execute the compute, but to those with b != 1 its result doesn't matter.
    semantics = Semantics("unlimited")
    simulated = simulate(closed, ranks, ByKind({"permute": 1.0}), semantics, record=range(6))
    arrows = find_arrows(make_slices(simulated.events, semantics), ranks, closed)
    found = [(a.cause.event.rank, a.cause.event.label, a.waiter.event.rank) for a in arrows]
    assert found == [(4, "late", 3)]


def test_a_rank_that_did_nothing_until_then_is_not_pointed_at() -> None:
    cost = Cost(1e-6, 0.0, "ring", "nic")

    def sum_of(rank: int, ready_s: float) -> Event:
        return Event(rank, "all_reduce", "g", ("a",), ready_s, 5e-6, 6e-6, 4, cost, (1,))

    worked = Event(1, "compute", "w", (), 0.0, 0.0, 2e-6, 0, None, (0,))
    closed = jax.make_jaxpr(lambda x: x)(0.0)
    # An arrow can't be tied to an instant: it comes from what ended then.
    instant = replace(worked, kind="permute", label="i", start_s=5e-6, end_s=5e-6, cost=cost)
    for end_s, causes in ((2e-6, []), (5e-6, ["w"])):
        work = [replace(worked, end_s=end_s), replace(instant, path=(7,))]
        events = [*work, sum_of(0, 0.0), sum_of(1, 5e-6)]
        slices = make_slices(events, ONE)
        arrows = find_arrows(slices, Ranks([("a", 2)]), closed)
        assert [arrow.cause.event.label for arrow in arrows] == causes


def test_the_same_step_is_the_same_text(tmp_path: Path) -> None:
    texts = {
        Shown(tmp_path / name, AXIS, **CASES["tp-2x2x2"]).text for name in ("a.json", "b.json")
    }
    assert len(texts) == 1


def test_a_rank_s_place_and_node_are_its_name(tmp_path: Path) -> None:
    shown = Shown(tmp_path / "t.json", ONE, **CASES["tp-2x2x2"])
    write_timeline(
        tmp_path / "n.json",
        shown.simulation,
        shown.ranks,
        ONE,
        shown.closed,
        nodes={5: "jwb0017"},
    )
    events = json.loads((tmp_path / "n.json").read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names[6] == "rank 5: data 1, pipeline 0, tensor 1 (jwb0017)"
    assert names[8] == "rank 7: data 1, pipeline 1, tensor 1"


def test_a_rank_of_a_mesh_of_one_has_a_name(tmp_path: Path) -> None:
    shown = Shown(tmp_path / "t.json", ONE, **CASES["dp-1"])
    assert list(shown.named("process_name").values()) == ["rank 0"]


def compute(start_s: float, end_s: float) -> Event:
    return Event(0, "compute", "w", (), start_s, start_s, end_s, 0, None, (0,))


def test_rounding_makes_no_overlap() -> None:
    """A time and the same time summed otherwise round to different nanoseconds."""
    at = 1.5e-9
    events = [compute(0.0, np.nextafter(at, 1)), compute(np.nextafter(at, 0), 5e-9)]
    events += [compute(7e-9, 9e-9)]
    slices = make_slices(events, ONE)
    assert [(s.lane, s.start_ns, s.end_ns) for s in slices] == [(0, 0, 2), (0, 2, 5), (0, 7, 9)]
    assert [s.waiting_ns for s in slices] == [0, 0, 2]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=30),
)
def test_lanes_hold_what_overlaps_and_no_more_than_needed(spans: list[tuple[int, int]]) -> None:
    cost = Cost(1.0, 0.0, "ring", "nic")
    unit = 1e-6
    events = [
        Event(0, "all_reduce", "g", ("data",), 0.0, a * unit, (a + n) * unit, 8, cost, (0,))
        for a, n in spans
    ]
    slices = make_slices(events, Semantics("unlimited"))
    assert [s.event for s in slices] == events
    by_lane = defaultdict(list)
    for piece in slices:
        by_lane[piece.lane].append(piece)
        assert (piece.start_ns, piece.end_ns) == pytest.approx(
            (piece.event.start_s * 1e9, piece.event.end_s * 1e9)
        )
    for pieces in by_lane.values():
        pieces.sort(key=lambda piece: (piece.start_ns, piece.end_ns))
        assert all(a.end_ns <= b.start_ns for a, b in zip(pieces, pieces[1:], strict=False))
    at_once = [sum(a <= t < a + n for a, n in spans) for t in range(81)]
    assert len(by_lane) <= max(max(at_once), 1) + sum(n == 0 for _, n in spans)


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ("data=1", (0,)),
        ("data=8", (0, 1)),
        ("data=2,fsdp=4", (0, 4, 1)),
        ("data=3,pipeline=4", (0, 1, 2, 3, 4)),
        ("data=7,pipeline=8,tensor=4", (0, 4, 8, 12, 16, 20, 24, 28, 32, 1)),
        ("pipeline=31", (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)),
    ],
)
def test_representative_ranks(mesh: str, expected: tuple[int, ...]) -> None:
    sizes = dict(part.split("=") for part in mesh.split(","))
    assert representative_ranks(Ranks([(a, int(n)) for a, n in sizes.items()])) == expected


@given(st.permutations(AXES), st.lists(st.integers(1, 40), min_size=5, max_size=5))
def test_representative_ranks_show_every_axis(order: list[str], sizes: list[int]) -> None:
    ranks = Ranks(list(zip(order, sizes, strict=True)))
    chosen = representative_ranks(ranks)
    assert len(set(chosen)) == len(chosen) <= MOST_RANKS
    others = sum(size > 1 for axis, size in ranks.axes if axis != "pipeline")
    coordinates = np.unravel_index(chosen, sizes)  # not of all: there may be millions
    for (axis, size), along in zip(ranks.axes, coordinates, strict=True):
        seen = set(along.tolist())
        assert 0 in seen and (size == 1 or len(seen) > 1)
        if axis == "pipeline":
            assert size - 1 in seen and len(seen) == min(size, MOST_RANKS - others)


def test_where_no_file_can_be_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert timeline_faults(tmp_path / "t.json") == []
    assert "which is a folder" in timeline_faults(tmp_path)[0]
    assert "there is no folder" in timeline_faults(tmp_path / "no" / "t.json")[0]
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    assert "can't be written" in timeline_faults(tmp_path / "t.json")[0]


def test_what_can_t_be_written_is_a_failed_run(tmp_path: Path) -> None:
    shown = Shown(tmp_path / "t.json", ONE, **CASES["dp-1"])
    arguments = (shown.simulation, shown.ranks, ONE, shown.closed)
    with pytest.raises(RunError, match="can't write"):
        write_timeline(tmp_path / "no" / "t.json", *arguments)
    with pytest.raises(RunError, match="can't write"):
        write_timeline(tmp_path, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json"]


def test_without_events_there_is_an_empty_trace(tmp_path: Path) -> None:
    shown = Shown(tmp_path / "t.json", ONE, record=(), **CASES["dp-1"])
    assert shown.events == [] and isinstance(shown.simulation, Simulation)
