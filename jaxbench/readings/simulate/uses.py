"""What a simulation says of each collective of the program: how often, how long, by what bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    path: Path, times: Sequence[tuple[PricedSite, np.ndarray]], grid: Grid, model: int
) -> Use | None:
    """Return the use of a site, None if nobody communicated there.

    `times` are the site as it was priced for those who were at it at once, and how often each rank
    executed it so ([R]).
    """
    site = times[0][0]
    executions = np.sum([count for _, count in times], axis=0)
    total = np.sum([_occupied(at, grid, model) * count for at, count in times], axis=0)
    costs = [at.costs[model][n] for at, count in times for n in _numbers(at, count, model)]
    if not costs:
        return None
    slowest = max(costs, key=lambda cost: cost.seconds)
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


def _occupied(site: PricedSite, grid: Grid, model: int) -> np.ndarray:
    """Return the seconds of one execution on each rank, [R]."""
    seconds = site.seconds
    if site.hop is not None:  # a rank that only sends is as long occupied as its receiver
        sent = np.where(site.hop.sends, site.hop.from_receiver(seconds), 0.0)
        seconds = np.maximum(seconds, sent)
    return grid.per_rank(seconds, model)


def _numbers(site: PricedSite, executions: np.ndarray, model: int) -> set[int]:
    return {int(n) for n in np.unique(site.number[model, executions > 0]) if n >= 0}


def spent(
    counts: Mapping[tuple[Path, int], int], masks: list[np.ndarray | None], grid: Grid
) -> dict[Path, dict[int, np.ndarray]]:
    """Return how often each rank executed what is at a path, [R], by the number of the mask.

    `counts` are by path and by number of the mask of the ranks that executed it.
    """
    executed: dict[Path, dict[int, np.ndarray]] = {}
    for (path, number), count in sorted(counts.items()):
        mask = masks[number]
        ranks = np.int64(count) * (np.ones_like(grid.zero, bool) if mask is None else mask)
        executed.setdefault(path, {})[number] = grid.per_rank(ranks)
    return executed
