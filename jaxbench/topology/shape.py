"""What a group of ranks looks like from the network: all that a cost formula depends on."""

from __future__ import annotations

from dataclasses import dataclass

# The links a group crosses, innermost first: none, those inside a node, those of one leaf
# (first-level) switch, those inside one group of switches, those between groups.
TIERS = ("self", "node", "leaf", "group", "global")


@dataclass(frozen=True)
class Shape:
    """A group of `ranks` on `nodes` different nodes, at most `per_node` of them on one.

    `leaves` and `groups` count the different leaf switches and network groups (cells) among its
    nodes, `tier` is the outermost entry of TIERS that it crosses. A *node* is here what the
    node's links join: a rack of an NVL72, all of a TPU's slice (NodeLinks.nodes).

    On a torus, `hops` is the largest number of links between two ranks that follow each other in
    the group, of which the first follows the last.
    """

    ranks: int
    nodes: int
    per_node: int
    leaves: int
    groups: int
    tier: str
    hops: int = 1
