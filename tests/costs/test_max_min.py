"""Max-min fair rates: closed forms, a linear program, and the property that defines them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from jaxbench.costs.max_min import UNBOUND, Loads, Shares, max_min


def loads_of(dense: np.ndarray) -> Loads:
    """Return a dense [J, L] table of loads as entries."""
    job, link = np.nonzero(dense)
    return Loads(job, link, dense[job, link])


def share(dense: Sequence[Sequence[float]], capacity: list[float], flow: list[float]) -> Shares:
    return max_min(loads_of(np.array(dense, float)), np.array(capacity, float), np.array(flow))


@pytest.mark.parametrize("jobs", [1, 2, 3, 10])
def test_equal_jobs_share_a_link_equally(jobs: int) -> None:
    shares = share([[10.0]] * jobs, [10.0], [10.0] * jobs)
    np.testing.assert_allclose(shares.rate, 1 / jobs, rtol=1e-12)
    assert set(shares.bound) == ({0} if jobs > 1 else {UNBOUND})


def test_a_link_that_just_suffices_bounds_nobody() -> None:
    shares = share([[6.0], [4.0]], [10.0], [6.0, 4.0])
    assert shares.rate.tolist() == [1.0, 1.0]
    assert shares.bound.tolist() == [UNBOUND, UNBOUND]


def test_who_wants_little_gets_it_and_the_rest_share() -> None:
    """Three flows of 1, 8 and 8 on a link of 10: the classic 1, 4.5, 4.5."""
    shares = share([[1.0], [8.0], [8.0]], [10.0], [1.0, 8.0, 8.0])
    np.testing.assert_allclose(shares.rate * [1, 8, 8], [1, 4.5, 4.5], rtol=1e-12)
    assert shares.bound.tolist() == [UNBOUND, 0, 0]


def test_more_flows_get_more_shares() -> None:
    """Nine flows of one job and one of another: 9 of 10 parts, as each flow gets one."""
    shares = share([[90.0], [10.0]], [10.0], [10.0, 10.0])
    np.testing.assert_allclose(shares.rate * [90, 10], [9, 1], rtol=1e-12)


def test_the_textbook_line() -> None:
    """One flow over both links of a line, two on the first: 1/3, 1/3, 1/3; the second link's own
    flow takes the rest, 2/3."""
    dense = [[1, 1], [1, 0], [1, 0], [0, 1]]
    shares = share(dense, [1.0, 1.0], [1.0] * 4)
    np.testing.assert_allclose(shares.rate, [1 / 3, 1 / 3, 1 / 3, 2 / 3], rtol=1e-12)
    assert shares.bound.tolist() == [0, 0, 0, 1]


def test_a_job_without_links_is_undisturbed() -> None:
    assert share([[0.0], [5.0], [5.0]], [5.0], [1.0, 5.0, 5.0]).rate[0] == 1.0


def test_a_limit_below_one_is_kept_and_leaves_room() -> None:
    dense = np.array([[10.0], [10.0]])
    shares = max_min(loads_of(dense), np.array([10.0]), np.array([10.0, 10.0]), np.array([0.2, 1]))
    np.testing.assert_allclose(shares.rate, [0.2, 0.8], rtol=1e-12)
    assert shares.bound.tolist() == [UNBOUND, 0]


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    jobs, links = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    seed = draw(st.integers(0, 2**32 - 1))
    whole = draw(st.booleans())  # whole numbers make ties
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 5, (jobs, links)) if whole else rng.uniform(0.1, 10, (jobs, links))
    dense = dense * (rng.random((jobs, links)) < draw(st.sampled_from([0.3, 0.6, 1.0])))
    capacity = rng.integers(1, 6, links) if whole else rng.uniform(0.1, 20, links)
    flow = rng.integers(1, 4, jobs) if whole else rng.uniform(0.1, 10, jobs)
    most = rng.uniform(0.05, 1, jobs) if draw(st.booleans()) else np.ones(jobs)
    return dense.astype(float), capacity.astype(float), flow.astype(float), most


def water_filling(
    dense: np.ndarray, capacity: np.ndarray, flow: np.ndarray, most: np.ndarray
) -> np.ndarray:
    """The definition, by linear programs: raise all flows that may still rise as far as possible,
    then freeze those that can't be raised while the others keep what they have."""
    jobs = len(flow)
    fixed: dict[int, float] = {}
    while len(fixed) < jobs:
        rising = [j for j in range(jobs) if j not in fixed]
        # variables: x of every job, and the level y that the flows of the rising ones reach
        rows = np.hstack([dense.T, np.zeros((len(capacity), 1))])
        level = [[*(-flow[j] * (np.arange(jobs) == j)), 1.0] for j in rising]
        bounds = [(fixed[j], fixed[j]) if j in fixed else (0, most[j]) for j in range(jobs)]
        top = linprog(
            [0.0] * jobs + [-1.0],
            np.vstack([rows, level]),
            [*capacity, *np.zeros(len(rising))],
            bounds=[*bounds, (0, None)],
        )
        assert top.status == 0, top.message
        reached = -top.fun
        for j in rising:
            at_least = [
                (v, v) if k in fixed else (min(reached / flow[k] * (1 - 1e-9), most[k]), most[k])
                for k, v in ((k, fixed.get(k, 0.0)) for k in range(jobs))
            ]
            best = linprog(
                -(np.arange(jobs) == j).astype(float), dense.T, capacity, bounds=at_least
            )
            assert best.status == 0, best.message
            if -best.fun * flow[j] <= reached * (1 + 1e-6) + 1e-9:
                fixed[j] = min(reached / flow[j], most[j])
    return np.array([fixed[j] for j in range(jobs)])


@settings(max_examples=150, deadline=None)
@given(cases())
def test_equals_the_definition(case: tuple[np.ndarray, ...]) -> None:
    dense, capacity, flow, most = case
    shares = max_min(loads_of(dense), capacity, flow, most)
    np.testing.assert_allclose(
        shares.rate, water_filling(dense, capacity, flow, most), rtol=1e-5, atol=1e-7
    )


@settings(max_examples=400, deadline=None)
@given(cases())
def test_feasible_and_everyone_below_its_limit_has_a_reason(
    case: tuple[np.ndarray, ...],
) -> None:
    dense, capacity, flow, most = case
    shares = max_min(loads_of(dense), capacity, flow, most)
    used = shares.rate @ dense
    assert (used <= capacity * (1 + 1e-9)).all()
    assert (shares.rate <= most).all() and (shares.rate > 0).all()
    for j in range(len(flow)):
        link = shares.bound[j]
        if link == UNBOUND:
            assert shares.rate[j] == pytest.approx(most[j], rel=1e-12)
            continue
        assert dense[j, link] > 0
        assert used[link] == pytest.approx(capacity[link], rel=1e-8)
        others = (shares.rate * flow)[dense[:, link] > 0]
        assert shares.rate[j] * flow[j] >= others.max() * (1 - 1e-8)


@settings(max_examples=200, deadline=None)
@given(cases(), st.permutations(range(7)))
def test_the_order_of_jobs_means_nothing(case: tuple[np.ndarray, ...], order: list[int]) -> None:
    dense, capacity, flow, most = case
    order = [j for j in order if j < len(flow)]
    plain = max_min(loads_of(dense), capacity, flow, most)
    turned = max_min(loads_of(dense[order]), capacity, flow[order], most[order])
    np.testing.assert_allclose(turned.rate, plain.rate[order], rtol=1e-9)


@pytest.mark.parametrize("more", [1, 2, 5])
def test_more_jobs_on_one_link_leave_less_for_each(more: int) -> None:
    """On one link this is a law; on several a newcomer may free another job by slowing a third."""
    few = share([[7.0], [3.0]], [8.0], [7.0, 3.0]).rate
    many = share([[7.0], [3.0], *[[4.0]] * more], [8.0], [7.0, 3.0, *[4.0] * more]).rate
    assert (many[:2] <= few).all() and (many[:2] < few).any()


def test_nobody_needs_no_rates() -> None:
    nothing = Loads(np.empty(0, int), np.empty(0, int), np.empty(0))
    assert len(max_min(nothing, np.array([1.0]), np.empty(0)).rate) == 0
