"""Element types by their JAX names, with their width: no array library needed."""

from __future__ import annotations

from jaxbench.errors import InputError, unknown

DTYPES: dict[str, int] = {  # name -> bytes per element
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


def find_dtype(name: str) -> int:
    """Return the bytes per element of the dtype `name`; an unknown name is an InputError."""
    if name not in DTYPES:
        raise InputError(unknown("dtype", name, DTYPES))
    return DTYPES[name]
