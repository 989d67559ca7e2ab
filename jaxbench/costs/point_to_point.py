"""Point to point: one message from one rank to another."""

from __future__ import annotations

from jaxbench.costs.terms import Terms


def send(nbytes: float, latency_s: float, Bps: float) -> Terms:
    """The latency-bandwidth model (Hockney 1994): a + S / b."""
    return Terms(latency_s, nbytes / Bps)
