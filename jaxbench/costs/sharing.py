"""What each group of a collective gets of the links beyond its nodes, all groups at once.

The rule, in this order, always the same for the same groups:

* a network card is shared equally by the ranks on it that communicate across nodes at once; a
  group has on each node the cards' shares of all its ranks there, and goes as fast as on the node
  where that is least. Four groups with one rank on each node use a card each, a group with four
  ranks on each node uses all four cards;
* a group's nodes form a ring, in the order of their numbers, in which each sends at that rate to
  the next one. Where the uplinks of a leaf or the links between two groups of switches can't carry
  all that, what they carry is shared in proportion, and the slowest link of a group bounds it;
* in an all-to-all the same links carry what ranks have for those beyond them, in a permute each
  message goes its own way.

Between two groups of switches, adaptive routing also uses ways through others with room left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jaxbench.catalog.links import Network
from jaxbench.costs.routing import adaptive_capacity
from jaxbench.topology.placement import Placement

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BOUNDS = ("nic", "leaf", "global")


@dataclass(frozen=True)
class Shares:
    """`Bps` ([G]) of raw link rates, and the number in BOUNDS of what bounds each."""

    Bps: Floats
    bound: Ints


class Sharing:
    """The links of a network as the ranks of a job see them."""

    def __init__(self, network: Network, devices_per_node: int, placement: Placement):
        self.network = network
        self.placement = placement
        self.cards = min(network.nics_per_node, devices_per_node)
        self.card_Bps = network.nic_Bps * devices_per_node / self.cards
        local = placement.local * self.cards // devices_per_node
        self.card_of: Ints = placement.node * self.cards + local
        self.leaves = int(placement.leaf.max()) + 1
        self.groups = max(int(placement.group.max()) + 1, network.groups)

    def ring(self, groups: Ints) -> tuple[Shares, Ints]:
        """Return what each of `groups` [G, n] gets out of its nodes, and its fewest ranks on one.

        All groups must be on several nodes.
        """
        at = _Members(groups, self.placement)
        share = self._card_share(groups)
        rate = np.minimum.reduceat(np.bincount(at.member.ravel(), share.ravel()), at.first)
        flow = Flows(at.rank, at.rank[at.next], rate[at.group], at.group)
        fewest = np.minimum.reduceat(at.count, at.first)
        return self._through_switches(rate, flow), fewest

    def permute(self, pairs: Ints) -> Shares:
        """Return what each message of `pairs` [P, 2] gets; all must cross nodes."""
        source, target = pairs[:, 0], pairs[:, 1]
        rate = self.card_Bps / np.maximum(
            _times(self.card_of[source]), _times(self.card_of[target])
        )
        return self._through_switches(rate, Flows(source, target, rate, np.arange(len(pairs))))

    def all_to_all(self, groups: Ints) -> Shares:
        """Return what a rank of each of `groups` [G, n] gets to other nodes; all on several."""
        ranks = groups.shape[1]
        at = _Members(groups, self.placement)
        # Seconds for a buffer of one byte per rank; parts for all ranks are equally large.
        outside = (ranks - at.count) / ranks
        slowest = np.full(len(at.count), np.inf)
        np.minimum.at(slowest, at.member.ravel(), self._card_share(groups).ravel())
        times = [np.maximum.reduceat(outside / slowest, at.first)]
        times.append(self._uplink_times(groups))
        times.append(self._global_times(groups, times[0].max()))
        seconds = np.stack(times)
        most_outside = np.maximum.reduceat(outside, at.first)
        return Shares(most_outside / seconds.max(axis=0), seconds.argmax(axis=0))

    def _card_share(self, groups: Ints) -> Floats:
        """Return each rank's share of its card, in the shape of `groups`."""
        return self.card_Bps / _times(self.card_of[groups.ravel()]).reshape(groups.shape)

    def _through_switches(self, rate: Floats, flows: Flows) -> Shares:
        """Return the rates of groups after leaf switches and the links between groups."""
        leaf, group = self.placement.leaf, self.placement.group
        pieces = [np.ones(len(flows.rate)), np.ones(len(flows.rate))]
        source, target = leaf[flows.source], leaf[flows.target]
        crosses = source != target
        if self.network.leaf_up_Bps and crosses.any():
            for end in (source, target):
                load = np.bincount(end[crosses], flows.rate[crosses], self.leaves)
                left = self.network.leaf_up_Bps / np.maximum(load[end[crosses]], 1e-300)
                pieces[0][crosses] = np.minimum(pieces[0][crosses], left)
        source, target = group[flows.source], group[flows.target]
        crosses = source != target
        if self.network.global_Bps and crosses.any():
            demand = np.zeros((self.groups, self.groups))
            np.add.at(demand, (source[crosses], target[crosses]), flows.rate[crosses])
            share = self._granted(demand)
            pieces[1][crosses] = share[source[crosses], target[crosses]]
        factor = np.ones((3, len(rate)))
        for row, piece in enumerate(pieces, start=1):
            np.minimum.at(factor[row], flows.group, piece)
        return Shares(rate * factor.min(axis=0), factor.argmin(axis=0))

    def _granted(self, demand: Floats) -> Floats:
        """Return the part of `demand` ([groups, groups], bytes per second) that passes."""
        assert self.network.global_Bps
        capacity = np.full_like(demand, self.network.global_Bps)
        if self.network.adaptive:
            capacity = adaptive_capacity(demand, capacity)
        full = demand > capacity
        return np.divide(capacity, demand, out=np.ones_like(demand), where=full)

    def _uplink_times(self, groups: Ints) -> Floats:
        """Return the seconds of each group's busiest leaf, for buffers of one byte."""
        if not self.network.leaf_up_Bps:
            return np.zeros(len(groups))
        ranks = groups.shape[1]
        leaf = self.placement.leaf[groups]
        key = leaf + np.arange(len(groups))[:, None] * self.leaves
        used, count = np.unique(key, return_counts=True)
        load = np.bincount(used % self.leaves, count * (ranks - count) / ranks, self.leaves)
        return (load[leaf] / self.network.leaf_up_Bps).max(axis=1)

    def _global_times(self, groups: Ints, card_s: float) -> Floats:
        """Return the seconds of each group's busiest pair of groups of switches.

        `card_s` is how long the cards take, by which bytes become the rates that routing knows.
        """
        if not self.network.global_Bps:
            return np.zeros(len(groups))
        ranks, all_groups = groups.shape[1], len(groups)
        cell = self.placement.group[groups] + np.arange(all_groups)[:, None] * self.groups
        count = np.bincount(cell.ravel(), minlength=all_groups * self.groups)
        count = count.reshape(all_groups, self.groups).astype(float)
        demand = count.T @ count / ranks  # bytes between them
        np.fill_diagonal(demand, 0.0)
        seconds = np.where(demand > 0, card_s / self._granted(demand / card_s), 0.0)
        present, which = np.unique(count > 0, axis=0, return_inverse=True)
        worst = [
            float(seconds[np.ix_(row, row)].max()) if row.sum() > 1 else 0.0 for row in present
        ]
        return np.array(worst)[which.ravel()]


@dataclass(frozen=True)
class Flows:
    """Messages from rank `source` to rank `target` at a `rate`, each of a group: [F] all."""

    source: Ints
    target: Ints
    rate: Floats
    group: Ints


class _Members:
    """The nodes of each group, E entries in the order of groups and nodes.

    `member` [G, n] is each rank's entry; `group`, `count` (of ranks), `rank` (one of them) and
    `next` (the entry of the next node of the group's ring) are [E], `first` [G] numbers entries.
    """

    def __init__(self, groups: Ints, placement: Placement):
        domain = placement.domain[groups]
        key = domain + np.arange(len(groups))[:, None] * (int(placement.domain.max()) + 1)
        used, one, member, count = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        self.member: Ints = member.reshape(groups.shape)
        self.count: Ints = count
        self.rank: Ints = groups.ravel()[one]
        self.group: Ints = used // (int(placement.domain.max()) + 1)
        self.first: Ints = np.searchsorted(self.group, np.arange(len(groups)))
        self.next: Ints = np.arange(1, len(used) + 1)
        self.next[np.append(self.first[1:], len(used)) - 1] = self.first


def _times(values: Ints) -> Ints:
    """Return how often each of `values` is among them."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    return count[which]
