"""Stop rules and warm-up on made-up steps: when they end, and what they say of it."""

from __future__ import annotations

import numpy as np
import pytest

from jaxbench.measure.statistics import median
from jaxbench.measure.steady import WarmUp
from jaxbench.measure.stopping import StopRule, ci_within


def taken(rule: StopRule, steps: list[float]) -> tuple[list[float], int]:
    """Follow a rule through these steps; return those taken, and how often it was asked."""
    samples: list[float] = []
    asked = 0
    while more := rule.more(samples):
        assert more > 0 and not rule.decide(samples)
        samples = steps[: len(samples) + more]
        asked += 1
    assert rule.decide(samples)
    return samples, asked


def noisy(cv: float, n: int = 5000, seed: int = 0) -> list[float]:
    return np.random.default_rng(seed).lognormal(0, cv, n).tolist()


# --- stopping -----------------------------------------------------------------------------------


def test_a_number_of_steps() -> None:
    samples, asked = taken(StopRule(steps=7), noisy(0.5))
    assert (len(samples), asked) == (7, 1)
    outcome = StopRule(steps=7).outcome(samples)
    assert (outcome["steps"], outcome["met"], outcome["asked"]["max_steps"]) == (7, True, None)
    assert StopRule(steps=7).warnings(samples) == []


def test_a_time() -> None:
    rule = StopRule(steps=3, min_seconds=5.0)
    samples, asked = taken(rule, [0.1] * 1000)
    assert len(samples) == pytest.approx(50, abs=1) and sum(samples) >= 5 - 1e-9
    assert asked <= 8
    assert len(taken(rule, [4.0] * 10)[0]) == 3  # as many steps as asked for all the same


def test_steps_that_become_slower_don_t_prolong_a_time_by_much() -> None:
    samples, _ = taken(StopRule(steps=3, min_seconds=60.0), [0.1] * 10 + [30.0] * 100)
    assert len(samples) <= 24  # at most as many again are taken before looking at the time


def test_until_the_median_is_known() -> None:
    rule = StopRule(steps=6, until_ci=0.02)
    counts = []
    for seed in range(40):
        samples, asked = taken(rule, noisy(0.05, seed=seed))
        within = ci_within(samples)
        assert within is not None and within <= 0.02
        found = median(samples)
        assert found.value and found.ci_low and found.ci_high
        assert found.ci_low >= 0.98 * found.value and found.ci_high <= 1.02 * found.value
        counts.append(len(samples))
        assert asked <= 1 + len(samples) / 2
        assert rule.outcome(samples)["met"] and rule.warnings(samples) == []
    # 1.96 * 1.2533 * 5 % / sqrt(n) = 2 % at n = 38; looking more than once ends some runs early.
    assert 15 < np.median(counts) < 90


def test_until_ci_is_given_up_at_a_bound() -> None:
    by_steps = StopRule(steps=6, until_ci=0.01, max_steps=100)
    samples, _ = taken(by_steps, noisy(0.5))
    assert len(samples) == 100
    outcome = by_steps.outcome(samples)
    assert not outcome["met"] and outcome["ci_within"] == ci_within(samples)
    (warning,) = by_steps.warnings(samples)
    assert "after 100 steps" in warning and "not 1.0%" in warning
    by_time = StopRule(steps=6, until_ci=0.01, max_seconds=30.0)
    samples, _ = taken(by_time, noisy(0.5))
    assert 28 < sum(samples) < 34


def test_bounds_bound_nothing_that_was_asked_for() -> None:
    assert len(taken(StopRule(steps=30, max_steps=10, max_seconds=1.0), [1.0] * 99)[0]) == 30
    rule = StopRule(steps=30, until_ci=0.5, max_steps=10, max_seconds=1.0)
    assert len(taken(rule, [1.0] * 99)[0]) == 30


def test_fewer_than_six_steps_have_no_interval() -> None:
    assert ci_within([1.0] * 5) is None and ci_within([1.0] * 6) == 0
    assert len(taken(StopRule(steps=1, until_ci=0.5), [1.0] * 99)[0]) == 6
    (warning,) = StopRule(steps=1, until_ci=0.5).warnings([1.0])
    assert "CI is unknown" in warning


def test_decisions_are_those_of_the_samples_alone() -> None:
    rule, samples = StopRule(steps=6, until_ci=0.02), noisy(0.05, 40)
    assert [rule.more(samples[:n]) for n in range(40)] == [
        rule.more(samples[:n]) for n in range(40)
    ]


# --- warm-up ------------------------------------------------------------------------------------


def warmed(rule: WarmUp, steps: list[float]) -> list[float]:
    """Follow a warm-up through these steps; return those taken."""
    count = 0
    while not rule.decide(steps[:count]):
        count += 1
    return steps[:count]


def test_steady_steps_need_no_more_than_two_windows() -> None:
    rule = WarmUp()
    samples = warmed(rule, [1.0] * 60)
    assert rule.outcome(samples) == {"steps": 6, "steady": True, "needed": 0, "tolerance": 0.05}
    assert rule.warnings(samples) == []


def test_the_first_steps_are_slow() -> None:
    rule = WarmUp()
    samples = warmed(rule, [9.0, 1.4] + [1.0] * 60)
    assert rule.outcome(samples)["steady"] and rule.needed(samples) == 2
    assert len(samples) <= 8


def test_a_slow_approach_is_waited_for() -> None:
    rule = WarmUp()
    approach = [1 + 0.5 * 0.8**i for i in range(60)]
    samples = warmed(rule, approach)
    assert 10 <= len(samples) <= 25 and rule.steady(samples)
    assert samples[-1] < 1.03
    needed = rule.needed(samples)
    assert needed is not None and 5 <= needed <= len(samples) - 3


def test_a_trend_within_the_tolerance_is_seen() -> None:
    drifting = [1 + 0.01 * i for i in range(6)]
    assert abs(np.median(drifting[3:]) / np.median(drifting[:3]) - 1) < WarmUp().tolerance
    assert not WarmUp().steady(drifting)
    assert WarmUp().steady([1 + 0.001 * i for i in range(6)])  # a trend, but of half a percent
    assert WarmUp().steady([1.02, 1.0, 1.03, 1.01, 1.03, 1.0])


def test_a_single_slow_step_is_no_change_of_level() -> None:
    assert WarmUp().steady([1.0, 1.01, 7.0, 1.0, 1.0, 1.01])
    assert not WarmUp().steady([1.2, 1.21, 1.2, 1.0, 1.0, 1.01])


def test_what_never_becomes_steady_ends_at_a_bound_and_says_so() -> None:
    rule = WarmUp(most=20)
    samples = warmed(rule, [1.0, 1.5] * 60)
    assert rule.outcome(samples) == {
        "steps": 20,
        "steady": False,
        "needed": None,
        "tolerance": 0.05,
    }
    (warning,) = rule.warnings(samples)
    assert "not steady after 20" in warning
    assert len(warmed(WarmUp(max_seconds=10), [1.0, 3.0] * 60)) == 6  # 12 s


@pytest.mark.parametrize("cv", [0.01, 0.05, 0.1])
def test_noise_ends_by_chance_but_soon(cv: float) -> None:
    rule = WarmUp()
    counts = [len(warmed(rule, noisy(cv, 60, seed))) for seed in range(200)]
    assert np.mean(counts) < 10 and np.mean(np.array(counts) < 50) >= 0.99


def test_no_fewer_than_asked_for() -> None:
    assert len(warmed(WarmUp(least=15), [1.0] * 60)) == 15
    assert not WarmUp().steady([1.0] * 5)
