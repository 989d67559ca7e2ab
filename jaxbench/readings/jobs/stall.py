"""Stalls: rare, long waits that no fluid model gives (retransmissions, cold connections, hangs)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Stall:
    """How often a job's step stalls, and for how long. Nothing measured stands behind any value.

    A step has a Poisson number of stalls with mean `per_step`; each takes `shortest_s` or longer,
    longer than s with probability (shortest_s / s) ** `tail` (Pareto; the smaller, the heavier; at
    most 1 has no mean). Meanwhile the job sends nothing.
    """

    per_step: float
    shortest_s: float
    tail: float

    def faults(self) -> list[str]:
        """Return what is wrong with the numbers."""
        return [
            f"a stall's {name} is {value}; it must be a number greater than 0"
            for name, value in vars(self).items()
            if not (math.isfinite(value) and value > 0)
        ]

    def draw_s(self, rng: np.random.Generator) -> float:
        """Return for how long one step stalls; mostly 0."""
        return float(
            (self.shortest_s * (1 + rng.pareto(self.tail, rng.poisson(self.per_step)))).sum()
        )
