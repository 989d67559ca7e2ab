"""What the buffers hold: small whole numbers, affine in rank and index, exact in every dtype.

    value(rank, index) = 1 + (RANK_STEP * rank + index) mod m

m is a prime that leaves room for exact sums: all values are non-zero, and neighbouring ranks and
indices differ. One formula, used by the devices and by the reference.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

RANK_STEP = 61

# m by significant bits (stored mantissa and the hidden one): sums of 2^bits / m values are exact.
_MODULI = {24: 509, 11: 127, 8: 31, 4: 3, 3: 2}


def modulus(dtype: str) -> int:
    """Return m for a floating dtype."""
    return _MODULI[jnp.finfo(dtype).nmant + 1]


def fill_value(rank: np.ndarray, index: np.ndarray, dtype: str) -> np.ndarray:
    """Return the values (float64) that buffers of `dtype` hold at `index` on `rank`."""
    return (1 + (RANK_STEP * rank + index) % modulus(dtype)).astype(np.float64)


def device_fill(rank: jax.Array, elements: int, dtype: str) -> jax.Array:
    """Return one rank's flat buffer, made on the device; counts may exceed 32 bits."""
    m = modulus(dtype)
    rows = -(-elements // m)
    column = lax.broadcasted_iota(jnp.int32, (rows, m), 1)
    values = 1 + (rank * RANK_STEP % m + column) % m
    return lax.slice(values.astype(dtype).reshape(-1), (0,), (elements,))
