"""The kinds of collective that are benchmarked: what runs, what its size counts, its bus factor.

Sizes and bandwidths follow nccl-tests (github NVIDIA/nccl-tests doc/PERFORMANCE.md), so that the
numbers can be laid beside NCCL's: algorithmic bandwidth = size / time, bus bandwidth =
algorithmic bandwidth * bus factor, which makes it comparable with the speed of a link for every
number n of ranks. No array library is needed here.
"""

from __future__ import annotations

from typing import NamedTuple

ROOT = 0  # position in its group of the rank that a broadcast starts from and a reduce ends at


class Kind(NamedTuple):
    """One kind of collective, in words and as nccl-tests counts it.

    `parts`: its size is made of n equal parts, one a rank, and nccl-tests' count is that of a part.
    `rooted`: one rank is the source or the destination.
    """

    executes: str
    size: str
    bus_factor: str
    redop: str
    parts: bool
    rooted: bool


KINDS: dict[str, Kind] = {
    "all_reduce": Kind(
        executes="lax.psum: an all-reduce",
        size="a rank's input",
        bus_factor="2(n-1)/n",
        redop="sum",
        parts=False,
        rooted=False,
    ),
    "all_gather": Kind(
        executes="lax.all_gather: an all-gather",
        size="a rank's output",
        bus_factor="(n-1)/n",
        redop="none",
        parts=True,
        rooted=False,
    ),
    "reduce_scatter": Kind(
        executes="lax.psum_scatter: a reduce-scatter",
        size="a rank's input",
        bus_factor="(n-1)/n",
        redop="sum",
        parts=True,
        rooted=False,
    ),
    "all_to_all": Kind(
        executes="lax.all_to_all: an all-to-all",
        size="a rank's input",
        bus_factor="(n-1)/n",
        redop="none",
        parts=True,
        rooted=False,
    ),
    "permute": Kind(
        executes="lax.ppermute: every rank sends to the next one of its ring",
        size="a message",
        bus_factor="1",
        redop="none",
        parts=False,
        rooted=False,
    ),
    # JAX has no broadcast and no reduce on every backend. This is what is written instead, and
    # what `jax.experimental.multihost_utils.broadcast_one_to_all` runs too.
    "broadcast": Kind(
        executes="a select of zeros on all ranks but the root, then lax.psum: an all-reduce",
        size="the root's input",
        bus_factor="1",
        redop="none",
        parts=False,
        rooted=True,
    ),
    "reduce": Kind(
        executes="lax.psum: an all-reduce, whose result only the root needs",
        size="a rank's input",
        bus_factor="1",
        redop="sum",
        parts=False,
        rooted=True,
    ),
}

DEFAULT_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")


def bus_factor(kind: str, ranks: int) -> float:
    """Return bus bandwidth over algorithmic bandwidth in a group of `ranks`."""
    from jaxbench.readings.plan import wire_factor

    return 1.0 if KINDS[kind].rooted else wire_factor(kind, ranks)
