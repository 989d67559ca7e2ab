"""How jobs that ran at once fared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxbench.costs.links import Floats
from jaxbench.readings.jobs.stall import Stall

NO_SHARED_LINK = "no shared link"
NEVER_FULL = "shared links never full"

# From so many samples on, 5 % and 95 % of them are told.
SAMPLES_FOR_TAILS = 20


@dataclass(frozen=True, eq=False)
class JobOutcome:
    """How a job fared. A slowdown is the time of a step over that of one alone, 1.0 if undisturbed.

    `predicted_s` is a step by the cost model, `isolated_s` alone on the network under the same
    routing (median over seeds): more where the job's own flows meet on a link. `slowdowns` has
    every complete step, of all seeds; where a seed's run was over before the first (`whole_steps`
    False), what part there was of one. `link` names the link that held it up most, or says
    NO_SHARED_LINK or NEVER_FULL; `sharers` are the other jobs with which it shares any link.
    """

    name: str
    ranks: int
    predicted_s: float
    isolated_s: float
    slowdowns: Floats
    whole_steps: bool
    link: str
    sharers: tuple[str, ...]

    @property
    def median(self) -> float:
        """The middle slowdown."""
        return float(np.median(self.slowdowns))

    @property
    def p5(self) -> float | None:
        """What 5 % of steps stay below; None of few steps."""
        return self._quantile(0.05)

    @property
    def p95(self) -> float | None:
        """What 95 % of steps stay below; None of few steps."""
        return self._quantile(0.95)

    @property
    def max(self) -> float:
        """The worst slowdown."""
        return float(self.slowdowns.max())

    def _quantile(self, share: float) -> float | None:
        if len(self.slowdowns) < SAMPLES_FOR_TAILS:
            return None
        return float(np.quantile(self.slowdowns, share))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "ranks": self.ranks,
            "predicted_s": self.predicted_s,
            "isolated_s": self.isolated_s,
            "slowdown": {name: getattr(self, name) for name in ("median", "p5", "p95", "max")},
            "slowdowns": self.slowdowns.tolist(),
            "whole_steps": self.whole_steps,
            "link": self.link,
            "sharers": list(self.sharers),
        }


@dataclass(frozen=True, eq=False)
class JobsOutcome:
    """All jobs, in the order given, and under which assumptions; `events` were simulated."""

    jobs: tuple[JobOutcome, ...]
    system: str
    routing: str
    foreign_load: float
    seeds: tuple[int, ...]
    stall: Stall | None
    events: int

    def __getitem__(self, name: str) -> JobOutcome:
        return next(job for job in self.jobs if job.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "system": self.system,
            "routing": self.routing,
            "foreign_load": self.foreign_load,
            "seeds": list(self.seeds),
            "stall": None if self.stall is None else dict(vars(self.stall)),
            "jobs": [job.to_json() for job in self.jobs],
        }
