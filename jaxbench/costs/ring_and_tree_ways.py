"""All-reduce, all-gather and reduce-scatter through all ranks: rings, and trees over nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jaxbench.costs import ring, tree
from jaxbench.costs.interface import Cost
from jaxbench.costs.priced import node_hop_s, priced
from jaxbench.costs.protocols import Library
from jaxbench.costs.reach import Reach
from jaxbench.costs.terms import Terms


def ring_all_reduce(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """One ring through all ranks."""
    yield from _ring(ring.all_reduce, nbytes, reach, library)


def ring_gather(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """One ring through all ranks."""
    yield from _ring(ring.gather, nbytes, reach, library)


def _ring(
    formula: Callable[[int, float, float, float], Terms],
    nbytes: float,
    reach: Reach,
    library: Library,
) -> Iterator[Cost]:
    if reach.on_torus:
        return
    Bps, link = reach.slowest
    for protocol in library.protocols:
        step_s = reach.ring_step_s(protocol.ring.node_s, protocol.ring.net_s)
        terms = formula(reach.shape.ranks, nbytes, step_s, Bps * protocol.share)
        yield priced("ring", protocol, protocol.ring.base_s, terms, link)


def tree_all_reduce(nbytes: float, reach: Reach, library: Library) -> Iterator[Cost]:
    """Two binary trees over the nodes, a chain inside each."""
    Bps, link = reach.slowest
    if reach.on_torus:
        return
    for protocol in library.protocols:
        hop = protocol.tree
        terms = tree.all_reduce(
            reach.shape.per_node,
            reach.shape.nodes,
            nbytes,
            node_hop_s(reach, hop),
            reach.tree_level_s(hop.net_s),
            Bps * protocol.share,
        )
        yield priced("tree", protocol, hop.base_s, terms, link)
