"""What a communication library adds: its protocols' constants, by library.

NCCL copies data with one of three protocols: LL (a flag beside every 4 bytes: quick, half of the
bandwidth), LL128 (a flag in every 128 bytes) and Simple (large chunks, fences between them). The
constants are those of its tuner (NVIDIA/nccl src/graph/tuning.cc), which also takes the cheapest.
"""

from __future__ import annotations

from typing import NamedTuple


class Hop(NamedTuple):
    """Seconds that a protocol needs in an algorithm: once, per hop inside a node, and between."""

    base_s: float
    node_s: float
    net_s: float


class Protocol(NamedTuple):
    """A way to copy: `share` of the bandwidth, and its constants in rings and trees."""

    name: str
    share: float
    ring: Hop
    tree: Hop


class Library(NamedTuple):
    """What runs the collectives: its protocols, and the algorithms it chooses from.

    `peer_s` is the latency of an all-to-all for each peer; None: that of a message. No
    `algorithms`: all there are.
    """

    name: str
    protocols: tuple[Protocol, ...]
    algorithms: tuple[str, ...]
    peer_s: float | None
    source: str


_NCCL_PROTOCOLS = (
    Protocol("LL", 0.5, Hop(6.6e-6, 0.6e-6, 2.7e-6), Hop(6.8e-6, 0.6e-6, 5e-6)),
    Protocol("LL128", 0.92, Hop(14e-6, 1.9e-6, 4e-6), Hop(14e-6, 1.25e-6, 8.5e-6)),
    Protocol("Simple", 1.0, Hop(8.4e-6, 3.4e-6, 14e-6), Hop(8.4e-6, 4e-6, 14e-6)),
)
# NCCL has no hierarchical collective whose phases follow each other, and no Bruck.
_NCCL_ALGORITHMS = ("ring", "tree", "nvls", "sharp", "pairwise", "point_to_point")
_NONE = Hop(0.0, 0.0, 0.0)

NCCL = Library(
    "NCCL",
    _NCCL_PROTOCOLS,
    _NCCL_ALGORITHMS,
    2e-6,
    "NVIDIA/nccl src/graph/tuning.cc; about 2 us a peer",
)
RCCL = Library(
    "RCCL",
    _NCCL_PROTOCOLS,
    _NCCL_ALGORITHMS,
    2e-6,
    "assumed: the constants of NCCL, of which RCCL is a port",
)
# The formulas with nothing but the links' own latencies and bandwidths.
PLAIN = Library("plain", (Protocol("", 1.0, _NONE, _NONE),), (), None, "links only")

# By the start of a device's name in HARDWARE; the others have no library that we know of.
LIBRARIES: dict[str, Library] = {
    "a100": NCCL,
    "h100": NCCL,
    "h200": NCCL,
    "gh200": NCCL,
    "b200": NCCL,
    "gb200": NCCL,
    "gb300": NCCL,
    "mi250x": RCCL,
}


def library_of(hardware: str) -> Library:
    """Return the library that runs collectives on a row of HARDWARE, PLAIN where none is known."""
    return LIBRARIES.get(hardware.partition("_")[0], PLAIN)
