"""A job's phases against the simulation they come from: seconds, bytes, and what slowing does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest

from jaxbench.catalog.systems import find_system
from jaxbench.costs.interface import Cost, GroupCosts
from jaxbench.costs.links import Links
from jaxbench.costs.system_costs import SystemCosts
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.program import abstract_mesh, trace
from jaxbench.readings.jobs import Job, simulate_jobs, traffic_profiles
from jaxbench.readings.jobs.flows import RankFlows, join, make_flows
from jaxbench.readings.jobs.phases import MOST_PHASES, Timeline, cut_phases
from jaxbench.readings.jobs.profile import TrafficProfile
from jaxbench.readings.jobs.routed import route_job
from jaxbench.readings.jobs.sent import find_sent
from jaxbench.readings.jobs.slowed import Slowed
from jaxbench.readings.jobs.traffic import traffic_profile
from jaxbench.readings.plan import build_program
from jaxbench.readings.predict import predict_system
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import semantics_of, simulate
from jaxbench.topology.hierarchy import of_system
from jaxbench.topology.placement import place

SYSTEM = find_system("leonardo")
TOPOLOGY = of_system(SYSTEM)

EXPERIMENTS: dict[str, dict[str, Any]] = {
    "dp": {"strategy": "dp", "model": "vit_h14", "devices": 16},
    "dp_long": {
        "strategy": "dp",
        "model": "vit_h14",
        "devices": 8,
        "forward_s": 1,
        "backward_s": 9,
    },
    "fsdp": {"strategy": "fsdp", "model": "minerva_7b", "devices": 16, "mesh": "fsdp=8"},
    "fsdp_heavy": {
        "strategy": "fsdp",
        "model": "minerva_7b",
        "devices": 16,
        "mesh": "fsdp=8",
        "time_scale": 0.02,
    },
    "dp_pp": {"strategy": "dp_pp", "model": "llama3_8b", "devices": 32, "mesh": "pipeline=8"},
    "dp_pp_heavy": {
        "strategy": "dp_pp",
        "model": "llama3_8b",
        "devices": 32,
        "mesh": "pipeline=8",
        "time_scale": 0.02,
    },
    "1f1b": {
        "strategy": "dp_pp",
        "model": "llama3_8b",
        "devices": 32,
        "mesh": "pipeline=8",
        "schedule": "1f1b",
    },
    "dp_pp_tp": {
        "strategy": "dp_pp_tp",
        "model": "llama3_8b",
        "devices": 64,
        "mesh": "pipeline=4,tensor=8",
        "microbatches": 8,
    },
    "dp_pp_ep": {
        "strategy": "dp_pp_ep",
        "model": "mixtral_8x7b",
        "devices": 64,
        "mesh": "pipeline=4,expert=8",
        "microbatches": 8,
    },
}


class Case:
    """An experiment placed on Leonardo, with everything its profile comes from."""

    def __init__(self, name: str, placement: str, algorithm: str):
        flags = {k: str(v) for k, v in EXPERIMENTS[name].items()}
        self.experiment = Experiment.from_flags({**flags, "system": "leonardo"})
        self.placement = place(TOPOLOGY, SYSTEM, self.experiment.devices, placement)
        self.costs = SystemCosts(SYSTEM, self.placement, algorithm)
        self.semantics = semantics_of(self.experiment.hardware)
        self.ranks = Ranks(self.experiment.mesh)
        _, program = build_program(self.experiment)
        self.closed = trace(program, abstract_mesh(self.experiment.mesh)).closed

    @cached_property
    def profile(self) -> TrafficProfile:
        return traffic_profile(self.closed, self.ranks, self.costs, self.semantics, self.placement)

    def step_s(self, slower: float = 1.0) -> float:
        costs = Slowed(self.costs, self.placement.domain, slower)
        return simulate(self.closed, self.ranks, costs, self.semantics).step_s

    def sent(self) -> list[RankFlows]:
        uses = simulate(self.closed, self.ranks, self.costs, self.semantics).uses
        return list(find_sent(self.closed, self.ranks, self.costs, self.placement, uses).classes)


@cache
def make(name: str, placement: str = "inter-group", algorithm: str = "auto") -> Case:
    return Case(name, placement, algorithm)


def by_pair(flows: Sequence[RankFlows]) -> dict[tuple[int, int], float]:
    whole = join(flows)
    ends = zip(whole.source.tolist(), whole.target.tolist(), strict=True)
    return dict(zip(ends, whole.amount.tolist(), strict=True))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_phases_are_the_step_and_slow_as_it_does(name: str) -> None:
    """With all transfers slower by a factor, phases take what a new simulation says.

    Within 2 % up to four times slower, within 5 % up to eight times.
    """
    case = make(name)
    profile = case.profile
    assert profile.step_s == pytest.approx(case.step_s(), rel=1e-9)
    assert len(profile.phases) <= MOST_PHASES
    errors = {s: profile.seconds(s) / case.step_s(s) - 1 for s in (1.05, 1.5, 2.0, 4.0, 8.0)}
    print(name, {s: f"{error:+.3%}" for s, error in errors.items()})
    assert all(abs(error) < (0.02 if s <= 4 else 0.05) for s, error in errors.items())
    assert case.step_s(8.0) > case.step_s() * 1.0005  # else the above says nothing


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_bytes_are_conserved_for_every_pair_of_ranks(name: str) -> None:
    case = make(name)
    sent = by_pair(case.sent())
    assert sent
    assert by_pair([phase.flows for phase in case.profile.phases]) == pytest.approx(sent)


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("placement", ["", "inter-group"])
def test_the_links_carry_what_the_cost_model_says_they_can(name: str, placement: str) -> None:
    """Alone under even routing no link is overloaded, and some phase fills its links."""
    case = make(name, placement)
    links = Links(SYSTEM, TOPOLOGY)
    profile = case.profile
    routed = route_job(profile, case.placement, links, adaptive=False, seed=0)
    assert routed.isolated_s == pytest.approx(profile.step_s, rel=1e-6)
    used = [(phase.Bps / links.capacity_Bps[phase.link]).max(initial=0) for phase in routed.phases]
    assert 0.6 < max(used) <= 1 + 1e-6


def test_dp_sends_what_a_ring_sends() -> None:
    case = make("dp", algorithm="ring")
    plain = simulate(case.closed, case.ranks, case.costs, case.semantics)
    gradients = sum(use.nbytes for use in plain.uses)
    total = sum(by_pair([phase.flows for phase in case.profile.phases]).values())
    assert total == pytest.approx(4 * 2 * 15 / 16 * gradients)  # out of each of four nodes


def test_an_isolated_job_takes_its_predicted_step() -> None:
    case = make("dp_pp_ep", "")
    prediction = predict_system(case.experiment, "leonardo")
    job = Job("alone", prediction, case.placement)
    outcome = simulate_jobs([job], SYSTEM, seeds=range(2))["alone"]
    assert set(outcome.slowdowns) == {1.0}
    assert outcome.isolated_s == pytest.approx(prediction.step_s, rel=1e-6)
    assert outcome.predicted_s == pytest.approx(prediction.step_s, rel=1e-9)


def test_a_job_inside_a_node_sends_nothing() -> None:
    experiment = Experiment.from_flags({"strategy": "dp", "model": "vit_h14", "devices": "4"})
    case = make("dp")
    job = Job("small", experiment, place(TOPOLOGY, SYSTEM, 4))
    (profile,) = traffic_profiles([job], SYSTEM)
    assert [len(phase.flows.source) for phase in profile.phases] == [0]
    outcome = simulate_jobs([job], SYSTEM, foreign_load=0.9)["small"]
    assert outcome.link == "no shared link" and set(outcome.slowdowns) == {1.0}
    assert len(case.profile.phases) > 1


def test_jobs_on_equal_places_have_one_profile() -> None:
    """Same experiment, other nodes with the same pattern: simulated once, and that is right."""
    experiment = make("dp").experiment
    places = [place(TOPOLOGY, SYSTEM, 16, f"nodes:n[{n}]") for n in ("0001-0004", "0101-0104")]
    apart = place(TOPOLOGY, SYSTEM, 16, "nodes:n[0001-0002,0401-0402]")
    jobs = [Job(str(i), experiment, p) for i, p in enumerate([*places, apart])]
    one, same, other = traffic_profiles(jobs, SYSTEM)
    assert one is same and other is not one
    (alone,) = traffic_profiles(jobs[1:2], SYSTEM)
    assert [p.seconds(1.7) for p in alone.phases] == [p.seconds(1.7) for p in same.phases]
    assert by_pair([p.flows for p in alone.phases]) == by_pair([p.flows for p in same.phases])


def test_an_unknown_algorithm_or_too_few_devices_are_refused() -> None:
    case = make("dp")
    with pytest.raises(InputError, match="it runs on 16 devices, but is placed on 8"):
        simulate_jobs([Job("a", case.experiment, place(TOPOLOGY, SYSTEM, 8))], SYSTEM)
    with pytest.raises(InputError, match="rign"):
        simulate_jobs([Job("a", case.experiment, case.placement)], SYSTEM, algorithm="rign")


# --- slower transfers ---


class Fixed:
    """Every collective takes 5 s, 2 of them latency; ranks 0 and 1 take 7."""

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        costs = (Cost(5.0, 2.0, "ring", "nic"), Cost(7.0, 2.0, "ring", "nic"))
        return GroupCosts(costs, (groups[:, 0] < 2).astype(int))


def test_only_transfers_between_domains_slow() -> None:
    slowed = Slowed(Fixed(), np.array([0, 0, 1, 1, 1, 2]), 10.0)
    groups = np.array([[0, 1], [2, 3], [0, 2], [4, 5]])
    answer = slowed.collective("all_reduce", 1.0, "float32", groups, ("data",))
    assert answer.seconds.tolist() == [7.0, 5.0, 52.0, 32.0]


# --- cutting a timeline ---

SENT = make_flows(np.array([0]), np.array([1]), np.array([100.0]))


def timeline(*rows: tuple[float, bool, bool, tuple[int, ...], int], classes: int = 1) -> Timeline:
    """From (seconds, computes, communicates, classes of traffic, window)."""
    transfers = np.zeros((classes, len(rows)), bool)
    for i, row in enumerate(rows):
        transfers[list(row[3]), i] = True
    return Timeline(
        np.array([r[0] for r in rows]),
        np.array([r[1] for r in rows]),
        np.array([r[2] for r in rows]),
        transfers,
        np.array([r[4] for r in rows]),
    )


WORK, HIDE, SEND, LATE, WAIT = (
    (True, False, ()),
    (True, True, (0,)),
    (False, True, (0,)),
    (False, True, ()),
    (False, False, ()),
)


def seconds_of(profile: TrafficProfile) -> list[tuple[float, float]]:
    return [(p.fixed_s, p.transfer_s) for p in profile.phases]


def test_compute_then_hidden_then_exposed() -> None:
    """Before the first transfer nothing can hide; after it all compute of the window does."""
    line = timeline((4, *WORK, 0), (1, *HIDE, 0), (2, *WORK, 0), (3, *SEND, 0))
    profile = cut_phases(line, 3.0, [SENT])
    assert seconds_of(profile) == [(4, 0), (3, 1), (0, 3)]
    assert [p.flows.amount.sum() for p in profile.phases] == [0, 25, 75]
    assert profile.seconds(2.0) == 4 + 3 + 6
    assert profile.seconds(4.0) == 4 + 4 + 12


def test_slack_of_one_window_is_no_help_to_another() -> None:
    """Windows far apart stay apart: 1 of 1 hidden, then 1 of 9."""
    line = timeline((1, *HIDE, 0), (1, *HIDE, 1), (8, *WORK, 1))
    profile = cut_phases(line, 0.0, [SENT])
    assert profile.step_s == 10
    assert profile.seconds(2.0) == pytest.approx(2 + 9)
    joined = cut_phases(timeline((1, *HIDE, 0), (1, *HIDE, 0), (8, *WORK, 0)), 0.0, [SENT])
    assert joined.seconds(2.0) == 10


def test_exposed_latency_is_fixed_and_hidden_latency_follows_its_transfer() -> None:
    line = timeline((1, True, True, (), 0), (1, *HIDE, 0), (1, *LATE, 0), (1, *SEND, 0))
    profile = cut_phases(line, 1.0, [SENT])
    assert seconds_of(profile) == [(1, 0), (2, 1), (0, 1)]
    assert profile.phases[1].latency_s == 1
    assert profile.seconds(3.0) == 1 + (3 + 1) + 3


def test_transfers_that_others_have_are_put_into_waiting() -> None:
    """3 s of the step are unhidden transfer, 1 of this rank: half of its waiting is others'."""
    profile = cut_phases(timeline((5, *WORK, 0), (4, *WAIT, 0), (1, *SEND, 0)), 3.0, [SENT])
    assert profile.step_s == 10
    assert profile.seconds(2.0) == pytest.approx(13)
    amounts = [phase.flows.amount.sum() for phase in profile.phases]
    assert amounts == pytest.approx([0, 200 / 3, 100 / 3])  # as much a second


def test_transfers_that_dont_matter_to_the_step_hide() -> None:
    """The step has 1 s of unhidden transfer, this rank 4: three quarters hide behind others."""
    profile = cut_phases(timeline((6, *WORK, 0), (4, *SEND, 0)), 1.0, [SENT])
    assert profile.step_s == 10
    assert profile.seconds(1 + 1e-6) == pytest.approx(10 + 4e-6, rel=1e-12)


def test_classes_keep_their_own_time_and_bytes() -> None:
    other = make_flows(np.array([2]), np.array([3]), np.array([60.0]))
    line = timeline(
        (1, *SEND, 0), (2, False, True, (1,), 0), (1, False, True, (0, 1), 0), classes=2
    )
    profile = cut_phases(line, 4.0, [SENT, other])
    amounts = [by_pair([p.flows]) for p in profile.phases]
    assert amounts == [
        {(0, 1): pytest.approx(50)},
        {(2, 3): pytest.approx(40)},
        {(0, 1): pytest.approx(50), (2, 3): pytest.approx(20)},
    ]


def test_thousands_of_windows_become_few_phases() -> None:
    rows = []
    for number in range(2000):
        rows += [(0.5, *WORK, number), (0.25, *HIDE, number), (0.25, *SEND, number)]
    profile = cut_phases(timeline(*rows), 500.0, [SENT])
    assert 10 < len(profile.phases) <= MOST_PHASES
    assert profile.step_s == pytest.approx(2000)
    assert profile.seconds(3.0) == pytest.approx(2000 * (0.5 + 0.75 + 0.75))
    assert by_pair([p.flows for p in profile.phases])[0, 1] == pytest.approx(100)
