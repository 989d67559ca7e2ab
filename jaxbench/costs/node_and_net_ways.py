"""Collectives that do one thing inside nodes and another between them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from jaxbench.costs import hierarchical, in_switch, ring, tree
from jaxbench.costs.interface import Cost
from jaxbench.costs.priced import node_hop_s, priced
from jaxbench.costs.protocols import Hop, Library, Protocol
from jaxbench.costs.reach import Reach
from jaxbench.costs.terms import Terms


def nvls_all_reduce(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """Reductions in the switches of nodes, and trees between nodes."""
    if reach.switch_Bps is None:
        return
    latency_s, rate, link = in_switch.LATENCY_S, reach.switch_Bps, "node"
    if reach.shape.nodes > 1:
        hop = library.protocols[-1].tree
        latency_s += 2 * math.log2(reach.shape.nodes) * reach.tree_level_s(hop.net_s)
        rate, link = min((rate, link), (reach.net_Bps / 2, reach.net_bound))
    yield priced("nvls", None, 0.0, in_switch.all_reduce(nbytes, latency_s, rate), link)


def sharp_all_reduce(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """Reductions in the network's switches, and in those of nodes or a ring inside them."""
    if reach.shape.nodes == 1 or not reach.net_reduces:
        return
    hop, inside = library.protocols[-1].ring, reach.shape.per_node
    latency_s = in_switch.LATENCY_S + 2 * (hop.net_s + reach.farthest_s)  # up and down again
    rate, link = reach.net_Bps, reach.net_bound
    if reach.switch_Bps is not None:
        rate, link = min((rate, link), (reach.switch_Bps, "node"))
    elif inside > 1:
        latency_s += 2 * (inside - 1) * node_hop_s(reach, hop)
        around = reach.node_Bps * inside / (2 * (inside - 1))
        rate, link = min((rate, link), (around, "node"))
    yield priced("sharp", None, 0.0, in_switch.all_reduce(nbytes, latency_s, rate), link)


def hierarchical_all_reduce(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """Reduce-scatter in the nodes, all-reduce between them (ring or tree), all-gather in them."""
    for protocol, inside in _inside_phase(nbytes, reach, library):
        nodes, part = reach.shape.nodes, nbytes / reach.least
        Bps = reach.net_Bps / reach.least * protocol.share
        step_s = reach.between_step_s(protocol.ring.net_s)
        level_s = reach.tree_level_s(protocol.tree.net_s)
        rings = ring.all_reduce(nodes, part, step_s, Bps)
        trees = tree.all_reduce(1, nodes, part, 0.0, level_s, Bps)
        for hop, between in ((protocol.ring, rings), (protocol.tree, trees)):
            terms = hierarchical.all_reduce(inside, between)
            link = _longer(2 * inside.transfer_s, between.transfer_s, reach.net_bound)
            yield priced("hierarchical", protocol, _bases(protocol.ring, hop, 2), terms, link)


def hierarchical_gather(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """Between the nodes a part of the vector for each rank of a node, then inside; or reversed."""
    for protocol, inside in _inside_phase(nbytes, reach, library):
        between = ring.gather(
            reach.shape.nodes,
            nbytes / reach.least,
            reach.between_step_s(protocol.ring.net_s),
            reach.net_Bps / reach.least * protocol.share,
        )
        terms = hierarchical.gather(inside, between)
        link = _longer(inside.transfer_s, between.transfer_s, reach.net_bound)
        yield priced("hierarchical", protocol, _bases(protocol.ring, protocol.ring, 1), terms, link)


def _inside_phase(
    nbytes: float, reach: Reach, library: Library
) -> Iterator[tuple[Protocol, Terms]]:
    """Yield, for each protocol, the reduce-scatter inside nodes, if all have as many ranks."""
    if reach.shape.nodes == 1 or reach.least == 1 or not reach.even:
        return
    for protocol in library.protocols:
        step_s = node_hop_s(reach, protocol.ring)
        yield protocol, ring.gather(reach.least, nbytes, step_s, reach.node_Bps * protocol.share)


def _bases(inside: Hop, between: Hop, phases_inside: int) -> float:
    """Each phase is a collective of its own, started for itself."""
    return phases_inside * inside.base_s + between.base_s


def _longer(inside_s: float, between_s: float, net_bound: str) -> str:
    return "node" if inside_s >= between_s else net_bound
