"""Ring: in every step each rank sends a part of the vector to the next rank of a ring.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
All functions: `ranks` n, `nbytes` of the full vector, seconds per step `step_s`, bytes per second
`Bps` of a rank to the next.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxbench.costs.terms import Terms


def all_reduce(ranks: int, nbytes: float, step_s: float, Bps: float) -> Terms:
    """A reduce-scatter and an all-gather: 2(n-1) steps, 2(n-1)/n S / b."""
    half = gather(ranks, nbytes, step_s, Bps)
    return Terms(2 * half.latency_s, 2 * half.transfer_s)


def gather(ranks: int, nbytes: float, step_s: float, Bps: float) -> Terms:
    """All-gather or reduce-scatter: n-1 steps, (n-1)/n S / b."""
    return Terms((ranks - 1) * step_s, (ranks - 1) / ranks * nbytes / Bps)


def step_over(hops: Iterable[tuple[int, float]]) -> float:
    """Return seconds per step in a ring whose hops differ, given as (how many, seconds of one).

    In n-1 steps a part goes over all hops but one. The last part to arrive is the one that is
    spared the quickest.
    """
    present = [(count, seconds) for count, seconds in hops if count]
    steps = sum(count for count, _ in present) - 1
    total = sum(count * seconds for count, seconds in present)
    return (total - min(seconds for _, seconds in present)) / max(steps, 1)
