"""Statistics of step times, after Hoefler and Belli 2015 (SC'15, "Scientific benchmarking")."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Median:
    """A median with the order statistics that enclose it; None where there are too few samples.

    `coverage` is the exact probability with which such an interval holds the true median.
    """

    value: float | None
    ci_low: float | None
    ci_high: float | None
    coverage: float | None
    n: int


def median(samples: Sequence[float], confidence: float = CONFIDENCE) -> Median:
    """Return the median and the narrowest symmetric interval of order statistics around it.

    The k-th smallest and k-th largest of n samples enclose the median with probability
    1 - 2 P(Binomial(n, 1/2) <= k-1). At 95 % no such interval exists below n = 6.
    """
    n = len(samples)
    if n == 0:
        return Median(None, None, None, None, 0)
    ordered = sorted(samples)
    chosen = None
    for k in range(1, n // 2 + 1):
        coverage = 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n
        if coverage < confidence:
            break
        chosen = k, coverage
    value = statistics.median(ordered)
    if chosen is None:
        return Median(value, None, None, None, n)
    k, coverage = chosen
    return Median(value, ordered[k - 1], ordered[n - k], coverage, n)
