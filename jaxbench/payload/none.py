"""The payload `none`: a compute that takes no time and is still an opaque step of the token."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from jaxbench.payload.interface import Timing
from jaxbench.payload.opaque import unchanged


@dataclass(frozen=True)
class NoPayload:
    """Hand on the token; what depends on the compute still can't be merged with what doesn't."""

    def apply(self, token: jax.Array) -> jax.Array:
        """Return `token`, which XLA takes for a new value."""
        return unchanged(token, token)


@dataclass(frozen=True)
class NoFit:
    """Nothing to calibrate: every length becomes none."""

    def payload(self, seconds: float) -> NoPayload:
        """Return the empty payload."""
        return NoPayload()

    def to_dict(self) -> dict[str, str]:
        """Return what the record needs to know."""
        return {"implementation": "none"}


def fit(clock: Timing, platform: str, dtype: str) -> NoFit:
    """Fit nothing."""
    return NoFit()
