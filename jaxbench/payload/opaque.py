"""Hiding from XLA that a token leaves a payload as it came."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

# No token and no value of a payload comes near it, and XLA cannot know that.
NEVER = 1e30


def late(witness: jax.Array) -> jax.Array:
    """Return a bool scalar that is false, and known only once `witness` (one element) is."""
    return lax.reshape(witness, ()) > NEVER


def empty_loop(token: jax.Array) -> jax.Array:
    """Return `token` after a loop of zero trips, a number that XLA can't know.

    On CPU a loop is what keeps collectives apart: without one, XLA would schedule all of them
    first. Accelerators, where run-time trip counts cost a host transfer, have the ties' barriers.
    """

    def loop(token: jax.Array) -> jax.Array:
        trips = late(token).astype(jnp.int32)
        return unchanged(token, lax.fori_loop(0, trips, lambda _, x: x + 1, token))

    return lax.platform_dependent(token, cpu=loop, default=lambda token: unchanged(token, token))


def unchanged(token: jax.Array, witness: jax.Array) -> jax.Array:
    """Return `token` (f32[1]) bit for bit, available only once `witness` (one element) is.

    A select and not an addition: adding zero would change -0.0, and flush subnormal numbers.
    """
    return lax.select(lax.broadcast(late(witness), token.shape), token + 1, token)
