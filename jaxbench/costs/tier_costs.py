"""Costs by what a group crosses: a measured fit for the links of one tier, formulas for others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxbench.costs.interface import Cost, Costs, GroupCosts
from jaxbench.errors import InputError, unknown
from jaxbench.topology.placement import Placement
from jaxbench.topology.shape import TIERS


class TierCosts:
    """Groups cost what `of_tier` says for their outermost links' tier; `otherwise` for the rest.

    A tier that is none of TIERS is an InputError.
    """

    def __init__(self, placement: Placement, of_tier: Mapping[str, Costs], otherwise: Costs):
        faults = [unknown("tier", tier, TIERS) for tier in of_tier if tier not in TIERS]
        if faults:
            raise InputError(faults)
        self.placement = placement
        self.of_tier = dict(of_tier)
        self.otherwise = otherwise

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        """Return the cost of each of `groups`, each tier's asked of its own model."""
        which_shape, shapes = self.placement.shapes(groups)
        tier = np.array([TIERS.index(shape.tier) for shape in shapes])[which_shape]
        if not set(np.unique(tier)) & {TIERS.index(name) for name in self.of_tier}:
            return self.otherwise.collective(kind, nbytes, dtype, groups, axes)
        costs: list[Cost] = []
        which = np.zeros(len(groups), np.int64)
        for number in np.unique(tier):
            of = tier == number
            model = self.of_tier.get(TIERS[number], self.otherwise)
            found = model.collective(kind, nbytes, dtype, groups[of], axes)
            which[of] = found.which + len(costs)
            costs += found.costs
        return GroupCosts(tuple(costs), which)
