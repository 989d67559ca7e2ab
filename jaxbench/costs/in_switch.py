"""In-switch reduction: every rank sends its vector to a switch once and gets the sum once.

NVLS in the switches of NVLink, SHARP in those of a network (Graham et al., "Scalable Hierarchical
Aggregation Protocol (SHArP)", 2016). `Bps`, the rate, counts
bytes of the vector.
"""

from __future__ import annotations

from jaxbench.costs.terms import Terms

LATENCY_S = 25e-6  # NVLS in NCCL's tuner (NVIDIA/nccl src/graph/tuning.cc)


def all_reduce(nbytes: float, latency_s: float, Bps: float) -> Terms:
    """One pass of the vector through the switch: a + S / rate.

    Where nodes' switches reduce and there is more between the nodes, the two are pipelined: the
    lower rate counts. Trees pass 2S over a node's cards, so their rate is half of the cards'; the
    switches of a network pass S.
    """
    return Terms(latency_s, nbytes / Bps)
