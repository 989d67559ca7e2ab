"""Collectives on a torus: rings along every dimension that a group spans, both ways, at once.

Each dimension works on a part of the vector, first along itself and then along the others, so the
bandwidths of all add up (Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives
on torus interconnects", 2010). `link_Bps` and `hop_s` are those of one link, one way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxbench.costs.terms import Terms


class Side(NamedTuple):
    """One dimension of a box of ranks: `ranks` in a line, `apart` links from each to the next.

    `closed`: the last one is as near to the first. Where they are apart, the ranks in between
    form groups of their own, with which the links are shared.
    """

    ranks: int
    apart: int
    closed: bool

    @property
    def lanes(self) -> float:
        """Links that carry a gather past a rank: both ways around a ring, one way on a line."""
        return (2 if self.closed else 1) / self.apart

    @property
    def hops(self) -> int:
        """Links to the farthest rank."""
        return self.apart * (self.ranks // 2 if self.closed else self.ranks - 1)


Box = Sequence[Side]


def all_reduce(box: Box, nbytes: float, hop_s: float, link_Bps: float) -> Terms:
    """A reduce-scatter and an all-gather: 2(n-1)/n S / (lanes b)."""
    half = gather(box, nbytes, hop_s, link_Bps)
    return Terms(2 * half.latency_s, 2 * half.transfer_s)


def gather(box: Box, nbytes: float, hop_s: float, link_Bps: float) -> Terms:
    """All-gather or reduce-scatter: (n-1)/n S / (lanes b), and a hop's latency for each link."""
    ranks = math.prod(side.ranks for side in box)
    lanes = sum(side.lanes for side in box)
    latency_s = sum(side.hops for side in box) * hop_s
    return Terms(latency_s, (ranks - 1) / ranks * nbytes / (lanes * link_Bps))


def all_to_all(box: Box, nbytes: float, hop_s: float, link_Bps: float) -> Terms:
    """Parts go along one dimension after the other; the busiest one bounds.

    On a ring of k a part passes k/4 links on average, one way or the other, so each link carries
    S k/8. On a line the middle link carries S k/4.
    """
    latency_s = sum(side.hops for side in box) * hop_s
    share = max(side.apart * side.ranks / (8 if side.closed else 4) for side in box)
    return Terms(latency_s, share * nbytes / link_Bps)


def send(hops: int, nbytes: float, hop_s: float, link_Bps: float) -> Terms:
    """A message to a rank `hops` links away, while all others send as far: h (a + S / b)."""
    return Terms(hops * hop_s, hops * nbytes / link_Bps)
