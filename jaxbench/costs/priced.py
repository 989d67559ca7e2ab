"""From a formula's terms to a cost: the library's own seconds, a name, and what bounds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jaxbench.costs.interface import Cost
from jaxbench.costs.protocols import Hop, Library, Protocol
from jaxbench.costs.reach import Reach
from jaxbench.costs.terms import Terms

# A way to do a collective: from bytes, a group's links and the library to the cost with each of
# its protocols, or to nothing where the links don't have what it needs.
Way = Callable[[float, Reach, Library], Iterator[Cost]]


def priced(name: str, protocol: Protocol | None, base_s: float, terms: Terms, link: str) -> Cost:
    """Return the cost of `terms` after `base_s`; `link` bounds it unless the latency is more."""
    latency_s = base_s + terms.latency_s
    bound = "latency" if latency_s > terms.transfer_s else link
    algorithm = f"{name}/{protocol.name}" if protocol and protocol.name else name
    return Cost(latency_s + terms.transfer_s, latency_s, algorithm, bound)


def message_s(reach: Reach, hop: Hop) -> float:
    """Return the latency of a message to the farthest rank of a group."""
    if reach.shape.nodes == 1:
        return node_hop_s(reach, hop)
    return hop.net_s + reach.farthest_s


def node_hop_s(reach: Reach, hop: Hop) -> float:
    """Return the latency of a hop inside a node.

    A protocol's constant holds the latency of the links, as it was measured on them.
    """
    return max(hop.node_s, reach.latencies.node_s)
