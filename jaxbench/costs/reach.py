"""What a group of ranks has of a system's links: all numbers that the cost formulas need."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxbench.costs.ring import step_over
from jaxbench.costs.torus import Side
from jaxbench.topology.shape import Shape


@dataclass(frozen=True)
class Latencies:
    """Seconds through the hardware: inside a node, a leaf, a group, and between groups."""

    node_s: float
    leaf_s: float = 0.0
    group_s: float = 0.0
    global_s: float = 0.0


@dataclass(frozen=True)
class Reach:
    """The links of one group while all groups of its collective communicate at once.

    A node is here a whole scale-up domain. Bandwidths are what large messages reach of the group's
    share; infinite where there is no such link.
    """

    shape: Shape
    latencies: Latencies
    least: int  # ranks on the node that has the fewest of them
    node_Bps: float  # of a rank to those on its node
    switch_Bps: float | None = None  # reductions in a node's switches
    net_Bps: float = math.inf  # of the group out of each of its nodes, all ranks together
    net_bound: str = "nic"  # what bounds that
    spread_Bps: float = math.inf  # of a rank to other nodes in an all-to-all
    spread_bound: str = "nic"
    net_reduces: bool = False  # the network's switches can
    torus: bool = False  # the node's links are one, and node_Bps is that of one link
    box: tuple[Side, ...] = ()  # of the torus, where the group is one

    @property
    def even(self) -> bool:
        """Whether every node has as many ranks of the group."""
        return self.least * self.shape.nodes == self.shape.ranks

    @property
    def on_torus(self) -> bool:
        """Whether the group's links are those of a torus and no others."""
        return self.torus and self.shape.nodes == 1

    @property
    def slowest(self) -> tuple[float, str]:
        """The bandwidth and name of what bounds a ring through all ranks."""
        inside = self.node_Bps if self.shape.per_node > 1 else math.inf
        return (inside, "node") if inside <= self.net_Bps else (self.net_Bps, self.net_bound)

    @property
    def farthest_s(self) -> float:
        """The latency of the outermost links that the group crosses."""
        tiers = {"leaf": "leaf_s", "group": "group_s", "global": "global_s"}
        return getattr(self.latencies, tiers.get(self.shape.tier, "node_s"))

    def ring_step_s(self, node_s: float, net_s: float) -> float:
        """Return seconds per step of a ring; the arguments are a protocol's, per hop.

        A ring enters each group once and, in a group, each leaf once. A protocol's constant holds
        the latency of a node's own links, as it was measured on them, and not the network's.
        """
        return step_over(
            [
                (self._inside_hops, max(node_s, self.latencies.node_s)),
                *((count, net_s + seconds) for count, seconds in self._net_hops()),
            ]
        )

    def tree_level_s(self, net_s: float) -> float:
        """Return seconds per level of a binary tree over the nodes; 0 for one node."""
        nodes, leaves, groups = self._counts
        if nodes == 1:
            return 0.0
        levels = (
            (groups, self.latencies.global_s),
            (leaves / groups, self.latencies.group_s),
            (nodes / leaves, self.latencies.leaf_s),
        )
        total = sum(math.log2(count) * (net_s + seconds) for count, seconds in levels)
        return total / math.log2(nodes)

    def between_step_s(self, net_s: float) -> float:
        """Return seconds per step of a ring with one rank of each node."""
        return step_over([(count, net_s + seconds) for count, seconds in self._net_hops()])

    @property
    def _inside_hops(self) -> int:
        return self.shape.ranks - self.shape.nodes if self.shape.nodes > 1 else self.shape.ranks

    @property
    def _counts(self) -> tuple[int, int, int]:
        """Nodes, leaves and groups; a node that is a whole rack may be on several leaves."""
        leaves = min(self.shape.leaves, self.shape.nodes)
        return self.shape.nodes, leaves, min(self.shape.groups, leaves)

    def _net_hops(self) -> list[tuple[int, float]]:
        nodes, leaves, groups = self._counts
        if nodes == 1:
            return []
        between_groups = groups if groups > 1 else 0
        between_leaves = leaves if leaves > 1 else 0
        return [
            (between_groups, self.latencies.global_s),
            (between_leaves - between_groups, self.latencies.group_s),
            (nodes - between_leaves, self.latencies.leaf_s),
        ]
