"""The median and its interval against exact binomial coverage, by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from jaxbench.measure.statistics import median


@pytest.mark.parametrize("n", [6, 7, 10, 25, 50])
@pytest.mark.parametrize("skewed", [False, True])
def test_the_interval_covers_the_median_as_often_as_it_says(n: int, skewed: bool) -> None:
    random = np.random.default_rng(n)
    draws = random.standard_normal((2000, n))
    if skewed:
        draws = np.exp(2 * draws)
    truth = 1.0 if skewed else 0.0
    found = [median(row.tolist()) for row in draws]
    bounds = np.array([(m.ci_low, m.ci_high) for m in found], float)
    hits = np.mean((bounds[:, 0] <= truth) & (truth <= bounds[:, 1]))
    assert found[0].coverage is not None and found[0].coverage >= 0.95
    assert hits == pytest.approx(found[0].coverage, abs=0.015)


def test_ranks_of_known_sizes() -> None:
    """Order statistics of textbook tables: 1st and 6th of 6, 2nd and 9th of 10, 18th of 50."""
    six, ten, fifty = (median([float(i) for i in range(1, n + 1)]) for n in (6, 10, 50))
    assert (six.ci_low, six.ci_high) == (1, 6)
    assert (ten.ci_low, ten.ci_high) == (2, 9)
    assert (fifty.ci_low, fifty.ci_high) == (18, 33)


def test_unknown_is_none() -> None:
    assert median([]).value is None
    five = median([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (five.value, five.ci_low, five.ci_high, five.coverage) == (3.0, None, None, None)
