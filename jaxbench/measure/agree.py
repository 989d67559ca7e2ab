"""One mind for many processes: what steers control flow is decided by process 0."""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np

Number = TypeVar("Number", int, float)


def agree(value: Number) -> Number:
    """Return process 0's `value` on every process; every process must call it, in the same order.

    The 64 bits travel as two 32-bit integers, because JAX would round a float64 to float32.
    """
    if jax.process_count() == 1:
        return value
    from jax.experimental import multihost_utils

    wide = np.array([value], np.int64 if isinstance(value, int) else np.float64)
    received = multihost_utils.broadcast_one_to_all(wide.view(np.uint32))
    return type(value)(np.asarray(received, np.uint32).view(wide.dtype)[0])


def everywhere(ok: bool) -> bool:
    """Return whether `ok` holds on every process; every process must call it."""
    if jax.process_count() == 1:
        return ok
    from jax.experimental import multihost_utils

    return bool(np.asarray(multihost_utils.process_allgather(np.array([ok]))).all())
