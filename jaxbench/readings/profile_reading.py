"""What a profile says about a step's communication: the second, independent estimate.

Of the time a device spends in collectives, what its payload covers is *hidden* and the rest is
*exposed*; both are lengths of unions of intervals, so that hidden + exposed = total whatever
overlaps what. A collective's event also lasts while its peers are late. From the moment that the
last of them has begun it is *transfer*; what is exposed before that is *waiting* (a pipeline's
bubble shows there).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Shares:
    """Seconds of a step, [steps][ranks] each: total = exposed + hidden.

    `exposed_s` = `waiting_s` (for peers that hadn't begun) + `transfer_s`.
    """

    total_s: np.ndarray
    exposed_s: np.ndarray
    transfer_s: np.ndarray

    @property
    def hidden_s(self) -> np.ndarray:
        """What the payload covers."""
        return self.total_s - self.exposed_s

    @property
    def waiting_s(self) -> np.ndarray:
        """What is exposed while a peer hasn't begun."""
        return self.exposed_s - self.transfer_s

    def named(self) -> dict[str, np.ndarray]:
        """Return the five by name."""
        names = ("total_s", "exposed_s", "hidden_s", "waiting_s", "transfer_s")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class CollectiveReading:
    """What became of a row of the plan, or of one label of it.

    `count` is executions per step of each rank. `execution_s` is the median time of an execution
    from when its last member has begun to when its last one is done, the bandwidths are the
    logical bytes over it, times the wire factor on the bus; a rank that begins late therefore
    doesn't make a network look slow. `skew` is how long after the first member the last begins.
    """

    id: str
    kind: str
    axis: str
    labels: tuple[str, ...]
    group_size: int
    bytes_logical: int
    wire_factor: float
    count: tuple[int, ...]
    shares: Shares
    execution_s: float | None
    skew_s: float | None
    skew_max_s: float | None

    @property
    def algorithmic_Bps(self) -> float | None:  # noqa: N802
        """Logical bytes over the time of an execution."""
        return self.bytes_logical / self.execution_s if self.execution_s else None

    @property
    def bus_Bps(self) -> float | None:  # noqa: N802
        """What a rank sends with a ring algorithm over the time of an execution."""
        return self.algorithmic_Bps and self.algorithmic_Bps * self.wire_factor

    def to_json(self, per_rank: bool) -> dict[str, Any]:
        """Return the reading for a record; seconds are medians over steps, per rank or over all."""
        of = (
            (lambda a: np.median(a, axis=0).tolist())
            if per_rank
            else (lambda a: float(np.median(a)))
        )
        return {
            "id": self.id,
            "kind": self.kind,
            "axis": self.axis,
            "group_size": self.group_size,
            "bytes_logical": self.bytes_logical,
            "wire_factor": self.wire_factor,
            "labels": list(self.labels),
            "count": list(self.count) if per_rank else max(self.count),
            **{name: of(values) for name, values in self.shares.named().items()},
            "execution_s": self.execution_s,
            "algorithmic_Bps": self.algorithmic_Bps,
            "bus_Bps": self.bus_Bps,
            "skew_s": self.skew_s,
            "skew_max_s": self.skew_max_s,
        }


@dataclass(frozen=True)
class ProfileReading:
    """A profile, read: for every step, for every rank of this process (`ranks`), per collective.

    `shares` is of all collectives together; `compute_s` [steps][ranks] is the time in the payload
    and `rest_s` in neither (ties, copies, idle), so that compute + exposed + rest is the time from
    the first to the last such event of the step on any rank.
    `rows` has a reading per row of the plan, `labels` one per label. `step_s` is how long the
    recorded steps took, if known, to compare with steps that weren't recorded.
    """

    path: str
    platform: str
    ranks: tuple[int, ...]
    shares: Shares
    compute_s: np.ndarray
    rest_s: np.ndarray
    rows: tuple[CollectiveReading, ...]
    labels: tuple[CollectiveReading, ...]
    step_s: tuple[float, ...] = ()
    warnings: tuple[str, ...] = ()

    def per_step(self, name: str) -> list[float]:
        """Return a share (`exposed_s`, ...) of each step: its median over the ranks.

        These are the samples of an estimate; steps are repetitions, ranks aren't.
        """
        return np.median(self.shares.named()[name], axis=1).tolist()

    def to_json(self) -> dict[str, Any]:
        """Return the reading for a record, with all steps and ranks of the shares kept.

        `median`: of each share over steps and ranks. `steps`: [steps][ranks] in the order of
        `ranks`. `rows`: per row of the plan, seconds as a median over steps for each rank.
        `labels`: the same per label and over all ranks.
        """
        shares = self.shares.named()
        return {
            "path": self.path,
            "platform": self.platform,
            "ranks": list(self.ranks),
            "step_s": list(self.step_s),
            "median": {
                **{name: float(np.median(values)) for name, values in shares.items()},
                "compute_s": float(np.median(self.compute_s)),
                "rest_s": float(np.median(self.rest_s)),
            },
            "steps": {
                **{name: values.tolist() for name, values in shares.items()},
                "compute_s": self.compute_s.tolist(),
                "rest_s": self.rest_s.tolist(),
            },
            "rows": [row.to_json(per_rank=True) for row in self.rows],
            "labels": [label.to_json(per_rank=False) for label in self.labels],
            "warnings": list(self.warnings),
        }
