"""All-to-all: every rank has a different part for every other one.

`ranks` n, `nbytes` S the buffer of a rank, of which S/n go to each peer.
"""

from __future__ import annotations

from jaxbench.costs.terms import Terms

PEER_S = 2e-6  # what a peer costs NCCL, whose all-to-all is a send and a receive for each


def pairwise(
    ranks: int,
    within: int,
    beyond: int,
    nbytes: float,
    peer_s: float,
    node_Bps: float,
    net_Bps: float,
) -> Terms:
    """Each part straight to its peer, links inside and between nodes at the same time.

    (n-1) a_peer + max((g-1)/n S / b_node, (n-g)/n S / b_net), with `within` g-1 peers of a rank
    on its node and `beyond` n-g elsewhere (each the most of any rank), bandwidths per rank.
    """
    part = nbytes / ranks
    return Terms((ranks - 1) * peer_s, max(within * part / node_Bps, beyond * part / net_Bps))


def bruck(ranks: int, nbytes: float, step_s: float, Bps: float) -> Terms:
    """Parts travel over several ranks: ceil(log2 n) steps, each of about half of the buffer.

    In step j every rank sends the parts whose distance to their destination has bit j set (Bruck
    et al., "Efficient algorithms for all-to-all communications in multiport message-passing
    systems", 1997): S log2(n) / 2 in all if n is a power of two.
    """
    steps = (ranks - 1).bit_length()
    parts = sum(_with_bit(ranks, bit) for bit in range(steps))
    return Terms(steps * step_s, parts / ranks * nbytes / Bps)


def _with_bit(count: int, bit: int) -> int:
    """Return how many of 0 to count-1 have `bit` set."""
    period = 2 << bit
    return count // period * (period // 2) + max(0, count % period - period // 2)
