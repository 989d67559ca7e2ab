"""Which links the flows between nodes take, under three kinds of routing.

*minimal*: leaf up, the link between the two groups, leaf down; the parallel links of a bundle are
used evenly. *adaptive*: the same, but what the link between two groups can't carry goes through
other groups that have room (Valiant and Brebner 1981; UGAL, Singh 2005). *static*: minimal, but a
flow sticks to one link of each bundle, which a hash chooses (ECMP).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jaxbench.costs.links import Floats, Ints, Links

# Every routing, and whether the links of a bundle are told apart.
ROUTINGS: dict[str, bool] = {"minimal": False, "adaptive": False, "static": True}

# Rounds in which what other groups have left is shared out; more change the result little.
ROUNDS = 4


@dataclass(frozen=True)
class Flows:
    """What devices send to devices of other nodes: F flows with the bytes (or rate) of each.

    `outside` tells which flows also leave the leaf where the two leaves differ, `rails` which load
    the cards: a reduction inside the switches loads a leaf's uplinks once for all of its nodes.
    """

    source: Ints  # node
    source_device: Ints  # within the node
    target: Ints
    target_device: Ints
    amount: Floats
    rails: NDArray[np.bool_]
    outside: NDArray[np.bool_]


def route(flows: Flows, links: Links, seed: int = 0) -> tuple[Ints, Floats]:
    """Return the links that the flows take, each once, and what they load each of them with.

    Where `links` tells parallel links apart, the hash of a flow's ends and of `seed` chooses.
    """
    leaf, group = links.topology.leaf, links.topology.group
    up, down = leaf[flows.source], leaf[flows.target]
    near, far = group[flows.source], group[flows.target]
    key = hashed(seed, flows.source, flows.source_device, flows.target, flows.target_device)
    leaves = flows.outside & (up != down)
    crosses = leaves & (near != far)
    pieces = [
        (flows.rails, links.rail(flows.source, flows.source_device, False)),
        (flows.rails, links.rail(flows.target, flows.target_device, True)),
        (leaves, links.uplink(up, False, chosen(key, 1, links.parallel_leaf))),
        (leaves, links.uplink(down, True, chosen(key, 2, links.parallel_leaf))),
        (crosses, links.between(near, far, chosen(key, 3, links.parallel_global))),
    ]
    link = np.concatenate([numbers[taken] for taken, numbers in pieces])
    amount = np.concatenate([flows.amount[taken] for taken, _ in pieces])
    used, which = np.unique(link, return_inverse=True)
    return used, np.bincount(which, amount, len(used)).astype(float)


def chosen(key: NDArray[np.uint64], stage: int, parallel: int) -> Ints:
    """Return which of `parallel` links each flow sticks to at a stage of its way."""
    if parallel == 1:
        return np.zeros(len(key), np.int64)
    return (mixed(key + np.uint64(stage)) % np.uint64(parallel)).astype(np.int64)


def hashed(seed: int, *columns: Ints) -> NDArray[np.uint64]:
    """Return a number for each row of `columns` that looks random and depends on `seed`."""
    key = mixed(np.full(len(columns[0]), seed, np.uint64))
    for column in columns:
        key = mixed(key ^ column.astype(np.uint64))
    return key


def mixed(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the keys with their bits mixed: the finaliser of SplitMix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        key = key + np.uint64(0x9E3779B97F4A7C15)
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return key ^ (key >> np.uint64(31))


def adaptive_capacity(demand: Floats, capacity: Floats) -> Floats:
    """Return what adaptive routing lets pass between groups, [G, G] bytes a second, from and to.

    `demand` is what all flows want to send from group to group, `capacity` what the links between
    the two carry. Pairs that want no more than that keep their links to themselves. What others
    want in excess goes over two links, through groups where both links have room left: shared out
    in proportion to that room, cut where several excesses meet on one link, and again with what is
    left. That is a fluid approximation of per-packet adaptive routing from below: a pair never
    gets less than its own links, no link carries more than it can, and room that appears only when
    flows are held back elsewhere stays unused. Links inside the group in between count as free.
    """
    excess = np.maximum(demand - capacity, 0.0)
    np.fill_diagonal(excess, 0.0)
    if not excess.any():
        return capacity
    room = np.maximum(capacity - demand, 0.0)
    np.fill_diagonal(room, 0.0)
    got = np.zeros_like(capacity)
    pairs = np.argwhere(excess > 0)
    source, target = pairs[:, 0], pairs[:, 1]
    for _ in range(ROUNDS):
        # [pairs, G]: the room of the two links through each group
        path = np.minimum(room[source, :], room[:, target].T)
        total = path.sum(axis=1)
        if not total.any():
            break
        left = excess[source, target] - got[source, target]
        share = np.divide(left, total, out=np.zeros_like(left), where=total > 0)
        asked = path * np.minimum(share, 1.0)[:, None]
        first, second = np.zeros_like(room), np.zeros_like(room)
        np.add.at(first, source, asked)
        np.add.at(second.T, target, asked)
        wanted = first + second
        fits = np.divide(room, wanted, out=np.ones_like(room), where=wanted > room)
        granted = asked * np.minimum(fits[source, :], fits[:, target].T)
        np.subtract.at(room, source, granted)
        np.subtract.at(room.T, target, granted)
        np.maximum(room, 0.0, out=room)
        got[source, target] += granted.sum(axis=1)
    return np.where(excess > 0, capacity + got, demand + room)
