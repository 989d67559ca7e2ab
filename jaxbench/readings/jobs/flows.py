"""What a collective makes its ranks send to each other over the network, by algorithm.

Ranks are numbers within a job. What ranks of one scale-up domain send to each other stays inside
and isn't listed. A node is here such a domain; nodes follow each other by number, as the cost
models have it, and what goes from node to node is spread evenly over their ranks (rails).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jaxbench.costs.algorithms import name_of
from jaxbench.costs.links import Floats, Ints


@dataclass(frozen=True, eq=False)
class RankFlows:
    """F flows between the ranks of a job: `amount` is bytes.

    `rails` and `outside` are those of `costs.routing.Flows`.
    """

    source: Ints
    target: Ints
    amount: Floats
    rails: NDArray[np.bool_]
    outside: NDArray[np.bool_]

    def times(self, factor: float) -> RankFlows:
        """Return the same flows with `factor` times the bytes."""
        return RankFlows(self.source, self.target, self.amount * factor, self.rails, self.outside)


def make_flows(
    source: Ints, target: Ints, amount: Floats, rails: bool = True, outside: bool = True
) -> RankFlows:
    """Return flows that all load the same kinds of links."""
    shape = len(source)
    return RankFlows(
        np.asarray(source, np.int64),
        np.asarray(target, np.int64),
        np.asarray(amount, float),
        np.full(shape, rails),
        np.full(shape, outside),
    )


_NOBODY: Ints = np.empty(0, np.int64)
NO_FLOWS = make_flows(_NOBODY, _NOBODY, np.empty(0))


def join(parts: Sequence[RankFlows]) -> RankFlows:
    """Return all flows of `parts`, those of the same ends and kind added up."""
    if not parts:
        return NO_FLOWS
    columns = [
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("source", "target", "rails", "outside", "amount")
    ]
    *ends, amount = columns
    if not len(amount):
        return NO_FLOWS
    numbers = tuple(column.astype(np.int64) for column in ends)
    key = np.ravel_multi_index(numbers, tuple(int(column.max()) + 1 for column in numbers))
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    source, target, rails, outside = (column[first] for column in ends)
    total = np.bincount(which, amount).astype(float)
    return RankFlows(source, target, total, rails, outside)


def collective_flows(
    kind: str,
    algorithms: Sequence[str],
    groups: Ints,
    nbytes: Floats,
    domain: Ints,
    leaf: Ints,
) -> RankFlows:
    """Return what the groups of a collective send, [G, n] ranks (a permute's are its pairs).

    `algorithms` ([G]) are those of the cost model, `nbytes` ([G]) what counts as a plan's elements
    do, for all executions together; `domain` and `leaf` are those of each rank.
    """
    parts = []
    crossing = (domain[groups] != domain[groups[:, :1]]).any(axis=1)
    for number in np.flatnonzero(crossing & (nbytes > 0)).tolist():
        pattern = PATTERNS.get(name_of(algorithms[number]), USUAL[kind])
        parts.append(pattern(kind, Group(groups[number], domain, leaf), float(nbytes[number])))
    return join(parts)


class Group:
    """The members of one group, node by node."""

    def __init__(self, members: Ints, domain: Ints, leaf: Ints):
        self.members = members
        domains, self.node = np.unique(domain[members], return_inverse=True)  # [n]: of each member
        self.nodes = [members[self.node == number] for number in range(len(domains))]
        self.leaf = leaf[np.array([ranks[0] for ranks in self.nodes])]

    def between(self, sources: Ints, targets: Ints, amount: float) -> RankFlows:
        """Send `amount` from node to node ([E] numbers each), spread over their ranks."""
        source, target, share = [], [], []
        for from_node, to_node in zip(sources, targets, strict=True):
            here, there = self.nodes[from_node], self.nodes[to_node]
            rails = np.arange(max(len(here), len(there)))
            source.append(here[rails % len(here)])
            target.append(there[rails % len(there)])
            share.append(np.full(len(rails), amount / len(rails)))
        return make_flows(np.concatenate(source), np.concatenate(target), np.concatenate(share))


# all_reduce passes the vector around twice, all_gather and reduce_scatter once
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def ring(kind: str, group: Group, nbytes: float) -> RankFlows:
    """Every node sends passes (n-1)/n S to the next, n ranks."""
    ranks = len(group.members)
    return _around(group, PASSES[kind] * (ranks - 1) / ranks * nbytes)


def hierarchical(kind: str, group: Group, nbytes: float) -> RankFlows:
    """A ring over the k nodes for each rail: passes (k-1)/k S in all."""
    nodes = len(group.nodes)
    return _around(group, PASSES[kind] * (nodes - 1) / nodes * nbytes)


def _around(group: Group, nbytes: float) -> RankFlows:
    every = np.arange(len(group.nodes))
    return group.between(every, np.roll(every, -1), nbytes)


def tree(kind: str, group: Group, nbytes: float) -> RankFlows:
    """Two binary trees over the nodes, S/2 up and down every edge of both."""
    assert kind == "all_reduce"
    child, parent = double_tree(len(group.nodes))
    return group.between(
        np.concatenate([child, parent]), np.concatenate([parent, child]), nbytes / 2
    )


def double_tree(nodes: int) -> tuple[Ints, Ints]:
    """Return (child, parent) of every edge of two binary trees; no node is inside in both.

    The first is in order: the parent of a number is the nearest one with more zeros at its end.
    The second is its mirror image, or its shift by one where the number of nodes is odd (Sanders,
    Speck and Traeff 2009).
    """
    number = np.arange(1, nodes)
    low = number & -number
    parent = (number ^ low) | (low << 1)
    parent = np.where(parent < nodes, parent, number ^ low)
    if nodes % 2:
        other = [(number + 1) % nodes, (parent + 1) % nodes]
    else:
        other = [nodes - 1 - number, nodes - 1 - parent]
    return np.concatenate([number, other[0]]), np.concatenate([parent, other[1]])


def in_network(kind: str, group: Group, nbytes: float) -> RankFlows:
    """Every node sends S to its leaf and gets S; so does every leaf, once for all of its nodes."""
    assert kind == "all_reduce"
    cards = _around(group, nbytes)
    first = np.unique(group.leaf, return_index=True)[1]
    heads = np.array([group.nodes[node][0] for node in sorted(first)])
    amount = np.full(len(heads), nbytes)
    no, yes = np.zeros(len(cards.source), bool), np.ones(len(cards.source), bool)
    inside = RankFlows(cards.source, cards.target, cards.amount, yes, no)
    return join([inside, make_flows(heads, np.roll(heads, -1), amount, rails=False)])


def pairwise(kind: str, group: Group, nbytes: float) -> RankFlows:
    """Each member sends S/n to each other one."""
    assert kind == "all_to_all"
    return _direct(group, range(1, len(group.members)), lambda _: nbytes / len(group.members))


def bruck(kind: str, group: Group, nbytes: float) -> RankFlows:
    """In step j a member sends to the one 2^j further what has bit j in its distance."""
    assert kind == "all_to_all"
    ranks = len(group.members)
    offsets = [2**j for j in range((ranks - 1).bit_length())]
    parts = {offset: sum(bool(d & offset) for d in range(ranks)) for offset in offsets}
    return _direct(group, offsets, lambda offset: parts[offset] / ranks * nbytes)


def _direct(group: Group, offsets: Sequence[int], amount: Callable[[int], float]) -> RankFlows:
    """Let every member send `amount(d)` to the one d further on in the group, around."""
    members, away = np.array(group.members), np.array(offsets)
    place = np.arange(len(members))
    target = (place[:, None] + away) % len(members)
    leaves = group.node[:, None] != group.node[target]
    amounts = np.broadcast_to(np.array([amount(int(d)) for d in away]), target.shape)
    source = np.broadcast_to(place[:, None], target.shape)
    return make_flows(members[source[leaves]], members[target[leaves]], amounts[leaves])


def message(kind: str, group: Group, nbytes: float) -> RankFlows:
    """The first sends S to the second."""
    source, target = group.members
    return make_flows(np.array([source]), np.array([target]), np.array([nbytes]))


Pattern = Callable[[str, Group, float], RankFlows]

# By the name that the cost models give the algorithm.
PATTERNS: dict[str, Pattern] = {
    "ring": ring,
    "tree": tree,
    "nvls": tree,  # between nodes
    "sharp": in_network,
    "hierarchical": hierarchical,
    "pairwise": pairwise,
    "bruck": bruck,
    "point_to_point": message,
}

# Where the cost model doesn't say how, since it was measured.
USUAL: dict[str, Pattern] = {
    "all_reduce": ring,
    "all_gather": ring,
    "reduce_scatter": ring,
    "all_to_all": pairwise,
    "permute": message,
}
