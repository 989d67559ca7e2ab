"""NumPy meanings of the primitives that steer a program or touch single values.

Every array has a leading dimension over ranks, of size R, or 1 where all ranks agree. Used by all
readings that need concrete values: loop counters, axis indices, predicates, slices.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray
Params = dict[str, Any]


def _elementwise(function: Callable[..., Array]) -> Callable[..., Array]:
    """A scalar operand (one number a rank) meets an array of any shape."""

    def apply(params: Params, *arrays: Array) -> Array:
        ndim = max(a.ndim for a in arrays)
        return function(*(a.reshape(a.shape + (1,) * (ndim - a.ndim)) for a in arrays))

    return apply


def _truncated(a: Array, b: Array) -> Array:
    """XLA divides whole numbers towards zero."""
    if np.issubdtype(a.dtype, np.integer):
        return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)
    return a / b


def _remainder(a: Array, b: Array) -> Array:
    return np.fmod(a, b)


def _select(params: Params, which: Array, *cases: Array) -> Array:
    which = which.astype(np.int64)
    if which.ndim < max(case.ndim for case in cases):
        which = which.reshape(which.shape + (1,) * (cases[0].ndim - which.ndim))
    result = cases[0]
    for number, case in enumerate(cases[1:], start=1):
        result = np.where(which == number, case, result)
    return result


def _broadcast(params: Params, a: Array, *_: Array) -> Array:
    shape, dims = params["shape"], params["broadcast_dimensions"]
    expanded = [1] * len(shape)
    for position, dim in enumerate(dims):
        expanded[dim] = a.shape[position + 1]
    return np.broadcast_to(a.reshape(a.shape[0], *expanded), (a.shape[0], *shape))


def _iota(params: Params, *_: Array) -> Array:
    shape, dim = params["shape"], params["dimension"]
    counts = np.arange(shape[dim], dtype=params["dtype"])
    counts = counts.reshape([-1 if i == dim else 1 for i in range(len(shape))])
    return np.broadcast_to(counts, shape)[None]


def _reshape(params: Params, a: Array, *_: Array) -> Array:
    return a.reshape(a.shape[0], *params["new_sizes"])


def _squeeze(params: Params, a: Array) -> Array:
    return np.squeeze(a, tuple(dim + 1 for dim in params["dimensions"]))


def _expand(params: Params, a: Array) -> Array:
    return np.expand_dims(a, tuple(dim + 1 for dim in params["dimensions"]))


def _slice(params: Params, a: Array) -> Array:
    bounds = zip(
        params["start_indices"],
        params["limit_indices"],
        params["strides"] or [1] * (a.ndim - 1),
        strict=True,
    )
    return a[(slice(None), *(slice(low, high, step) for low, high, step in bounds))]


def _dynamic_slice(params: Params, a: Array, *starts: Array) -> Array:
    sizes = params["slice_sizes"]
    count = max(a.shape[0], *(s.shape[0] for s in starts))
    rows = []
    for rank in range(count):
        begin = _clamped_starts(starts, rank, a.shape[1:], sizes)
        window = tuple(slice(b, b + size) for b, size in zip(begin, sizes, strict=True))
        rows.append(a[rank if a.shape[0] > 1 else 0][window])
    return np.stack(rows)


def _dynamic_update_slice(params: Params, a: Array, update: Array, *starts: Array) -> Array:
    count = max(a.shape[0], update.shape[0], *(s.shape[0] for s in starts))
    result = np.array(np.broadcast_to(a, (count, *a.shape[1:])))
    update = np.broadcast_to(update, (count, *update.shape[1:]))
    for rank in range(count):
        begin = _clamped_starts(starts, rank, a.shape[1:], update.shape[1:])
        window = tuple(slice(b, b + n) for b, n in zip(begin, update.shape[1:], strict=True))
        result[rank][window] = update[rank]
    return result


def _clamped_starts(starts: Any, rank: int, shape: Any, sizes: Any) -> list[int]:
    values = [int(s[rank if s.shape[0] > 1 else 0]) for s in starts]
    return [min(max(v, 0), n - size) for v, n, size in zip(values, shape, sizes, strict=True)]


def _concatenate(params: Params, *arrays: Array) -> Array:
    count = max(a.shape[0] for a in arrays)
    parts = [np.broadcast_to(a, (count, *a.shape[1:])) for a in arrays]
    return np.concatenate(parts, axis=params["dimension"] + 1)


def _stack(params: Params, *arrays: Array) -> Array:
    count = max(a.shape[0] for a in arrays)
    parts = [np.broadcast_to(a, (count, *a.shape[1:])) for a in arrays]
    return np.stack(parts, axis=params["axis"] + 1)


def _reduce(function: Any) -> Callable[..., Array]:
    return lambda params, a: function.reduce(a, axis=tuple(d + 1 for d in params["axes"]))


def _convert(params: Params, a: Array) -> Array:
    return a.astype(params["new_dtype"])


def _clamp(params: Params, low: Array, a: Array, high: Array) -> Array:
    return np.minimum(np.maximum(a, low), high)


RULES: dict[str, Callable[..., Array]] = {
    "add": _elementwise(operator.add),
    "add_any": _elementwise(operator.add),
    "sub": _elementwise(operator.sub),
    "mul": _elementwise(operator.mul),
    "div": _elementwise(_truncated),
    "rem": _elementwise(_remainder),
    "neg": _elementwise(np.negative),
    "abs": _elementwise(np.abs),
    "sign": _elementwise(np.sign),
    "max": _elementwise(np.maximum),
    "min": _elementwise(np.minimum),
    "eq": _elementwise(operator.eq),
    "ne": _elementwise(operator.ne),
    "lt": _elementwise(operator.lt),
    "le": _elementwise(operator.le),
    "gt": _elementwise(operator.gt),
    "ge": _elementwise(operator.ge),
    "and": _elementwise(np.bitwise_and),
    "or": _elementwise(np.bitwise_or),
    "xor": _elementwise(np.bitwise_xor),
    "not": _elementwise(np.invert),
    "stop_gradient": _elementwise(lambda a: a),
    "copy": _elementwise(lambda a: a),
    "copy_p": _elementwise(lambda a: a),
    "integer_pow": lambda params, a: a ** params["y"],
    "clamp": _clamp,
    "select_n": _select,
    "convert_element_type": _convert,
    "broadcast_in_dim": _broadcast,
    "iota": _iota,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "expand_dims": _expand,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "concatenate": _concatenate,
    "stack": _stack,
    "reduce_or": _reduce(np.logical_or),
    "reduce_and": _reduce(np.logical_and),
    "reduce_max": _reduce(np.maximum),
    "reduce_min": _reduce(np.minimum),
    "reduce_sum": _reduce(np.add),
}
