"""Statistics of step times, after Hoefler and Belli 2015 (SC'15, "Scientific benchmarking").

Nothing is removed as an outlier, and what too few samples can't tell is None, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Median:
    """A median with the order statistics that enclose it; None where there are too few samples.

    `coverage` is the exact probability with which such an interval holds the true median; for an
    interpolated interval it is the confidence asked for, which is met approximately.
    """

    value: float | None
    ci_low: float | None
    ci_high: float | None
    coverage: float | None
    n: int


def median(
    samples: Sequence[float], confidence: float = CONFIDENCE, *, interpolated: bool = False
) -> Median:
    """Return the median and the narrowest symmetric interval of order statistics around it.

    The k-th smallest and k-th largest of n samples enclose the median with probability
    1 - 2 P(Binomial(n, 1/2) <= k-1). At 95 % no such interval exists below n = 6. An
    `interpolated` interval lies between two such, to come near the confidence asked for
    instead of exceeding it (Hettmansperger and Sheather 1986; for n = 10, 95 % and not 97.9 %).
    """
    n = len(samples)
    if n == 0:
        return Median(None, None, None, None, 0)
    ordered = sorted(samples)
    value = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    rank = median_rank(n, confidence)
    if rank is None:
        return Median(value, None, None, None, n)
    k, coverage = rank.k, rank.coverage
    low, high = ordered[k - 1], ordered[n - k]
    if interpolated and 2 * k < n:
        surplus = (coverage - confidence) / (coverage - rank.inner)
        share = (n - k) * surplus / (k + (n - 2 * k) * surplus)
        low += share * (ordered[k] - low)
        high += share * (ordered[n - k - 1] - high)
        coverage = confidence
    return Median(value, low, high, coverage, n)


class Rank(NamedTuple):
    """Which order statistics enclose the median: the k-th smallest and the k-th largest.

    `coverage` is the exact probability that they do, `inner` that of rank k + 1.
    """

    k: int
    coverage: float
    inner: float


@lru_cache(maxsize=1024)
def median_rank(n: int, confidence: float = CONFIDENCE) -> Rank | None:
    """Return the rank of the narrowest interval for the median of n samples.

    None where even the smallest and the largest sample enclose it too seldom.
    """
    inside, inner, ways, total = 0, 0, math.comb(n, n // 2), 2**n
    for k in range(n // 2, 0, -1):  # from the middle outwards: some sqrt(n) steps, in integers
        inside, inner = inside + (ways if 2 * k == n else 2 * ways), inside
        if inside / total >= confidence:
            return Rank(k, inside / total, inner / total)
        ways = ways * k // (n - k + 1)
    return None


def percentile(samples: Sequence[float], percent: float) -> float | None:
    """Return a percentile, interpolated linearly between order statistics (NumPy's default).

    None where less than one sample is expected beyond it: p99 below n = 100, p90 below n = 10.
    """
    if not 0 < percent < 100:
        raise ValueError(f"percent is {percent}; it must be between 0 and 100")
    n = len(samples)
    beyond = min(percent, 100 - percent) / 100
    if n * beyond < 1 - 1e-9:
        return None
    ordered = sorted(samples)
    index, share = divmod((n - 1) * percent / 100, 1)
    low = int(index)
    return ordered[low] + share * (ordered[min(low + 1, n - 1)] - ordered[low])


def max_over_ranks(steps: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return each step's slowest process, of [steps][processes] seconds; None if one is unknown."""
    return [max(known) if (known := _whole(step)) else None for step in steps]


def min_over_ranks(steps: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return each step's fastest process, of [steps][processes] seconds; None if one is unknown.

    Where a step ends with a collective, that is the process which waited least for the others.
    """
    return [min(known) if (known := _whole(step)) else None for step in steps]


def _whole(step: Sequence[float | None]) -> list[float] | None:
    """Return a step's seconds, or None if a process's are not known."""
    known = [seconds for seconds in step if seconds is not None]
    return known if len(known) == len(step) else None
