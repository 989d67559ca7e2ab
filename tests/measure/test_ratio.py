"""Ratios of step times: how often they are wrong, and what they find, on synthetic samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import ttest_ind

from jaxbench.measure.ratio import (
    BOOTSTRAP_FROM,
    Ratio,
    drift,
    ratio_of_geometric_means,
    ratio_of_medians,
    scaling_efficiency,
    slowdown,
)

DRAWS = 2000
MOST_FALSE_ALARMS = 0.06
CV = 0.05  # of steps in a run

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

# Positive samples with median near 1 and a coefficient of variation of CV.
SHAPES: dict[str, Draw] = {
    "normal": lambda random, shape: 1 + CV * random.standard_normal(shape),
    "skewed": lambda random, shape: 1 - CV + CV * random.exponential(size=shape),
}


def runs_of(shape: str, seed: int, runs: int, steps: int, run_cv: float) -> list:
    """Return [draws][runs][steps] seconds; runs have levels of their own."""
    random = np.random.default_rng(seed)
    level = 1 + (SHAPES[shape](random, (DRAWS, runs, 1)) - 1) * run_cv / CV
    return (level * SHAPES[shape](random, (DRAWS, runs, steps))).tolist()


def alarms(found: list[Ratio]) -> float:
    assert None not in [ratio.differs for ratio in found]
    return float(np.mean([bool(ratio.differs) for ratio in found]))


def level(found: list[Ratio]) -> float:
    return float(np.median([ratio.value or 0.0 for ratio in found]))


# --- comparisons of runs ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("runs", "steps", "run_cv"),
    [(2, 10, 0.03), (5, 10, 0.0), (5, 10, 0.03), (5, 50, 0.1), (10, 6, 0.01), (20, 6, 0.03)],
)
def test_equal_sides_raise_few_alarms(shape: str, runs: int, steps: int, run_cv: float) -> None:
    a, b = (runs_of(shape, seed, runs, steps, run_cv) for seed in (1, 2))
    found = [ratio_of_medians(y, x) for x, y in zip(a, b, strict=True)]
    assert alarms(found) <= MOST_FALSE_ALARMS


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("steps", [6, 10, 21, 50])
def test_equal_steps_of_single_runs_raise_few_alarms(shape: str, steps: int) -> None:
    a, b = (runs_of(shape, seed, 1, steps, 0.0) for seed in (3, 4))
    found = [ratio_of_medians(y, x) for x, y in zip(a, b, strict=True)]
    assert alarms(found) <= MOST_FALSE_ALARMS


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("runs", "run_cv"), [(1, 0.0), (5, 0.01)])
def test_a_slowdown_of_5_percent_is_found_at_50_steps(shape: str, runs: int, run_cv: float) -> None:
    a, b = (runs_of(shape, seed, runs, 50, run_cv) for seed in (5, 6))
    found = [ratio_of_medians((1.05 * np.array(y)).tolist(), x) for x, y in zip(a, b, strict=True)]
    assert alarms(found) >= 0.95
    assert level(found) == pytest.approx(1.05, abs=0.003)


def test_steps_alone_would_find_differences_between_any_two_runs() -> None:
    """Why runs are what counts: pooled steps of runs that differ are no independent samples."""
    a, b = (np.array(runs_of("normal", seed, 5, 50, 0.03)) for seed in (1, 2))
    pooled = [
        ratio_of_medians([y.ravel().tolist()], [x.ravel().tolist()])
        for x, y in zip(a[:200], b[:200], strict=True)
    ]
    assert alarms(pooled) > 0.3


def test_the_level_is_the_geometric_mean_of_the_runs_medians() -> None:
    a = [[1.0, 1.0, 9.0], [4.0, 4.0, 4.0]]
    ratio = ratio_of_medians([[8.0], [2.0, 2.0]], a)
    assert ratio.value == pytest.approx(math.sqrt(8 * 2) / math.sqrt(1 * 4))
    assert (ratio.n, ratio.runs) == ((3, 6), (2, 2))


def test_a_single_run_needs_six_steps() -> None:
    five, six, several = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [[1.0], [2.0]]
    for other in ([six], several):
        assert ratio_of_medians([five], other).ci_low is None
        assert ratio_of_medians(other, [five]).differs is None
        assert ratio_of_medians([six], other).ci_low is not None
        assert ratio_of_medians(other, [six]).ci_high is not None
    assert ratio_of_medians([five], [six]).value == pytest.approx(3 / 3.5)
    assert ratio_of_medians([[]], [six]) == Ratio(None, None, None, (0, 6), "none", (0, 1))


def test_one_exact_second_leaves_the_interval_of_the_runs() -> None:
    """A side without any spread adds none, so that a level alone has an interval too."""
    runs = [[2.0], [2.2], [1.9], [2.1]]
    level = ratio_of_medians(runs, [[1.0] * 6])
    both = ratio_of_medians(runs, [[1.0], [1.0]])
    assert level.ci_low == pytest.approx(both.ci_low) and level.ci_high == pytest.approx(
        both.ci_high
    )


def test_the_same_samples_give_the_same_interval() -> None:
    (a,), (b,) = (runs_of("skewed", seed, 1, 30, 0.0)[:1] for seed in (1, 2))
    assert ratio_of_medians(a, b) == ratio_of_medians(a, b)
    assert ratio_of_medians(a, b) != ratio_of_medians(a, b, seed=1)


def test_resampled_medians_are_those_of_resampling() -> None:
    """Their variance, drawn directly, against resampling as one would write it down."""
    from jaxbench.measure.ratio import _variance_of_log_median

    random = np.random.default_rng(0)
    for n in (6, 7, 30):
        samples = random.exponential(size=n) + 0.1
        plain = np.log(np.median(samples[random.integers(0, n, (40_000, n))], axis=1)).var()
        found = np.mean([_variance_of_log_median(samples.tolist(), seed) for seed in range(20)])
        assert found == pytest.approx(plain, rel=0.03)


# --- geometric means ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [6, BOOTSTRAP_FROM - 1, BOOTSTRAP_FROM, 50])
def test_equal_samples_raise_few_alarms(shape: str, n: int) -> None:
    a, b = (SHAPES[shape](np.random.default_rng(s), (DRAWS, n)).tolist() for s in (7, 8))
    found = [ratio_of_geometric_means(y, x) for x, y in zip(a, b, strict=True)]
    assert {ratio.method for ratio in found} == {"bootstrap" if n >= BOOTSTRAP_FROM else "welch"}
    assert 0.02 <= alarms(found) <= MOST_FALSE_ALARMS


@pytest.mark.parametrize("shape", SHAPES)
def test_a_slowdown_of_5_percent_is_found_in_geometric_means(shape: str) -> None:
    a, b = (SHAPES[shape](np.random.default_rng(s), (DRAWS, 50)) for s in (9, 10))
    found = [ratio_of_geometric_means(1.05 * y, x) for x, y in zip(a, b, strict=True)]
    assert alarms(found) >= 0.95


def test_welch_is_scipy_s() -> None:
    random = np.random.default_rng(2)
    a, b = np.exp(random.standard_normal(8)), np.exp(2 * random.standard_normal(15))
    ratio = ratio_of_geometric_means(a.tolist(), b.tolist())
    expected = ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    assert ratio.ci_low == pytest.approx(math.exp(expected.low))
    assert ratio.ci_high == pytest.approx(math.exp(expected.high))
    assert ratio.value == pytest.approx(math.exp(np.log(a).mean() - np.log(b).mean()))


def test_bootstrap_and_welch_agree_on_many_normal_samples() -> None:
    random = np.random.default_rng(3)
    a, b = (np.exp(0.1 * random.standard_normal(200)) for _ in range(2))
    boot = ratio_of_geometric_means(a.tolist(), b.tolist())
    welch = ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    assert boot.method == "bootstrap"
    assert math.log(boot.ci_high or 0) == pytest.approx(welch.high, abs=0.002)


def test_what_too_few_samples_tell() -> None:
    assert ratio_of_geometric_means([], [1.0]).value is None
    one = ratio_of_geometric_means([2.0], [1.0, 1.0])
    assert (one.value, one.ci_low, one.differs) == (pytest.approx(2), None, None)
    same = ratio_of_geometric_means([1.0, 1.0], [1.0, 1.0])
    assert (same.value, same.ci_low, same.ci_high, same.differs) == (1, 1, 1, False)


# --- what is made of them -----------------------------------------------------------------------


def test_a_scaled_ratio_scales_its_interval() -> None:
    assert Ratio(2.0, 1.0, 4.0, (6, 6), "welch").scaled(0.5) == Ratio(
        1.0, 0.5, 2.0, (6, 6), "welch"
    )
    assert Ratio(2.0, None, None, (2, 2), "none").scaled(3).ci_low is None


def test_efficiency_of_weak_and_strong_scaling() -> None:
    """Eight times the devices: as long for 8 times the batch, or twice the ideal for the same."""
    base, same, eighth = [[1.0], [1.1]], [[1.0], [1.1]], [[0.25], [0.275]]
    weak = scaling_efficiency(base, same, devices=(4, 32), batches=(16, 128))
    assert weak.value == pytest.approx(1.0)
    assert weak.ci_low is not None and weak.ci_low < 1 < (weak.ci_high or 0)
    strong = scaling_efficiency(base, eighth, devices=(4, 32), batches=(16, 16))
    assert strong.value == pytest.approx(0.5)


def test_slowdown_in_both_definitions() -> None:
    found = slowdown([1.0, 4.0], [1.0, 1.0])
    assert found.sigma.value == pytest.approx(2.0)  # geometric mean of 1 and 4
    assert found.paper == pytest.approx(2.5)  # two steps in 5 s, alone in 2 s
    assert slowdown([], [1.0]).paper is None


def test_drift() -> None:
    random = np.random.default_rng(4)
    steady = 1 + 0.02 * random.standard_normal((DRAWS, 30))
    assert alarms([drift(row) for row in steady[:500].tolist()]) <= 0.03
    slower = steady * np.linspace(1, 1.1, 30)
    found = [drift(row) for row in slower[:500].tolist()]
    assert alarms(found) >= 0.95
    assert level(found) == pytest.approx(1.05, abs=0.01)
    assert drift([1.0] * 5).value is None
    assert drift([1.0, 1.1, 1.0, 2.0, 2.1, 2.2, 2.3]).n == (4, 3)
