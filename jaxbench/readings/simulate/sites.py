"""A collective of the program text with its costs: who meets, and how long that takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxbench.costs.interface import Cost, Costs
from jaxbench.errors import RunError
from jaxbench.jaxprs import Equation
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate.times import Grid, Times
from jaxbench.readings.sites import KINDS, collective_axes


@dataclass(frozen=True, eq=False)
class Hop:
    """Who sends to whom in a permute, by place on its axis; masks are shaped as the mesh's arrays.

    `sources` and `destinations` hold 0 where there is none, which `receives` and `sends` tell.
    """

    dim: int
    sources: np.ndarray
    destinations: np.ndarray
    receives: np.ndarray
    sends: np.ndarray

    def from_sender(self, array: Times) -> Times:
        """Return at each receiver what its sender has."""
        return array if array.shape[self.dim] == 1 else array.take(self.sources, axis=self.dim)

    def from_receiver(self, array: Times) -> Times:
        """Return at each sender what its receiver has."""
        return array if array.shape[self.dim] == 1 else array.take(self.destinations, axis=self.dim)


@dataclass(frozen=True, eq=False)
class PricedSite:
    """One operand of one collective equation, priced for all groups by every cost model.

    `seconds` are those of each rank's group, for a permute those of what a rank receives (0 if
    nothing). `costs` are the different ones by cost model, `number` [models, R] tells which of
    them a rank's group has (of a permute: what it receives or else sends; -1 for nothing).
    Sizes count as those of `sites.Site`; `nbytes` are those of `elements`.
    """

    kind: str
    label: str
    axes: tuple[str, ...]
    dims: tuple[int, ...]
    group_size: int
    groups: int
    elements: int
    dtype: str
    nbytes: int
    seconds: Times
    costs: tuple[tuple[Cost, ...], ...]
    number: np.ndarray
    hop: Hop | None

    def cost_of(self, rank: int, model: int = 0) -> Cost | None:
        """Return the cost of what a rank does here, None if it does nothing."""
        number = int(self.number[model, rank])
        return self.costs[model][number] if number >= 0 else None


def price_sites(
    eqn: Equation,
    ranks: Ranks,
    grid: Grid,
    costs: Sequence[Costs],
    active: np.ndarray | None = None,
) -> list[PricedSite]:
    """Return a site for each operand of a collective equation.

    Those that communicate at once are all groups, or those of the `active` ranks (bool, [R]).
    """
    if eqn.params.get("axis_index_groups") is not None:
        raise RunError(
            f"collective '{eqn.source_info.name_stack}' has axis_index_groups, which can't be "
            "simulated; use a mesh axis for each set of groups"
        )
    kind = KINDS[eqn.primitive.name]
    counted = eqn.outvars if kind == "all_gather" else eqn.invars
    return [_price(eqn, kind, v.aval, ranks, grid, costs, active) for v in counted]


def _price(
    eqn: Equation,
    kind: str,
    aval: Any,
    ranks: Ranks,
    grid: Grid,
    costs: Sequence[Costs],
    active: np.ndarray | None,
) -> PricedSite:
    axes = collective_axes(eqn)
    groups = ranks.groups(axes)
    hop = None
    members = groups if active is None else groups[active[groups[:, 0]]]
    if kind == "permute":
        hop = _make_hop(eqn.params["perm"], axes[0], grid)
        sources = ranks.sources(axes[0], eqn.params["perm"])
        receivers = np.flatnonzero(sources >= 0)
        members = np.stack([sources[receivers], receivers], axis=1)
    elements = math.prod(aval.shape)
    nbytes = elements * aval.dtype.itemsize
    seconds = np.zeros((len(costs), ranks.count))
    number = np.full((len(costs), ranks.count), -1)
    different: list[tuple[Cost, ...]] = []
    for model, taken, which in zip(costs, seconds, number, strict=True):
        answer = model.collective(kind, nbytes, str(aval.dtype), members, axes)
        different.append(answer.costs)
        if hop is None:
            taken[members], which[members] = answer.seconds[:, None], answer.which[:, None]
        else:
            which[members[:, 0]] = answer.which
            which[members[:, 1]] = answer.which
            taken[members[:, 1]] = answer.seconds
    return PricedSite(
        kind=kind,
        label=str(eqn.source_info.name_stack).rsplit("/", 1)[-1] or eqn.primitive.name,
        axes=axes,
        dims=grid.dims(axes),
        group_size=groups.shape[1],
        groups=len(groups),
        elements=elements,
        dtype=str(aval.dtype),
        nbytes=nbytes,
        seconds=grid.fold(seconds),
        costs=tuple(different),
        number=number,
        hop=hop,
    )


def _make_hop(perm: Sequence[tuple[int, int]], axis: str, grid: Grid) -> Hop:
    dim = grid.dims((axis,))[0]
    size = grid.sizes[dim - 1]
    sources, destinations = np.zeros((2, size), np.int64)
    receives, sends = np.zeros((2, size), bool)
    for source, destination in perm:
        sources[destination], receives[destination] = source, True
        destinations[source], sends[source] = destination, True
    shape = [-1 if d == dim else 1 for d in range(1 + len(grid.sizes))]
    return Hop(dim, sources, destinations, receives.reshape(shape), sends.reshape(shape))
