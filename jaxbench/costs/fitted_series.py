"""One series of a file of fits: the seconds of a collective at any size, from those measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Series:
    """A collective measured over sizes: [sizes] bytes and seconds, both rising.

    `latency_s` and `bandwidth_Bps` are those of the line through them, None if it has none.
    """

    kind: str
    axis: str
    group_size: int
    groups: int
    dtype: str
    bytes: tuple[float, ...]
    time_s: tuple[float, ...]
    latency_s: float | None
    bandwidth_Bps: float | None

    @property
    def base_s(self) -> float:
        """The latency, never more than the time of the smallest size."""
        return min(self.latency_s or 0.0, self.time_s[0])

    def seconds(self, nbytes: float) -> float:
        """Return the seconds for `nbytes`.

        Straight lines from size to size, which keep what a single line through all sizes can't
        (changes of algorithm, caches); from the latency to the smallest size; and beyond the
        largest at the bandwidth of the fit, or that of the largest size.
        """
        last_bytes, last_s = self.bytes[-1], self.time_s[-1]
        if nbytes > last_bytes:
            return last_s + (nbytes - last_bytes) / (self.bandwidth_Bps or last_bytes / last_s)
        return float(np.interp(nbytes, (0.0, *self.bytes), (self.base_s, *self.time_s)))

    def describe(self) -> str:
        """Return what was measured in a few words."""
        return (
            f"{self.kind} over {self.axis}={self.group_size} ({self.groups} groups, {self.dtype})"
        )


def read_series(fit: Mapping[str, Any], place: str) -> tuple[Series | None, list[str]]:
    """Return a series of a parsed file, or what is wrong with it, told with its `place`."""
    faults: list[str] = []

    def need(name: str, right: bool, what: str) -> None:
        if not right:
            faults.append(f"{place}: {name} is {fit.get(name)!r}; it must be {what}")

    for name in ("kind", "axis", "dtype"):
        need(name, isinstance(fit.get(name), str) and bool(fit[name]), "a text")
    for name, least in (("group_size", 2), ("groups", 1)):
        value = fit.get(name)
        need(name, type(value) is int and value >= least, f"a whole number of at least {least}")
    for name in ("latency_s", "bandwidth_Bps"):
        need(name, fit.get(name) is None or _positive(fit[name]), "a number above 0, or null")
    for name in ("bytes", "time_s"):
        values = fit.get(name)
        right = isinstance(values, list) and bool(values) and all(map(_positive, values))
        need(name, right, "a list of numbers above 0")
    if not faults and len(fit["bytes"]) != len(fit["time_s"]):
        faults.append(
            f"{place}: bytes has {len(fit['bytes'])} entries, time_s {len(fit['time_s'])}"
        )
    if faults:
        return None, faults
    sizes, times = _by_size(fit["bytes"], fit["time_s"])
    return Series(
        kind=fit["kind"],
        axis=fit["axis"],
        group_size=fit["group_size"],
        groups=fit["groups"],
        dtype=fit["dtype"],
        bytes=sizes,
        time_s=rising(times),
        latency_s=fit.get("latency_s"),
        bandwidth_Bps=fit.get("bandwidth_Bps"),
    ), []


def rising(values: Sequence[float]) -> tuple[float, ...]:
    """Return the rising sequence nearest to `values`: what falls is pooled to its mean.

    Noise alone makes a larger size quicker than a smaller one. (Pool adjacent violators, Barlow et
    al. 1972.)
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    return tuple(total / count for total, count in pools for _ in range(count))


def _by_size(
    sizes: Sequence[float], times: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the different sizes, rising, and the mean time of each."""
    together: dict[float, list[float]] = {}
    for size, seconds in sorted(zip(sizes, times, strict=True)):
        together.setdefault(float(size), []).append(seconds)
    return tuple(together), tuple(sum(each) / len(each) for each in together.values())


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > 0
