"""Cost models small enough to be seen through: seconds by kind, and latency and bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from jaxbench.costs.interface import Cost, GroupCosts


@dataclass(frozen=True)
class ByKind:
    """The same seconds for every collective of a kind; kinds not named are free."""

    seconds: Mapping[str, float] = field(default_factory=dict)

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        seconds = self.seconds.get(kind, 0.0)
        cost = Cost(seconds, seconds, "fixed", "latency")
        return GroupCosts((cost,), np.zeros(len(groups), np.int64))


@dataclass(frozen=True)
class TwoTiers:
    """Ring collectives on nodes of `per_node` neighbouring ranks, slower between them.

    `latency_s` a step and `Bps` a rank inside of a node; `outside` times as slow, both of them,
    in a group that crosses nodes. `moved` renumbers the devices: rank r is on device moved[r]. Each
    further group that is at it at once adds `crowd` of that, but for permutes.
    """

    latency_s: float = 5e-6
    Bps: float = 50e9
    per_node: int = 4
    outside: float = 3.0
    moved: tuple[int, ...] | None = None
    crowd: float = 0.0

    def seconds(self, kind: str, nbytes: float, size: int, factor: float) -> tuple[float, float]:
        """Return (seconds, of which latency) of one group."""
        steps = {"permute": 1, "all_reduce": 2 * (size - 1)}.get(kind, size - 1)
        share = 1.0 if kind == "permute" else steps / size
        latency = steps * self.latency_s * factor
        return latency + share * nbytes / self.Bps * factor, latency

    def collective(
        self, kind: str, nbytes: float, dtype: str, groups: np.ndarray, axes: tuple[str, ...]
    ) -> GroupCosts:
        size = groups.shape[1]
        devices = groups if self.moved is None else np.array(self.moved)[groups]
        nodes = devices // self.per_node
        crosses = (nodes != nodes[:, :1]).any(axis=1)
        costs = []
        crowded = 1.0 if kind == "permute" else 1.0 + self.crowd * (len(groups) - 1)
        for factor, bound in ((1.0, "node"), (self.outside, "nic")):
            seconds, latency = self.seconds(kind, nbytes, size, factor * crowded)
            costs.append(Cost(seconds, latency, "ring", bound))
        return GroupCosts(tuple(costs), crosses.astype(np.int64))
