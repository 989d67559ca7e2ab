"""A file of fits as `jaxbench collectives --fit` writes it, of made-up measurements."""

from __future__ import annotations

from typing import Any

SIZES = [8, 64, 512, 4096, 32768, 262144, 2097152, 16777216]


def fit_of(
    kind: str = "all_reduce",
    axis: str = "data",
    group_size: int = 4,
    groups: int = 2,
    dtype: str = "float32",
    latency_s: float | None = 50e-6,
    bandwidth_Bps: float | None = 2e9,
    **fields: Any,
) -> dict[str, Any]:
    """Return one fit, whose times are exactly on its line unless others are given."""
    moving = [nbytes / bandwidth_Bps if bandwidth_Bps else 0.0 for nbytes in SIZES]
    return {
        "kind": kind,
        "axis": axis,
        "group_size": group_size,
        "groups": groups,
        "dtype": dtype,
        "latency_s": latency_s,
        "bandwidth_Bps": bandwidth_Bps,
        "bytes": list(SIZES),
        "time_s": [(latency_s or 0.0) + s for s in moving],
        **fields,
    }


def document(*fits: dict[str, Any]) -> dict[str, Any]:
    """Return the parsed file."""
    return {"format": "jaxbench collective fits", "version": 1, "fits": list(fits)}
