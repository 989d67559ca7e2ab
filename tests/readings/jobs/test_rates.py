"""Rates that are kept up to date against rates computed from nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.costs.max_min import UNBOUND, Loads, max_min
from jaxbench.readings.jobs.rates import Rates, RoutedPhase
from jaxbench.readings.jobs.together import connected

PHASES = 3


def phase(link: list[int], Bps: list[float], flow: float) -> RoutedPhase:
    return RoutedPhase(0.0, 1.0, 0.0, np.array(link), np.array(Bps, float), flow)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[RoutedPhase]], np.ndarray, list[tuple[int, int]]]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    jobs, links = int(rng.integers(1, 6)), int(rng.integers(1, 8))
    phases = []
    for _ in range(jobs):
        own = []
        for _ in range(PHASES):
            used = np.flatnonzero(rng.random(links) < 0.5)
            own.append(
                phase(used.tolist(), rng.uniform(1, 9, len(used)).tolist(), rng.uniform(1, 5))
            )
        phases.append(own)
    capacity = rng.uniform(5, 20, links)
    changes = [
        (int(rng.integers(jobs)), int(rng.integers(-1, PHASES)))
        for _ in range(draw(st.integers(1, 25)))
    ]
    return phases, capacity, changes


@settings(max_examples=150, deadline=None)
@given(histories())
def test_rates_are_those_of_the_moment(
    history: tuple[list[list[RoutedPhase]], np.ndarray, list[tuple[int, int]]],
) -> None:
    phases, capacity, changes = history
    links = np.arange(len(capacity))
    rates = Rates(phases, links, capacity)
    now = np.full(len(phases), -1)
    for job, number in changes:
        before = rates.rate.copy()
        changed = rates.change(job, number)
        now[job] = number
        entries = [(j, phases[j][n]) for j, n in enumerate(now) if n >= 0]
        loads = Loads(
            np.concatenate([[], *(np.full(len(p.link), j) for j, p in entries)]).astype(int),
            np.concatenate([[], *(p.link for _, p in entries)]).astype(int),
            np.concatenate([[], *(p.Bps for _, p in entries)]),
        )
        flow = np.ones(len(phases))
        flow[[j for j, _ in entries]] = [p.flow_Bps for _, p in entries]
        expected = max_min(loads, capacity, flow)
        np.testing.assert_allclose(rates.rate, expected.rate, rtol=1e-9)
        assert ((rates.bound == UNBOUND) == (rates.rate == 1)).all()
        if not changed:
            np.testing.assert_array_equal(rates.rate, before)


def test_links_that_dont_matter_are_left_out() -> None:
    """Numbers of the phases are looked up; what isn't among `links` is never full."""
    jobs = [[phase([3, 8, 20], [5, 5, 5], 5.0)], [phase([1, 8], [5, 5], 5.0)]]
    rates = Rates(jobs, np.array([8, 9]), np.array([5.0, 5.0]))
    rates.change(0, 0)
    assert rates.change(1, 0)
    assert rates.rate.tolist() == [0.5, 0.5]
    assert rates.links[rates.bound].tolist() == [8, 8]


def test_the_same_loads_in_the_next_phase_change_nothing() -> None:
    twice = [phase([0], [5], 5.0), phase([0], [5 * (1 + 1e-12)], 5.0), phase([0], [4], 4.0)]
    rates = Rates([twice, [phase([0], [5], 5.0)]], np.array([0]), np.array([5.0]))
    rates.change(0, 0)
    assert rates.change(1, 0)
    assert not rates.change(0, 1)
    assert rates.change(0, 2)


def test_adaptive_routing_lends_and_takes_back() -> None:
    """Three groups: 0 to 1 is lent the way over 2 until somebody wants it."""
    between = lambda a, b: a * 3 + b  # noqa: E731
    jobs = [
        [phase([between(0, 1)], [20], 20.0)],
        [phase([between(0, 2)], [10], 10.0)],
    ]
    capacity = np.full(9, 10.0)
    rates = Rates(jobs, np.arange(9), capacity, slice(0, 9))
    rates.change(0, 0)
    assert rates.rate[0] == 1.0
    assert rates.change(1, 0)
    assert rates.rate.tolist() == [0.5, 1.0]
    assert rates.change(1, -1)
    assert rates.rate.tolist() == [1.0, 1.0]
    plain = Rates(jobs, np.arange(9), capacity)
    plain.change(0, 0)
    assert plain.rate[0] == 0.5


@pytest.mark.parametrize(
    ("use", "lending", "sets"),
    [
        ([[1], [2], [1, 3], [3]], [], [[0, 2, 3], [1]]),
        ([[1], [2], [3]], [], [[0], [1], [2]]),
        ([[1], [2], [3]], [2, 3], [[0], [1, 2]]),
        ([[], [], [5]], [5], [[0], [1], [2]]),
        ([[1], [2], [1, 2]], [], [[0, 1, 2]]),
    ],
)
def test_jobs_that_never_meet_are_apart(
    use: list[list[int]], lending: list[int], sets: list[list[int]]
) -> None:
    arrays = [np.array(links, int) for links in use]
    assert sorted(connected(arrays, np.array(lending, int))) == sets
