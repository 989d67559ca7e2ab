"""A cost model whose transfers between nodes are slower by a factor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jaxbench.costs.interface import Costs, GroupCosts
from jaxbench.costs.links import Ints


class Slowed:
    """As `costs`, but groups with ranks in different domains transfer `factor` times as long.

    `domain` ([R]) is the scale-up domain of each rank. Latencies and all else stay.
    """

    def __init__(self, costs: Costs, domain: Ints, factor: float):
        self.costs = costs
        self.domain = domain
        self.factor = factor

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        answer = self.costs.collective(kind, nbytes, dtype, groups, axes)
        slower = tuple(
            replace(cost, seconds=cost.latency_s + (cost.seconds - cost.latency_s) * self.factor)
            for cost in answer.costs
        )
        leaves = crosses(groups, self.domain)
        return GroupCosts(answer.costs + slower, answer.which + len(answer.costs) * leaves)


def crosses(groups: Ints, domain: Ints) -> np.ndarray:
    """Return which of the groups ([G, n] ranks) have ranks in different domains, [G]."""
    return (domain[groups] != domain[groups[:, :1]]).any(axis=1)
