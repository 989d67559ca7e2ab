"""Cost models that take a step apart: what if collectives moved no bytes, or took no time?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jaxbench.costs.interface import Cost, Costs, GroupCosts

FREE = Cost(0.0, 0.0, "free", "latency")


@dataclass(frozen=True)
class Free:
    """Communication takes no time; groups still wait for their last member."""

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        """Return no cost for each of `groups`."""
        return GroupCosts((FREE,), np.zeros(len(groups), np.int64))


@dataclass(frozen=True)
class LatencyOnly:
    """What stays of `costs` without bytes: the latency of the algorithm that is taken with them."""

    costs: Costs

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        """Return the latency of each of `groups`."""
        whole = self.costs.collective(kind, nbytes, dtype, groups, axes)
        return GroupCosts(
            tuple(replace(cost, seconds=cost.latency_s) for cost in whole.costs), whole.which
        )


@dataclass(frozen=True)
class WithoutAxis:
    """`costs`, but free over one mesh axis."""

    costs: Costs
    axis: str

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        """Return the cost of each of `groups`."""
        model = Free() if axes == (self.axis,) else self.costs
        return model.collective(kind, nbytes, dtype, groups, axes)
