"""The two parts of a formula's answer: what doesn't depend on bytes, and what does."""

from __future__ import annotations

from typing import NamedTuple


class Terms(NamedTuple):
    """Seconds of a collective: `latency_s` without bytes, and `transfer_s` more because of them."""

    latency_s: float
    transfer_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.latency_s + self.transfer_s


FREE = Terms(0.0, 0.0)


def in_turn(*phases: Terms) -> Terms:
    """Return the terms of phases that follow each other."""
    return Terms(sum(p.latency_s for p in phases), sum(p.transfer_s for p in phases))
