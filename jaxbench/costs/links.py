"""The links of a system that jobs can share, numbered, with what each carries.

In this order, each in both directions: *rails* (a node's network cards), *uplinks* (from a leaf
switch to the rest of its group, all of them together) and *global* links (from one group to
another, all of them together). Links inside a node, or inside a domain that the node's links join,
belong to the devices at their ends, so jobs never share them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from jaxbench.catalog.links import Network
from jaxbench.catalog.systems import System
from jaxbench.topology.hierarchy import Topology

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Links:
    """The links of a system with a network. Nodes, leaves and groups are numbers of `topology`.

    `parallel_leaf` and `parallel_global` say of how many links a leaf's uplinks and those between
    two groups consist; with `split` each of them is a link of its own here, else they are one.
    """

    def __init__(self, system: System, topology: Topology, split: bool = False):
        network = system.network
        assert network is not None, f"{system.name} has no network"
        self.topology = topology
        self.split = split
        self.groups = len(topology.group_names)
        self.leaves = len(topology.leaf_names)
        self.devices_per_node = system.devices_per_node
        self.cards_per_node = min(network.nics_per_node, system.devices_per_node)
        self.card_Bps = network.nic_Bps * system.devices_per_node / self.cards_per_node
        self.parallel_leaf = parallel_links(network.leaf_up_Bps, self.card_Bps) if split else 1
        self.parallel_global = parallel_links(network.global_Bps, self.card_Bps) if split else 1
        rails = topology.nodes * self.cards_per_node
        uplinks = self.leaves * self.parallel_leaf
        counts = (rails, rails, uplinks, uplinks, self.groups**2 * self.parallel_global)
        self.starts: Ints = np.concatenate([[0], np.cumsum(counts)])
        self.capacity_Bps = self._capacities(network)

    @property
    def count(self) -> int:
        """Number of links."""
        return int(self.starts[-1])

    @cached_property
    def beyond_nodes(self) -> NDArray[np.bool_]:
        """Which links, [L], are outside of nodes: uplinks and global links."""
        return np.arange(self.count) >= self.starts[2]

    @property
    def global_links(self) -> slice:
        """The links between groups: [groups, groups, parallel] in this order, from and to."""
        return slice(int(self.starts[4]), self.count)

    def rail(self, node: Ints, device: Ints, inward: bool) -> Ints:
        """Return the card of device number `device` of `node`, as a link out of it or into it."""
        card = device * self.cards_per_node // self.devices_per_node
        return self.starts[int(inward)] + node * self.cards_per_node + card

    def uplink(self, leaf: Ints, down: bool, which: Ints | int = 0) -> Ints:
        """Return (the `which`-th of) the links from `leaf` to the rest of its group, or back."""
        return self.starts[2 + int(down)] + leaf * self.parallel_leaf + which

    def between(self, source: Ints, target: Ints, which: Ints | int = 0) -> Ints:
        """Return (the `which`-th of) the links from group `source` to group `target`."""
        pair = source * self.groups + target
        return self.starts[4] + pair * self.parallel_global + which

    def name(self, link: int) -> str:
        """Return what a link is called: 'leaf7 up', 'group0 to group3, link 4 of 18', ..."""
        bundle, which, parallel = self._identify(link)
        return bundle if parallel == 1 else f"{bundle}, link {which + 1} of {parallel}"

    def bundle(self, link: int) -> str:
        """Return what the links parallel to `link` are called together."""
        bundle, _, parallel = self._identify(link)
        return bundle if parallel == 1 else f"{bundle}, one of {parallel} links"

    def _identify(self, link: int) -> tuple[str, int, int]:
        """Return the name of a link's bundle, its number in it, and how many links that has."""
        kind = int(np.searchsorted(self.starts, link, side="right")) - 1
        within = link - int(self.starts[kind])
        if kind < 2:
            node, card = divmod(within, self.cards_per_node)
            return f"{self.topology.names[node]} card {card} {('out', 'in')[kind]}", 0, 1
        if kind < 4:
            leaf, which = divmod(within, self.parallel_leaf)
            way = ("up", "down")[kind - 2]
            return f"{self.topology.leaf_names[leaf]} {way}", which, self.parallel_leaf
        pair, which = divmod(within, self.parallel_global)
        names = self.topology.group_names
        source, target = divmod(pair, self.groups)
        return f"{names[source]} to {names[target]}", which, self.parallel_global

    def _capacities(self, network: Network) -> Floats:
        """Return what large messages reach on each link; infinite where it isn't known."""
        capacity = np.full(self.count, self.card_Bps)
        up, between = network.leaf_up_Bps or np.inf, network.global_Bps or np.inf
        capacity[self.starts[2] : self.starts[4]] = up / self.parallel_leaf
        capacity[self.global_links] = between / self.parallel_global
        return capacity * network.efficiency


def parallel_links(together_Bps: float | None, one_Bps: float) -> int:
    """Return of how many links of `one_Bps` a bundle of `together_Bps` consists, at least 1.

    Unknown (None) is one link, which is never full.
    """
    return 1 if together_Bps is None else max(1, round(together_Bps / one_Bps))
