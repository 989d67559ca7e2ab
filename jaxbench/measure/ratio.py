"""Ratios of step times with confidence intervals; every interval is symmetric on the log scale.

A ratio is numerator over denominator, so that a slowdown of 5 % is 1.05. Seconds are positive.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxbench.measure.statistics import CONFIDENCE

BOOTSTRAP_FROM = 20  # samples a side from which geometric means are compared by bootstrap
RESAMPLES = 2000
DRIFT_CONFIDENCE = 0.99  # asked of every run, so one in a hundred is a false alarm
LEAST_STEPS = 6  # of a single run: with fewer even an interval of its own median is unknown


@dataclass(frozen=True)
class Ratio:
    """A ratio and its confidence interval; None where there are too few samples.

    `n` counts the samples of numerator and denominator, `runs` their runs where these are told
    apart, `method` says how the interval was found.
    """

    value: float | None
    ci_low: float | None
    ci_high: float | None
    n: tuple[int, int]
    method: str
    runs: tuple[int, int] | None = None

    @property
    def differs(self) -> bool | None:
        """Whether the interval excludes 1, so that a difference is shown; None if unknown."""
        if self.ci_low is None or self.ci_high is None:
            return None
        return not self.ci_low <= 1 <= self.ci_high

    def scaled(self, factor: float) -> Ratio:
        """Return the ratio and its interval times a positive number that is known exactly."""

        def times(value: float | None) -> float | None:
            return None if value is None else value * factor

        return replace(
            self,
            value=times(self.value),
            ci_low=times(self.ci_low),
            ci_high=times(self.ci_high),
        )


def ratio_of_geometric_means(
    numerator: Sequence[float],
    denominator: Sequence[float],
    confidence: float = CONFIDENCE,
    *,
    seed: int = 0,
) -> Ratio:
    """Return the ratio of geometric means of independent samples.

    The interval is Welch's on the logarithms and, from 20 samples a side on, of the symmetric
    studentised bootstrap (Hall 1988), the one that raises false alarms in at most 6 % of equal
    pairs of skewed samples too. Samples of one run are no runs: see `ratio_of_medians`.
    """
    import numpy as np

    n = (len(numerator), len(denominator))
    if min(n) == 0:
        return Ratio(None, None, None, n, "none")
    x, y = np.log(np.asarray(numerator, float)), np.log(np.asarray(denominator, float))
    difference = float(x.mean() - y.mean())
    if min(n) < 2:
        return Ratio(math.exp(difference), None, None, n, "none")
    variances = [float(side.var(ddof=1)) / len(side) for side in (x, y)]
    if min(n) < BOOTSTRAP_FROM or sum(variances) == 0:
        half = _welch(variances, (n[0] - 1, n[1] - 1), confidence)
        return _symmetric(difference, half, n, "welch")
    random = np.random.default_rng(seed)
    means, squares = zip(*(_resampled_means(side, random) for side in (x, y)), strict=True)
    errors = np.sqrt(squares[0] + squares[1])
    off = np.abs(means[0] - means[1] - difference)
    scores = np.divide(off, errors, out=np.zeros_like(off), where=errors > 0)
    half = float(np.quantile(scores, confidence)) * math.sqrt(sum(variances))
    return _symmetric(difference, half, n, "bootstrap")


def ratio_of_medians(
    numerator: Sequence[Sequence[float]],
    denominator: Sequence[Sequence[float]],
    confidence: float = CONFIDENCE,
    *,
    seed: int = 0,
) -> Ratio:
    """Return the ratio of median steps of two sides, each [runs][steps] seconds.

    A side's level is the geometric mean over its runs of a run's median step. Runs are what is
    independent, so they are what is resampled: for a mean over runs that has a closed form, whose
    variance already holds the noise of the steps (resampling these within each run as well would
    count it twice, Davison and Hinkley 1997, section 3.8), and few runs need Welch's t, as
    percentiles would be too narrow. From 20 runs a side on they are resampled in fact.

    Where a side has one run, its steps are resampled instead. How much runs vary is then unknown,
    and the interval is about that very run; it is None if the run has fewer than 6 steps.
    """
    sides = [[run for run in side if len(run)] for side in (numerator, denominator)]
    n = (sum(map(len, sides[0])), sum(map(len, sides[1])))
    runs = (len(sides[0]), len(sides[1]))
    if min(runs) == 0:
        return Ratio(None, None, None, n, "none", runs)
    medians = [[statistics.median(run) for run in side] for side in sides]
    if min(runs) > 1:
        ratio = ratio_of_geometric_means(medians[0], medians[1], confidence, seed=seed)
        return replace(ratio, n=n, runs=runs)
    levels = [math.fsum(map(math.log, side)) / len(side) for side in medians]
    difference = levels[0] - levels[1]
    if min(len(side[0]) for side in sides if len(side) == 1) < LEAST_STEPS:
        return Ratio(math.exp(difference), None, None, n, "none", runs)
    variances, freedoms = [], []
    for side, middles in zip(sides, medians, strict=True):
        if len(side) == 1:
            variances.append(_variance_of_log_median(side[0], seed))
            freedoms.append(len(side[0]) - 1)
        else:
            logs = [math.log(middle) for middle in middles]
            variances.append(statistics.variance(logs) / len(logs))
            freedoms.append(len(logs) - 1)
    half = _welch(variances, freedoms, confidence)
    return replace(_symmetric(difference, half, n, "bootstrap"), runs=runs)


@dataclass(frozen=True)
class Slowdown:
    """How much slower a job is beside others; `paper` is the variant of arXiv 2609.00817."""

    sigma: Ratio
    paper: float | None


def slowdown(concurrent: Sequence[float], baseline: Sequence[float]) -> Slowdown:
    """Return the slowdown sigma of a job's steps (slowest rank, seconds) beside other jobs.

    sigma is the geometric mean throughput alone over that beside others, which is the inverse
    ratio of step times. The paper divides the geometric mean alone by the throughput of the
    concurrent run as a whole, its samples over its seconds.
    """
    sigma = ratio_of_geometric_means(concurrent, baseline)
    if sigma.value is None:
        return Slowdown(sigma, None)
    alone = math.exp(math.fsum(map(math.log, baseline)) / len(baseline))
    return Slowdown(sigma, math.fsum(concurrent) / len(concurrent) / alone)


def scaling_efficiency(
    base: Sequence[Sequence[float]],
    larger: Sequence[Sequence[float]],
    *,
    devices: tuple[int, int],
    batches: tuple[float, float],
    seed: int = 0,
) -> Ratio:
    """Return T(N)/T(N0) * N0/N, T being the throughput, with the interval of the step times.

    `base` and `larger` are [runs][steps] seconds on `devices` = (N0, N), each step doing
    `batches` = (of N0, of N) samples. 1 is perfect scaling, weak or strong.
    """
    ratio = ratio_of_medians(base, larger, seed=seed)
    return ratio.scaled(batches[1] / batches[0] * devices[0] / devices[1])


def drift(samples: Sequence[float], confidence: float = DRIFT_CONFIDENCE) -> Ratio:
    """Return the second half of a run over its first half; above 1, the run became slower.

    It `differs` where the run did not have one level. None below 6 samples.
    """
    half = len(samples) // 2
    first, second = samples[:half], samples[half:]
    if len(samples) < LEAST_STEPS:
        return Ratio(None, None, None, (len(second), len(first)), "none")
    return ratio_of_geometric_means(second, first, confidence)


def _welch(variances: Sequence[float], freedoms: Sequence[float], confidence: float) -> float:
    """Return half the width of Welch's interval for a difference of two estimates.

    The degrees of freedom are Satterthwaite's.
    """
    from scipy.special import stdtrit  # scipy.stats would take a second to import

    total = sum(variances)
    if total == 0:
        return 0.0
    shares = [variance / total for variance in variances]
    freedom = 1 / sum(share**2 / f for share, f in zip(shares, freedoms, strict=True))
    return float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(total)


def _symmetric(difference: float, half: float, n: tuple[int, int], method: str) -> Ratio:
    """Return the ratio of a difference of logarithms, with `half` on either side."""
    ends = math.exp(difference - half), math.exp(difference + half)
    return Ratio(math.exp(difference), *ends, n, method)


def _resampled_means(logs: Any, random: Any, resamples: int = RESAMPLES) -> tuple[Any, Any]:
    """Return the means of resamples of f64[n] and their squared standard errors, f64[resamples]."""
    import numpy as np

    n, middle = len(logs), logs.mean()
    chunk = max(1, 1_000_000 // n)  # resamples at once: some 16 MB
    means, squares = np.empty(resamples), np.empty(resamples)
    for start in range(0, resamples, chunk):
        end = min(start + chunk, resamples)
        picked = random.integers(0, n, (end - start, n))
        drawn = np.take(logs - middle, picked)
        means[start:end] = drawn.mean(axis=1)
        squares[start:end] = np.einsum("ij,ij->i", drawn, drawn) / n
    errors = np.maximum(squares - means**2, 0) / (n - 1)
    return means + middle, errors


def _variance_of_log_median(samples: Sequence[float], seed: int) -> float:
    """Return the variance of the log median over resamples of the samples.

    Medians of resamples are drawn directly: the k-th smallest of n uniform numbers is distributed
    as Beta(k, n+1-k), the next one is the smallest of the n-k above it, and a number between 0
    and 1 picks the sample at n times itself.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    ordered, n = np.sort(np.asarray(samples, float)), len(samples)
    k = (n + 1) // 2
    place = random.beta(k, n + 1 - k, RESAMPLES)
    middle = ordered[np.minimum((n * place).astype(int), n - 1)]
    if n % 2 == 0:
        place = 1 - (1 - place) * random.random(RESAMPLES) ** (1 / (n - k))
        middle = (middle + ordered[np.minimum((n * place).astype(int), n - 1)]) / 2
    return float(np.log(middle).var())
