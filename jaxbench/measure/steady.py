"""Warm-up until the steps are steady, which is detected and not assumed.

The rule only looks at samples, so process 0 can decide for all:

    warm_up = WarmUp(least=experiment.warmup)
    while not agree(int(warm_up.decide(samples))):
        ...time one more step on every process, appending to samples...
    record["warmup"] = warm_up.outcome(samples)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any


@dataclass(frozen=True)
class WarmUp:
    """Warm up until the last `window` steps are on the level of as many before, without a trend.

    At least `least` steps, at most `most` of them or about `max_seconds`: a run that isn't steady
    by then is measured as it is, and says so. Levels are medians, so that a single slow step
    neither ends nor prolongs the warm-up; they may differ by the share `tolerance`.
    """

    least: int = 2
    most: int = 50
    max_seconds: float = 60.0
    window: int = 3
    tolerance: float = 0.05

    def decide(self, samples: Sequence[float]) -> bool:
        """Tell whether the warm-up is over after these steps, in seconds."""
        if len(samples) < self.least:
            return False
        spent = len(samples) >= self.most or math.fsum(samples) >= self.max_seconds
        return spent or self.steady(samples)

    def steady(self, samples: Sequence[float]) -> bool:
        """Tell whether the last steps are on one level; False as long as there are too few."""
        k = self.window
        last = samples[-2 * k :]
        if len(last) < 2 * k:
            return False
        before, after = statistics.median(last[:k]), statistics.median(last[k:])
        return abs(after - before) <= self.tolerance * before and not self._trending(last)

    def needed(self, samples: Sequence[float]) -> int | None:
        """Return how many steps came before the steady ones; None if these were not reached.

        The first steady step is the first one that is near the last level, it and the median
        of the `window` from it on.
        """
        if not self.steady(samples):
            return None
        k, level = self.window, statistics.median(samples[-2 * self.window :])

        def near(seconds: float, share: float) -> bool:
            return abs(seconds - level) <= share * level

        for i in range(len(samples) - k):
            window = statistics.median(samples[i : i + k])
            if near(samples[i], 2 * self.tolerance) and near(window, self.tolerance):
                return i
        return len(samples) - k

    def outcome(self, samples: Sequence[float]) -> dict[str, Any]:
        """Return for the record: steps taken, whether they became steady, and after how many."""
        return {
            "steps": len(samples),
            "steady": self.steady(samples),
            "needed": self.needed(samples),
            "tolerance": self.tolerance,
        }

    def warnings(self, samples: Sequence[float]) -> list[str]:
        """Return what a run must say whose steps did not become steady."""
        if self.steady(samples):
            return []
        return [
            f"the steps were not steady after {len(samples)} of warm-up "
            f"({math.fsum(samples):.3g} s): within {self.tolerance:.0%} and without a trend"
        ]

    def _trending(self, last: Sequence[float]) -> bool:
        """Tell whether the steps go one way, and by more than half the tolerance on the whole.

        By Kendall's test: of 6 steps in random order, all pairs but one at most are in the same
        order in 1.7 % of cases. The change is Theil and Sen's, the median slope of all pairs.
        """
        pairs = list(combinations(range(len(last)), 2))
        signs = sum(math.copysign(1, last[j] - last[i]) for i, j in pairs if last[j] != last[i])
        one_way = abs(signs) > _kendall_limit(len(last))
        slope = statistics.median((last[j] - last[i]) / (j - i) for i, j in pairs)
        return one_way and abs(slope) * len(last) > self.tolerance / 2 * statistics.median(last)


def _kendall_limit(n: int) -> float:
    """Return the sum of pair signs that steps in random order exceed in 5 % of cases at most.

    Normal approximation with continuity correction (Kendall 1938); for n = 6 it is 11.4, so 13.
    """
    return 1.96 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18) + 1
