"""Jobs that run at once: closed forms, what must never happen, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.costs.routing import ROUTINGS
from jaxbench.errors import InputError
from jaxbench.readings.jobs import Job, JobsOutcome, Stall, simulate_jobs
from jaxbench.readings.jobs.flows import make_flows
from jaxbench.readings.jobs.outcome import NEVER_FULL, NO_SHARED_LINK
from jaxbench.readings.jobs.profile import Phase, TrafficProfile
from jaxbench.topology.hierarchy import of_system
from jaxbench.topology.placement import place
from tests.costs.small_systems import small_system

# 3 groups of 2 leaves of 2 nodes of 4 devices, nodes n01 to n12. A card carries 10 B/s, a leaf's
# uplinks 80 and the links between two groups 40: what the cards of one node send.
SYSTEM = small_system()
TOPOLOGY = of_system(SYSTEM)
EVERY_ROUTING = pytest.mark.parametrize("routing", sorted(ROUTINGS))


def transfer(seconds: float, card_Bps: float = 10.0, fixed_s: float = 0.0) -> Phase:
    """Four devices of one node to those of another, at `card_Bps` each."""
    devices = np.arange(4)
    amount = np.full(4, card_Bps * seconds)
    return Phase(fixed_s, seconds, make_flows(devices, devices + 4, amount))


def job(name: str, nodes: str, *phases: Phase) -> Job:
    """A job on two nodes that repeats `phases`."""
    profile = TrafficProfile(phases or (transfer(1.0),))
    return Job(name, profile, place(TOPOLOGY, SYSTEM, 8, f"nodes:{nodes}"))


def run(*jobs: Job, **settings: Any) -> JobsOutcome:
    return simulate_jobs(jobs, settings.pop("system", SYSTEM), **settings)


def values(outcome: JobsOutcome) -> dict[str, list[float]]:
    return {j.name: j.slowdowns.tolist() for j in outcome.jobs}


# nodes of one pair of groups each, so that they meet between group0 and group1
ACROSS = ("n[01,05]", "n[02,06]", "n[03,07]", "n[04,08]")

# --- closed forms ---


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_equal_jobs_on_one_link_share_it_equally(count: int) -> None:
    outcome = run(*(job(f"job {i}", ACROSS[i]) for i in range(count)))
    for one in outcome.jobs:
        np.testing.assert_allclose(one.slowdowns, count, rtol=1e-12)
        assert one.link == ("group0 to group1" if count > 1 else NO_SHARED_LINK)
        assert len(one.sharers) == count - 1


def test_of_a_step_only_the_transfer_slows() -> None:
    """Of steps of compute and transfer that meet all the time, the transfer takes twice as long."""
    long = job("long", ACROSS[0], transfer(1000.0))
    steps = [Phase(3.0), transfer(1.0)]
    outcome = run(long, job("steps", ACROSS[1], *steps))
    np.testing.assert_allclose(outcome["steps"].slowdowns, (3 + 2 * 1) / 4, rtol=1e-12)
    # the long one is alone for 3 of 5 seconds and has half of the link for 2
    assert outcome["long"].median == pytest.approx(5 / (3 + 2 / 2), rel=0.01)


@pytest.mark.parametrize("fixed_s", [1.0, 1.5, 2.0, 2.5])
def test_a_hidden_transfer_may_take_longer_while_it_stays_hidden(fixed_s: float) -> None:
    """Beside one that always transfers, one second of transfer takes two."""
    hidden = job("hidden", ACROSS[1], transfer(1.0, fixed_s=fixed_s))
    outcome = run(job("long", ACROSS[0], transfer(1000.0)), hidden)
    np.testing.assert_allclose(outcome["hidden"].slowdowns, max(2.0, fixed_s) / fixed_s, rtol=1e-12)
    if fixed_s >= 2.5:
        assert set(outcome["hidden"].slowdowns) == {1.0}  # exactly
        assert outcome["hidden"].link == NEVER_FULL
    assert outcome["long"].median > 1.1


def test_latency_after_a_transfer_isnt_stretched() -> None:
    phase = replace(transfer(1.0, fixed_s=1.5), latency_s=0.25)
    outcome = run(job("long", ACROSS[0], transfer(1000.0)), job("b", ACROSS[1], phase))
    np.testing.assert_allclose(outcome["b"].slowdowns, (2 * 1.0 + 0.25) / 1.5, rtol=1e-12)


def test_a_link_is_shared_by_flows() -> None:
    """Eight flows of one job and four of another: two thirds and one third of the link."""
    nodes = place(TOPOLOGY, SYSTEM, 16, "nodes:n[01-02,05-06]")
    eight = make_flows(np.arange(8), np.arange(8, 16), np.full(8, 10.0))
    big = Job("big", TrafficProfile((Phase(0.0, 1.0, eight),)), nodes)
    # alone it has 40 of the 80 it wants: its own flows share the link
    alone = run(big)["big"]
    assert alone.isolated_s == pytest.approx(2.0) and alone.predicted_s == 1.0
    assert set(alone.slowdowns) == {1.0}
    outcome = run(big, job("small", "n[03,07]"))
    np.testing.assert_allclose(outcome["big"].slowdowns, 1.5, rtol=1e-9)
    np.testing.assert_allclose(outcome["small"].slowdowns, 3.0, rtol=1e-9)


@EVERY_ROUTING
def test_disjoint_jobs_are_exactly_undisturbed(routing: str) -> None:
    jobs = [
        job("a", "n[01-02]"),
        job("b", "n[03-04]", Phase(0.1), transfer(0.3)),
        job("c", "n[05,07]"),
    ]
    for one in run(*jobs, routing=routing, steps=3).jobs:
        assert set(one.slowdowns) == {1.0}
        assert one.link == NO_SHARED_LINK and one.sharers == ()
        assert (one.median, one.max) == (1.0, 1.0)


def test_sharing_a_link_that_is_never_full_is_no_contention() -> None:
    outcome = run(
        job("a", "n[01,05]", transfer(1.0, 5.0)), job("b", "n[02,06]", transfer(1.0, 5.0))
    )
    for one in outcome.jobs:
        assert set(one.slowdowns) == {1.0}
        assert one.link == NEVER_FULL and len(one.sharers) == 1


def test_the_two_directions_of_a_link_are_two_links() -> None:
    outcome = run(job("there", "n[01,05]"), job("back", "n06,n02"))
    assert {one.link for one in outcome.jobs} == {NO_SHARED_LINK}


def test_jobs_on_one_node_share_its_cards_where_it_has_few() -> None:
    """LUMI: two devices a card. Here a card of 20 B/s for two devices that can use all of it."""
    system = small_system(nics_per_node=2)
    devices = np.array([0, 1])
    whole = place(of_system(system), system, 8, "nodes:n[01-02]")

    def half(name: str, first: int) -> Job:
        """Every other device of both nodes."""
        here = [first, first + 2, first + 4, first + 6]
        keep = {k: getattr(whole, k)[here] for k in ("node", "local", "leaf", "group", "domain")}
        flows = make_flows(devices, devices + 2, np.full(2, 20.0))
        return Job(name, TrafficProfile((Phase(0.0, 1.0, flows),)), replace(whole, **keep))

    outcome = run(half("even", 0), half("odd", 1), system=system)
    for one in outcome.jobs:
        np.testing.assert_allclose(one.slowdowns, 2.0, rtol=1e-12)
        assert one.link in {
            f"n0{n} card {c} {way}" for n, way in ((1, "out"), (2, "in")) for c in (0, 1)
        }


# --- routing and foreign load ---


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_adaptive_routing_uses_the_idle_group(count: int) -> None:
    """Through the third group as much again: 80 of the 40 * count that are wanted."""
    jobs = [job(f"job {i}", ACROSS[i]) for i in range(count)]
    minimal, adaptive = run(*jobs), run(*jobs, routing="adaptive")
    for before, after in zip(minimal.jobs, adaptive.jobs, strict=True):
        np.testing.assert_allclose(after.slowdowns, max(1.0, count / 2), rtol=1e-9)
        assert after.max <= before.max


def test_adaptive_routing_leaves_a_used_group_what_it_uses() -> None:
    """Two jobs want 80 between groups 0 and 1, a third 40 from 0 to 2: nothing is left there."""
    jobs = [job("a", ACROSS[0]), job("b", ACROSS[1]), job("c", "n[03,09]")]
    outcome = run(*jobs, routing="adaptive")
    np.testing.assert_allclose(outcome["a"].slowdowns, 2.0, rtol=1e-9)
    assert set(outcome["c"].slowdowns) == {1.0}


@pytest.mark.parametrize("load", [0.25, 0.5, 0.9])
@EVERY_ROUTING
def test_foreign_load_takes_its_share(routing: str, load: float) -> None:
    """Alone: what is left of 40 for a job that wants 40, of 80 (via group 2) if adaptive."""
    outcome = run(job("a", ACROSS[0]), routing=routing, foreign_load=load)
    left = (1 - load) * (2 if routing == "adaptive" else 1)
    one = outcome["a"]
    if routing != "static":  # there it also meets itself, alone as well
        np.testing.assert_allclose(one.slowdowns, max(1.0, 1 / left), rtol=1e-9)
        assert one.isolated_s == one.predicted_s
    else:
        assert one.isolated_s >= one.predicted_s and (one.slowdowns > 1).any()
    assert one.link != NO_SHARED_LINK or set(one.slowdowns) == {1.0}


def test_foreign_load_spares_cards() -> None:
    assert set(run(job("a", "n[01-02]"), foreign_load=0.99)["a"].slowdowns) == {1.0}


def test_a_hashed_flow_meets_itself_and_others() -> None:
    """4 flows on 4 links: alone two are nearly always on one, and that is no slowdown."""
    jobs = [job("a", ACROSS[0]), job("b", ACROSS[1])]
    outcome = run(*jobs, routing="static", seeds=range(20))
    for one in outcome.jobs:
        assert one.predicted_s == 1.0 and 2.0 <= one.isolated_s <= 3.0
        assert one.slowdowns.min() >= 1.0 and one.slowdowns.max() > 1.0
    assert {one.link for one in outcome.jobs} == {"group0 to group1, one of 4 links"}
    alone = run(jobs[0], routing="static", seeds=range(20))["a"]
    assert set(alone.slowdowns) == {1.0}


# --- laws ---


@st.composite
def some_jobs(draw: st.DrawFn) -> list[Job]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    nodes = rng.permutation(12) + 1
    jobs = []
    for i in range(draw(st.integers(1, 6))):
        pair = sorted(nodes[2 * i : 2 * i + 2].tolist())
        phases = []
        for _ in range(draw(st.integers(1, 4))):
            kind = rng.integers(3)
            seconds, fixed = rng.uniform(0.1, 2, 2)
            fixed = (0.0, fixed, fixed)[kind]
            phases.append(
                Phase(fixed) if kind == 1 else transfer(seconds, rng.uniform(1, 10), fixed)
            )
        listed = ",".join(f"{n:02d}" for n in pair)
        jobs.append(job(f"job {i}", f"n[{listed}]", *phases))
    return jobs


@settings(max_examples=60, deadline=None)
@given(some_jobs(), st.sampled_from(sorted(ROUTINGS)), st.sampled_from([0.0, 0.4]))
def test_nobody_is_faster_than_alone(jobs: list[Job], routing: str, load: float) -> None:
    long = {"seeds": (0, 1), "steps": 2, "most_events": 10**4}
    outcome = run(*jobs, routing=routing, foreign_load=load, **long)
    for one, given_job in zip(outcome.jobs, jobs, strict=True):
        assert isinstance(given_job.work, TrafficProfile)
        assert one.slowdowns.min() >= 1.0
        assert one.isolated_s >= one.predicted_s * (1 - 1e-12)
        assert one.predicted_s == given_job.work.step_s
        assert len(one.slowdowns) >= 2 * 2 and one.whole_steps
        if one.link in (NO_SHARED_LINK, NEVER_FULL):
            assert set(one.slowdowns) == {1.0}
        if one.link == NO_SHARED_LINK:
            assert one.sharers == ()


@settings(max_examples=30, deadline=None)
@given(some_jobs(), st.sampled_from(sorted(ROUTINGS)))
def test_alone_a_job_is_exactly_itself(jobs: list[Job], routing: str) -> None:
    for one in jobs:
        outcome = run(one, routing=routing, seeds=(0, 3), steps=2)[one.name]
        assert set(outcome.slowdowns) == {1.0}
        if routing != "static":
            assert outcome.isolated_s == pytest.approx(outcome.predicted_s, rel=1e-12)


def test_more_jobs_on_a_link_are_never_faster() -> None:
    """A law on one link, for jobs that always communicate."""
    sizes = (10.0, 4.0, 7.0, 10.0)
    before: dict[str, float] = {}
    for count in range(1, 5):
        jobs = [job(f"job {i}", ACROSS[i], transfer(1.0, sizes[i])) for i in range(count)]
        now = {one.name: one.median for one in run(*jobs).jobs}
        assert all(now[name] >= slowdown * (1 - 1e-12) for name, slowdown in before.items())
        before = now
    assert before["job 0"] > 2.0


# --- seeds, order, length ---

MIXED = (
    job("a", ACROSS[0], Phase(1.0), transfer(0.7)),
    job("b", ACROSS[1], Phase(0.31), transfer(0.5)),
    job("c", ACROSS[2], Phase(0.8), transfer(0.9, fixed_s=0.2), Phase(0.1)),
)


@EVERY_ROUTING
def test_seeds_reproduce_and_differ(routing: str) -> None:
    first, again = (run(*MIXED, routing=routing, seeds=(4, 5)) for _ in range(2))
    assert values(first) == values(again)
    assert values(first) != values(run(*MIXED, routing=routing, seeds=(6, 7)))


def test_the_order_of_jobs_means_nothing() -> None:
    turned = values(run(*MIXED[::-1]))
    for name, slowdowns in values(run(*MIXED)).items():
        np.testing.assert_allclose(turned[name], slowdowns, rtol=1e-9)


def test_a_job_elsewhere_changes_nothing() -> None:
    with_it = values(run(*MIXED, job("elsewhere", "n[11-12]", Phase(0.01), transfer(0.01))))
    plain = values(run(*MIXED))
    assert {name: with_it[name] for name in plain} == plain


def test_phase_offsets_make_a_distribution() -> None:
    """Equal steps meet more or less by chance, from not at all to all the time."""
    jobs = [
        job(name, nodes, Phase(1.0), transfer(1.0))
        for name, nodes in zip("ab", ACROSS, strict=False)
    ]
    one = run(*jobs, seeds=range(40), steps=1)["a"]
    assert one.p5 is not None and one.p95 is not None
    assert 1.0 <= one.p5 < one.median < one.p95 <= one.max <= 1.5
    assert one.max - one.p5 > 0.2
    assert run(*jobs, seeds=range(2))["a"].p95 is None  # too few steps to tell


def test_a_run_that_ends_early_tells_what_it_saw() -> None:
    long = [job("a", ACROSS[0], transfer(1000.0)), job("b", ACROSS[1], transfer(1000.0))]
    short = job("short", "n[03,07]", Phase(0.9), transfer(0.1, 0.001))
    outcome = run(*long, short, most_events=20)
    assert not outcome["a"].whole_steps and outcome["short"].whole_steps
    assert outcome.events == 5 * 3 * 20
    np.testing.assert_allclose(outcome["a"].slowdowns, 2.0, rtol=1e-3)
    assert len(outcome["a"].slowdowns) == 5
    alone = run(long[0], short, most_events=20)
    assert not alone["a"].whole_steps
    np.testing.assert_allclose(alone["a"].slowdowns, 1.0, rtol=1e-3)


def test_more_steps_are_more_samples() -> None:
    assert len(run(*MIXED, seeds=(0,), steps=1)["a"].slowdowns) < 10
    assert len(run(*MIXED, seeds=(0,), steps=10)["a"].slowdowns) >= 10


# --- stalls ---


def test_stalls_are_off_by_default_and_add_what_they_say() -> None:
    one = job("a", "n[01-02]", Phase(1.0))
    assert set(run(one)["a"].slowdowns) == {1.0}
    stall = Stall(per_step=0.5, shortest_s=0.2, tail=3.0)
    outcome = run(one, stall=stall, seeds=range(40), steps=50, most_events=10**6)["a"]
    stalled = outcome.slowdowns[outcome.slowdowns > 1]
    assert len(stalled) / len(outcome.slowdowns) == pytest.approx(1 - math.exp(-0.5), abs=0.05)
    assert stalled.min() >= 1.2
    mean = 0.5 * 0.2 * 3 / 2  # of a Pareto variable: shortest * tail / (tail - 1)
    assert outcome.slowdowns.mean() - 1 == pytest.approx(mean, rel=0.15)
    assert outcome.link == NO_SHARED_LINK


def test_a_heavy_tail_gives_what_a_fluid_cant() -> None:
    jobs = [job("a", ACROSS[0]), job("b", ACROSS[1])]
    plain = run(*jobs, seeds=range(10), steps=20)["a"]
    assert plain.max < 2.1
    stall = Stall(per_step=0.05, shortest_s=1.0, tail=0.8)
    assert run(*jobs, seeds=range(10), steps=20, stall=stall)["a"].max > 10


def test_a_stalled_job_lets_others_have_the_link() -> None:
    stall = Stall(per_step=5.0, shortest_s=10.0, tail=5.0)
    outcome = run(job("a", ACROSS[0]), job("b", ACROSS[1]), stall=stall, seeds=range(10))
    transfers = [s - 1 for s in outcome["a"].slowdowns]
    assert min(transfers) > 9  # nearly every step stalls
    assert outcome["a"].link == "group0 to group1"


# --- what it says ---


def test_the_outcome_is_plain_values() -> None:
    import json

    outcome = run(*MIXED, stall=Stall(0.1, 1.0, 2.0), foreign_load=0.1)
    told = json.loads(json.dumps(outcome.to_json()))
    assert told["jobs"][0]["slowdowns"] == outcome["a"].slowdowns.tolist()
    assert told["stall"] == {"per_step": 0.1, "shortest_s": 1.0, "tail": 2.0}
    assert told["routing"] == "minimal" and told["seeds"] == [0, 1, 2, 3, 4]


# --- what is refused ---


def test_all_faults_are_told_together() -> None:
    with pytest.raises(InputError) as error:
        run(
            job("a", ACROSS[0], Phase(0.0)),
            job("a", ACROSS[0], Phase(-1.0)),
            routing="minimall",
            foreign_load=1.0,
            seeds=[-1],
            steps=0,
            stall=Stall(0.0, 1.0, math.nan),
        )
    text = "\n".join(error.value.faults)
    for part in (
        "unknown routing 'minimall'; did you mean 'minimal'",
        "foreign_load is 1.0",
        "seeds are [-1]",
        "steps is 0",
        "a stall's per_step is 0.0",
        "a stall's tail is nan",
        "2 jobs are called 'a'",
        "both placed on 8 devices",
        "takes no time",
        "phase 0 takes (-1.0",
    ):
        assert part in text, part


def test_faults_of_flows_and_placements() -> None:
    flows = make_flows(np.array([0]), np.array([8]), np.array([1.0]))
    beyond = job("beyond", ACROSS[0], Phase(1.0, 1.0, flows))
    no_time = job("no time", ACROSS[1], replace(transfer(1.0), transfer_s=0.0, fixed_s=1.0))
    elsewhere = replace(beyond.placement, node=beyond.placement.node + 100)
    moved = replace(beyond.placement, leaf=beyond.placement.leaf + 1)
    good = job("x", ACROSS[2]).work
    with pytest.raises(InputError) as error:
        run(beyond, no_time, Job("far", good, elsewhere), Job("moved", good, moved))
    text = "\n".join(error.value.faults)
    assert "job 'beyond': phase 0 has flows of ranks outside of 0 to 7" in text
    assert "job 'no time': phase 0 sends something in no time" in text
    assert "job 'far': its placement has nodes outside of 0 to 11" in text
    assert "job 'moved': it was placed on another topology" in text


def test_no_jobs_are_a_fault() -> None:
    with pytest.raises(InputError, match="there are no jobs"):
        run()


def test_jobs_in_one_memory_are_refused() -> None:
    system = small_system(node={"kind": "memory"})
    assert run(job("a", ACROSS[0]), system=system)["a"].max == 1.0
    with pytest.raises(InputError, match="share the memory of their host"):
        run(job("a", ACROSS[0]), job("b", ACROSS[1]), system=system)
