"""Double binary tree: two trees over the nodes, each for half of the vector, a chain inside nodes.

Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
2009; the constants are those of NCCL's tuner (NVIDIA/nccl src/graph/tuning.cc).
"""

from __future__ import annotations

import math

from jaxbench.costs.terms import Terms

SHARE = 0.92  # of the bandwidth of a ring that trees reach with large messages

# Of medium sizes NCCL's tuner gives trees half of that to nine tenths. Here the share rises with
# each doubling, from a half to all of it between these sizes (the lower one is our choice: below
# it latency counts).
RAMP_BYTES = (2**20, 2**28)
RAMP_SHARE = 0.5


def all_reduce(
    per_node: int, nodes: int, nbytes: float, node_s: float, level_s: float, Bps: float
) -> Terms:
    """A reduction up the trees and a broadcast down, pipelined.

    2((g-1) a_node + log2(nodes) a_net) + 2S / (.92 b), less of b below 256 MB. `node_s` is of a
    hop inside a node, `level_s` of a level of the tree between nodes, `Bps` of a node.
    """
    latency_s = 2 * ((per_node - 1) * node_s + math.log2(nodes) * level_s)
    return Terms(latency_s, 2 * nbytes / (SHARE * ramp(nbytes) * Bps))


def ramp(nbytes: float) -> float:
    """Return the share of its large-message bandwidth that a tree reaches at a size."""
    low, high = RAMP_BYTES
    if nbytes <= low:
        return RAMP_SHARE
    if nbytes >= high:
        return 1.0
    return RAMP_SHARE + (1 - RAMP_SHARE) * math.log2(nbytes / low) / math.log2(high / low)
