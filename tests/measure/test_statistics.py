"""The median and its interval against exact binomial coverage, by simulation."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from scipy.stats import binom

from jaxbench.measure.statistics import (
    CONFIDENCE,
    max_over_ranks,
    median,
    median_rank,
    min_over_ranks,
    percentile,
)

DRAWS = 2000


def draws(n: int, skewed: bool) -> tuple[np.ndarray, float]:
    """Return f64[draws, n] of a distribution, and its median."""
    normal = np.random.default_rng(n).standard_normal((DRAWS, n))
    return (np.exp(2 * normal), 1.0) if skewed else (normal, 0.0)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("n", range(6, 51))
def test_the_interval_covers_the_median_as_often_as_it_says(n: int, skewed: bool) -> None:
    samples, truth = draws(n, skewed)
    found = [median(row) for row in samples.tolist()]
    bounds = np.array([(m.ci_low, m.ci_high) for m in found], float)
    hits = np.mean((bounds[:, 0] <= truth) & (truth <= bounds[:, 1]))
    coverage = found[0].coverage
    assert coverage is not None and coverage >= CONFIDENCE
    assert hits == pytest.approx(coverage, abs=0.015)


@pytest.mark.parametrize("n", range(6))
def test_below_six_samples_there_is_no_interval(n: int) -> None:
    found = median([1.0, 2.0, 3.0, 4.0, 5.0][:n])
    assert (found.ci_low, found.ci_high, found.coverage, found.n) == (None, None, None, n)
    assert found.value == (None if n == 0 else (n + 1) / 2)


@pytest.mark.parametrize("n", [*range(1, 80), 1001, 20_000])
def test_ranks_and_coverage_are_the_binomial_distribution_s(n: int) -> None:
    enough = [k for k in range(1, n // 2 + 1) if 1 - 2 * binom.cdf(k - 1, n, 0.5) >= CONFIDENCE]
    rank = median_rank(n)
    assert (rank.k if rank else None) == (max(enough) if enough else None)
    if rank:
        assert rank.coverage == pytest.approx(1 - 2 * binom.cdf(rank.k - 1, n, 0.5), abs=1e-9)
        assert rank.inner == pytest.approx(1 - 2 * binom.cdf(rank.k, n, 0.5), abs=1e-9)


def test_ranks_of_known_sizes() -> None:
    """Order statistics of textbook tables: 1st and 6th of 6, 2nd and 9th of 10, 18th of 50."""
    six, ten, fifty = (median([float(i) for i in range(1, n + 1)]) for n in (6, 10, 50))
    assert (six.ci_low, six.ci_high) == (1, 6)
    assert (ten.ci_low, ten.ci_high) == (2, 9)
    assert (fifty.ci_low, fifty.ci_high) == (18, 33)
    assert (six.value, ten.value, fifty.value) == (3.5, 5.5, 25.5)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("n", [6, 8, 13, 24, 50])
def test_an_interpolated_interval_is_narrower_and_covers_about_as_asked(
    n: int, skewed: bool
) -> None:
    samples, truth = draws(n, skewed)
    hits, inside = 0, 0
    for row in samples.tolist():
        exact, found = median(row), median(row, interpolated=True)
        assert found.ci_low is not None and found.ci_high is not None
        assert exact.ci_low is not None and exact.ci_high is not None
        inside += exact.ci_low <= found.ci_low <= found.ci_high <= exact.ci_high
        hits += found.ci_low <= truth <= found.ci_high
    assert inside == DRAWS
    assert hits / DRAWS == pytest.approx(CONFIDENCE, abs=0.02)


def test_known_interpolated_ends() -> None:
    """Of 10 samples: 2nd and 9th cover 97.9 %, 3rd and 8th 89.1 %; the share is 0.658."""
    ten = median([float(i) for i in range(1, 11)], interpolated=True)
    surplus = (0.978515625 - 0.95) / (0.978515625 - 0.890625)
    share = 8 * surplus / (2 + 6 * surplus)
    assert ten.ci_low == pytest.approx(2 + share) and ten.ci_high == pytest.approx(9 - share)
    assert ten.coverage == CONFIDENCE


def test_percentiles_are_numpy_s_where_they_are_known() -> None:
    samples = np.random.default_rng(1).exponential(size=137)
    for percent in (1, 5, 25, 50, 90, 95, 99):
        assert percentile(samples.tolist(), percent) == pytest.approx(
            np.percentile(samples, percent)
        )


@pytest.mark.parametrize(
    ("percent", "least"), [(99, 100), (99.9, 1000), (95, 20), (90, 10), (1, 100)]
)
def test_a_percentile_is_unknown_where_nothing_is_expected_beyond(
    percent: float, least: int
) -> None:
    samples = [float(i) for i in range(least)]
    assert percentile(samples, percent) is not None
    assert percentile(samples[1:], percent) is None


@pytest.mark.parametrize("percent", [0, 100, -1])
def test_there_is_no_percentile_of_all_samples(percent: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        percentile([1.0, 2.0], percent)


def test_slowest_and_fastest_rank() -> None:
    steps = [[1.0, 3.0, 2.0], [5.0, 4.0, 6.0], [1.0, None, 2.0], []]
    assert max_over_ranks(steps) == [3.0, 6.0, None, None]
    assert min_over_ranks(steps) == [1.0, 4.0, None, None]


def test_nothing_is_taken_for_an_outlier() -> None:
    samples = [0.1] * 9 + [50.0]
    assert median(samples).n == 10
    assert percentile(samples, 90) == pytest.approx(
        statistics.quantiles(samples, n=10, method="inclusive")[-1]
    )
