"""All-to-all and permute: messages from rank to rank."""

from __future__ import annotations

import math
from collections.abc import Iterator

from jaxbench.costs import all_to_all, point_to_point
from jaxbench.costs.interface import Cost
from jaxbench.costs.priced import message_s, priced
from jaxbench.costs.protocols import Library
from jaxbench.costs.reach import Reach


def pairwise_all_to_all(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """Each rank sends to every other one."""
    if reach.on_torus:
        return
    # Parts for all ranks are equally large, so those with the fewest on their node send most out.
    within, beyond = reach.shape.per_node - 1, reach.shape.ranks - reach.least
    node, net = within / reach.node_Bps, beyond / reach.spread_Bps
    link = "node" if node >= net else reach.spread_bound
    for protocol in library.protocols:
        peer_s = message_s(reach, protocol.ring) if library.peer_s is None else library.peer_s
        terms = all_to_all.pairwise(
            reach.shape.ranks,
            within,
            beyond,
            nbytes,
            peer_s,
            reach.node_Bps * protocol.share,
            reach.spread_Bps * protocol.share,
        )
        yield priced("pairwise", protocol, protocol.ring.base_s, terms, link)


def bruck_all_to_all(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """log2 n steps through the slowest links, for small messages."""
    if reach.on_torus:
        return
    net = reach.net_Bps / reach.least
    inside = reach.node_Bps if reach.shape.per_node > 1 else math.inf
    Bps, link = min((inside, "node"), (net, reach.net_bound))
    for protocol in library.protocols:
        terms = all_to_all.bruck(
            reach.shape.ranks, nbytes, message_s(reach, protocol.ring), Bps * protocol.share
        )
        yield priced("bruck", protocol, protocol.ring.base_s, terms, link)


def point_to_point_permute(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """One message."""
    if reach.on_torus:
        return
    Bps, link = reach.slowest
    for protocol in library.protocols:
        latency_s = message_s(reach, protocol.ring)
        terms = point_to_point.send(nbytes, latency_s, Bps * protocol.share)
        yield priced("point_to_point", protocol, protocol.ring.base_s, terms, link)
