"""The communicator groups of a program, as ASTRA-sim's traces and their table name them."""

from __future__ import annotations

import json

import numpy as np
from jax.extend.core import ClosedJaxpr

from jaxbench.jaxprs import equations
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import KINDS, collective_axes


class CommunicatorGroups:
    """The groups of all collectives but permutes, numbered from 1 (ASTRA-sim takes no 0).

    Numbers depend on the program and the mesh only, not on which ranks are written.
    """

    def __init__(self, closed: ClosedJaxpr, ranks: Ranks):
        self.ranks = ranks
        self._first: dict[tuple[str, ...], int] = {}
        self._of_rank: dict[tuple[str, ...], np.ndarray] = {}
        following = 1
        for eqn in equations(closed.jaxpr):
            kind = KINDS.get(eqn.primitive.name)
            if kind in (None, "permute") or collective_axes(eqn) in self._first:
                continue
            axes = collective_axes(eqn)
            groups = ranks.groups(axes)
            numbers = np.empty(ranks.count, np.int64)
            numbers[groups] = following + np.arange(len(groups))[:, None]
            self._first[axes], self._of_rank[axes] = following, numbers
            following += len(groups)

    def number(self, axes: tuple[str, ...], rank: int) -> int:
        """Return the number of the group that `rank` communicates with over `axes`."""
        return int(self._of_rank[axes][rank])

    def to_json(self, members: np.ndarray) -> str:
        """Return the table {"1": [0, 1, ...], ...} of the groups that any of `members` is in."""
        table = {}
        for axes, numbers in self._of_rank.items():
            groups = self.ranks.groups(axes)
            for number in np.unique(numbers[members]).tolist():
                table[str(number)] = groups[number - self._first[axes]].tolist()
        return json.dumps(table) + "\n"
