"""When a run has enough steps: a number of them, a time, or a median that is known well enough.

A rule only looks at samples, so process 0 can decide for all:

    rule = StopRule(steps=10, until_ci=0.02)
    while more := agree(rule.more(samples)):
        ...time `more` steps on every process, appending to samples...
    warnings += rule.warnings(samples)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxbench.measure.statistics import CONFIDENCE, median


@dataclass(frozen=True)
class StopRule:
    """Stop after `steps` and `min_seconds`, and once the median is known within `until_ci`.

    `until_ci` is a share of the median (2 % is 0.02) within which both ends of its interval lie.
    It is given up after `max_steps` or `max_seconds` of steps, which bound nothing else. An
    interval at which one stops because it is narrow holds less often: 93 % in simulations.
    """

    steps: int = 10
    min_seconds: float = 0.0
    until_ci: float | None = None
    max_steps: int = 1000
    max_seconds: float = 300.0

    def decide(self, samples: Sequence[float]) -> bool:
        """Tell whether these steps, in seconds, are enough."""
        return self.more(samples) == 0

    def more(self, samples: Sequence[float]) -> int:
        """Return how many more steps to take before asking again; 0 to stop.

        Asking after every step would stop at the first interval that is narrow by chance, and
        costs a broadcast: the number grows with the steps taken.
        """
        n, seconds = len(samples), math.fsum(samples)
        if n < self.steps:
            return self.steps - n
        if seconds < self.min_seconds:
            return _steps_in(self.min_seconds - seconds, seconds, n)
        if self.until_ci is None or self._given_up(n, seconds) or self._narrow(samples):
            return 0
        in_time = _steps_in(self.max_seconds - seconds, seconds, n)
        return min(max(2, n // 10), self.max_steps - n, in_time)

    def outcome(self, samples: Sequence[float]) -> dict[str, Any]:
        """Return for the record what was asked for and what came of it.

        `ci_within` is the share of the median within which its interval lies, None if unknown;
        `met` whether all that was asked for is reached.
        """
        n, seconds = len(samples), math.fsum(samples)
        enough = n >= self.steps and seconds >= self.min_seconds
        return {
            "asked": {
                "steps": self.steps,
                "min_seconds": self.min_seconds,
                "until_ci": self.until_ci,
                "max_steps": self.max_steps if self.until_ci else None,
                "max_seconds": self.max_seconds if self.until_ci else None,
            },
            "steps": n,
            "seconds": seconds,
            "ci_within": ci_within(samples),
            "met": enough and (self.until_ci is None or self._narrow(samples)),
        }

    def warnings(self, samples: Sequence[float]) -> list[str]:
        """Return what a finished run must say: that its median is known less well than asked."""
        if self.until_ci is None or self._narrow(samples):
            return []
        within = ci_within(samples)
        known = "is unknown" if within is None else f"is within {within:.1%}"
        return [
            f"after {len(samples)} steps ({math.fsum(samples):.3g} s) the median's "
            f"{CONFIDENCE:.0%} CI {known}, not {self.until_ci:.1%}: "
            f"given up after {self.max_steps} steps or {self.max_seconds:g} s"
        ]

    def _given_up(self, n: int, seconds: float) -> bool:
        return n >= self.max_steps or seconds >= self.max_seconds

    def _narrow(self, samples: Sequence[float]) -> bool:
        within = ci_within(samples)
        return within is not None and self.until_ci is not None and within <= self.until_ci


def ci_within(samples: Sequence[float]) -> float | None:
    """Return the share of the median within which both ends of its interval lie.

    None below 6 samples, which have no interval.
    """
    found = median(samples)
    if found.value is None or found.ci_low is None or found.ci_high is None:
        return None
    return max(found.value - found.ci_low, found.ci_high - found.value) / found.value


def _steps_in(wanted_s: float, seconds: float, n: int) -> int:
    """Return how many steps fit in `wanted_s` if they are like the n that took `seconds`.

    At least one, and at most as many again, since the next ones may be slower.
    """
    return min(n, max(1, int(wanted_s * n / seconds))) if seconds > 0 else 1
