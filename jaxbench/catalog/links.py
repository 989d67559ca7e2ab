"""The links of a system: those that join devices to each other, and the network of its nodes.

Bandwidths are per direction. Latencies are what a message without bytes takes through the
hardware (cards, switches, cables); what a library adds per step is a matter of its cost model.
None: not there.
"""

from __future__ import annotations

from dataclasses import dataclass

# crossbar: every pair at full rate through switches; peer: a link to each other device; torus:
# links to the neighbours in each dimension; memory: devices of one host that share its memory.
NODE_KINDS = ("crossbar", "peer", "torus", "memory")
NETWORK_KINDS = ("dragonfly", "dragonfly+", "fat_tree", "crossbar")


@dataclass(frozen=True, kw_only=True)
class NodeLinks:
    """The links inside a node, or inside a scale-up domain of several `nodes`."""

    kind: str  # one of NODE_KINDS
    device_Bps: float  # of one device, to all others together
    peer_Bps: float | None = None  # to one other device, where links are point to point
    latency_s: float  # from one device to another (torus: to a neighbour)
    efficiency: float  # of the rates above that large messages reach
    in_switch: bool = False  # the switches reduce (NVLS)
    nodes: int = 1  # that these links join: 1, those of a rack (NVL72), or all (a pod of TPUs)
    torus: tuple[int, ...] | None = None  # devices in each dimension of the domain
    wraps: int | None = None  # a torus slice's side that is a multiple of it closes to a ring


@dataclass(frozen=True, kw_only=True)
class Network:
    """What joins the nodes: leaf switches, groups of them, and links between groups.

    Where a node's cards are on several switches (rails, or Slingshot's pairs), those switches
    together are one leaf here. Groups are filled with nodes in order, `nodes_per_group` each;
    the last ones have `odd_groups` nodes, where those differ.
    """

    kind: str  # one of NETWORK_KINDS
    nic_Bps: float  # a device's share of its node's network cards
    nics_per_node: int
    nodes_per_leaf: int
    leaves_per_group: int
    nodes_per_group: int
    groups: int
    odd_groups: tuple[int, ...] = ()  # nodes of the last groups, where not nodes_per_group
    leaf_up_Bps: float | None = None  # all links of one leaf to the rest of its group
    global_Bps: float | None = None  # all links between two groups
    leaf_latency_s: float  # between nodes of one leaf
    group_latency_s: float | None = None  # between leaves of one group
    global_latency_s: float | None = None  # between groups
    efficiency: float  # of the link rates that large messages reach
    loss: tuple[tuple[int, float], ...] = ()  # (nodes from which on, share of bandwidth left)
    in_switch: bool = False  # the switches reduce (SHARP)
    adaptive: bool = True  # packets take the less loaded of several routes

    def group_sizes(self) -> tuple[int, ...]:
        """Return the number of nodes of each group."""
        regular = self.groups - len(self.odd_groups)
        return (self.nodes_per_group,) * regular + self.odd_groups
