"""What the buffers hold: small whole numbers, affine in rank and index, exact in every dtype.

    value(rank, index) = 1 + (RANK_STEP * rank + index) mod m

m is a prime that leaves room for exact sums: all values are non-zero, and neighbouring ranks and
indices differ. One formula, used by the devices and by the reference.
"""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

RANK_STEP = 61

# m by significant bits (stored mantissa and the hidden one): small enough for exact sums.
_MODULI = {24: 509, 11: 127, 8: 31, 4: 3, 3: 2}

# The largest sum of whole numbers that XLA gets exactly: fp8 is summed in float16, bfloat16 in
# float32, and float8_e4m3fn ends at 448.
_LARGEST_SUM = {
    "float32": 1 << 24,
    "bfloat16": 1 << 24,
    "float16": 1 << 11,
    "float8_e5m2": 1 << 11,
    "float8_e4m3fn": 448,
}


def modulus(dtypes: Iterable[str], ranks: int) -> int:
    """Return m for buffers of which sums over at most `ranks` ranks travel in `dtypes`.

    1 (all values alike) where a dtype can't hold the sum of anything else.
    """
    bits = min(jnp.finfo(dtype).nmant + 1 for dtype in dtypes)
    return max(1, min(_MODULI[bits], *(_LARGEST_SUM[dtype] // ranks for dtype in dtypes)))


def fill_value(rank: np.ndarray, index: np.ndarray, m: int) -> np.ndarray:
    """Return the values (float64) that buffers filled with modulus `m` hold at `index`."""
    return (1 + (RANK_STEP * rank + index) % m).astype(np.float64)


def device_fill(rank: jax.Array, elements: int, dtype: str, m: int) -> jax.Array:
    """Return one rank's flat buffer, made on the device; counts may exceed 32 bits."""
    rows = -(-elements // m)
    column = lax.broadcasted_iota(jnp.int32, (rows, m), 1)
    values = 1 + (rank * RANK_STEP % m + column) % m
    return lax.slice(values.astype(dtype).reshape(-1), (0,), (elements,))
