"""What a simulation says of each collective of the program: how often, how long, by what bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from jaxbench.costs.interface import Cost
from jaxbench.readings.simulate.sites import PricedSite
from jaxbench.readings.simulate.times import Grid
from jaxbench.readings.walker import Path


@dataclass(frozen=True)
class Use:
    """One collective of the program text and what it took.

    `groups` of `group_size` ranks each; sizes count as those of `sites.Site`. `count` and `seconds`
    (of all executions, waiting not included) are the maximum over ranks, `executions` [R] the
    count of each. `cost` is one execution's in the slowest group.
    """

    path: Path
    kind: str
    label: str
    axes: tuple[str, ...]
    group_size: int
    groups: int
    elements: int
    dtype: str
    nbytes: int
    count: int
    seconds: float
    cost: Cost
    executions: np.ndarray = field(repr=False, compare=False)

    @property
    def bound(self) -> str:
        """What bounds the slowest group."""
        return self.cost.bound


def make_use(
    path: Path, site: PricedSite, executions: np.ndarray, grid: Grid, model: int
) -> Use | None:
    """Return the use of a site executed so often ([R]), None if nobody communicated there."""
    seconds = site.seconds
    if site.hop is not None:  # a rank that only sends is as long occupied as its receiver
        sent = np.where(site.hop.sends, site.hop.from_receiver(seconds), 0.0)
        seconds = np.maximum(seconds, sent)
    total = grid.per_rank(seconds, model) * executions
    numbers = {int(n) for n in np.unique(site.number[model, executions > 0]) if n >= 0}
    if not numbers:
        return None
    slowest = max((site.costs[model][n] for n in numbers), key=lambda cost: cost.seconds)
    return Use(
        path=path,
        kind=site.kind,
        label=site.label,
        axes=site.axes,
        group_size=site.group_size,
        groups=site.groups,
        elements=site.elements,
        dtype=site.dtype,
        nbytes=site.nbytes,
        count=int(executions.max()),
        seconds=float(total.max()),
        cost=slowest,
        executions=executions,
    )


def spent(
    counts: Mapping[tuple[Path, int], int], masks: list[np.ndarray | None], grid: Grid
) -> dict[Path, np.ndarray]:
    """Return how often each rank executed what is at a path, [R].

    `counts` are by path and by number of the mask of the ranks that executed it.
    """
    totals: dict[Path, np.ndarray] = {}
    for (path, number), count in counts.items():
        mask = masks[number]
        executed = np.int64(count) * (np.ones_like(grid.zero, bool) if mask is None else mask)
        totals[path] = totals[path] + executed if path in totals else executed
    return {path: grid.per_rank(total) for path, total in sorted(totals.items())}
