"""The costs of collectives on a system, from the links that each group of ranks has there.

costs = SystemCosts(system, place(of_system(system), system, 1024))
costs.collective("all_reduce", 1e9, "bfloat16", ranks.groups("data"), ("data",)).seconds
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from jaxbench.catalog.systems import System
from jaxbench.costs.algorithms import NAMES, cheapest
from jaxbench.costs.interface import Cost, GroupCosts
from jaxbench.costs.protocols import library_of
from jaxbench.costs.reach import Reach
from jaxbench.costs.reaches import Reaches
from jaxbench.errors import InputError, unknown
from jaxbench.topology.placement import Placement

MOST_KEPT = 1024  # groups whose reaches are remembered, by array and by what is in it


class SystemCosts:
    """Costs of a job whose ranks are at `placement` on `system`.

    `algorithm` is 'auto' (for every collective the cheapest algorithm and protocol, as NCCL
    chooses) or one for all that have it; an unknown name is an InputError. Groups with the same
    share of the same links are costed once, and so are the same collectives of the same groups.
    """

    def __init__(self, system: System, placement: Placement, algorithm: str = "auto"):
        if algorithm not in NAMES:
            raise InputError(unknown("algorithm", algorithm, NAMES))
        self.algorithm = algorithm
        self.library = library_of(system.hardware)
        self._reaches = Reaches(system, placement)
        self._arrays: dict[tuple[int, str], tuple[np.ndarray, np.ndarray, tuple[Reach, ...]]] = {}
        self._contents: dict[tuple[Any, ...], tuple[np.ndarray, tuple[Reach, ...]]] = {}
        self._costs: dict[tuple[Any, ...], Cost] = {}

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        """Return the cost of each of `groups` ([G, n], not to be changed afterwards)."""
        which, reaches = self._reach(kind, groups)
        return GroupCosts(tuple(self._cost(kind, nbytes, dtype, r) for r in reaches), which)

    def _reach(self, kind: str, groups: np.ndarray) -> tuple[np.ndarray, tuple[Reach, ...]]:
        """Return the reaches of groups, from before if the same ones were asked for."""
        pattern = kind if kind in ("all_to_all", "permute") else "ring"
        known = self._arrays.get((id(groups), pattern))
        if known is None:
            ranks = np.ascontiguousarray(groups, np.int64)
            key = (pattern, ranks.shape, hashlib.blake2b(ranks.tobytes(), digest_size=16).digest())
            if key not in self._contents:
                self._contents[key] = self._reaches.of(pattern, ranks)
            for kept in (self._arrays, self._contents):
                if len(kept) > MOST_KEPT:
                    del kept[next(iter(kept))]
            # The array is kept as well, so that no other one can have its id.
            known = self._arrays[id(groups), pattern] = (groups, *self._contents[key])
        return known[1:]

    def _cost(self, kind: str, nbytes: float, dtype: str, reach: Reach) -> Cost:
        key = (kind, nbytes, dtype, reach)
        if key not in self._costs:
            self._costs[key] = cheapest(kind, nbytes, reach, self.library, self.algorithm)
        return self._costs[key]
