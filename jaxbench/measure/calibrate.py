"""From wanted seconds to a payload that takes them, on this mesh with all its devices busy.

An idle machine would tell another time per matrix product than one whose devices share cores,
memory or power, so the calibration and its check run on every device of the mesh at once.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxbench.errors import InputError, unknown
from jaxbench.measure.agree import agree, everywhere
from jaxbench.measure.machine import cores
from jaxbench.payload import PAYLOADS
from jaxbench.payload.interface import Fit, Payload

TOLERANCE = 0.05  # deviation of achieved from wanted time that is worth a warning

CHAIN_S = 0.100  # computes are chained until a program is about this long,
CHAIN_LIMIT = 64  # but not more of them
SAMPLING_S = 0.6  # time spent on the samples of one payload,
SAMPLES = (3, 15)  # within these numbers of them
WARM_UPS = 2


@dataclass(frozen=True)
class Check:
    """A wanted length, what a compute of that length took, and each sample (all in seconds)."""

    wanted_s: float
    achieved_s: float
    samples_s: tuple[float, ...]

    @property
    def error(self) -> float | None:
        """Relative deviation, positive if too long; None where nothing was wanted."""
        return self.achieved_s / self.wanted_s - 1 if self.wanted_s > 0 else None

    def to_dict(self) -> dict[str, float | None]:
        """Return the check for the record."""
        return {"wanted_s": self.wanted_s, "achieved_s": self.achieved_s, "error": self.error}


@dataclass(frozen=True)
class Calibration:
    """How the payload `name` makes a given time pass on the mesh it was calibrated on."""

    name: str
    platform: str
    devices: int
    took_s: float
    fit: Fit
    clock: MeshClock = field(repr=False, compare=False)

    def payload(self, seconds: float) -> Payload:
        """Return the payload of a compute of `seconds`, its trip count static."""
        return self.fit.payload(seconds)

    def check(self, wanted_s: float) -> Check:
        """Measure one compute that should take `wanted_s` (seconds), on all devices at once."""
        (samples,) = self.clock.samples([self.payload(wanted_s)])
        return Check(wanted_s, agree(statistics.median(samples)), samples)

    def warnings(self, checks: Iterable[Check], tolerance: float = TOLERANCE) -> list[str]:
        """Return a sentence for each check that is off by more than `tolerance` (relative)."""
        where = f"payload {self.name} on {self.devices} {self.platform} devices"
        told = [
            f"a compute of {check.wanted_s:.3g} s took {check.achieved_s:.3g} s "
            f"({check.error:+.1%}, tolerance {tolerance:.1%}) with {where}"
            for check in checks
            if check.error is not None and abs(check.error) > tolerance
        ]
        available = cores()
        if told and self.name == "matmul" and self.platform == "cpu" and self.devices > available:
            told.append(
                f"{self.devices} virtual devices share {available} cores: matmul is no clock here; "
                "use --payload=sleep"
            )
        return told

    def to_dict(self, checks: Sequence[Check] = ()) -> dict[str, Any]:
        """Return the record's `calibration`: the fit and the given checks."""
        return {
            "payload": self.name,
            "platform": self.platform,
            "devices": self.devices,
            "took_s": self.took_s,
            **self.fit.to_dict(),
            "checks": [check.to_dict() for check in checks],
        }


def calibrate(mesh: Mesh, payload_name: str, *, dtype: str, seed: int = 0) -> Calibration:
    """Fit the payload `payload_name` on `mesh`; `dtype` is the program's, `seed` orders samples.

    Every process of a multi-process run must call it; all get process 0's result. An unknown name,
    or a payload that this platform can't use, is an InputError.
    """
    if payload_name not in PAYLOADS:
        raise InputError(unknown("payload", payload_name, PAYLOADS))
    started = time.perf_counter()
    platform = mesh.devices.flat[0].platform
    clock = MeshClock(mesh, seed)
    fit = PAYLOADS[payload_name](clock, platform, dtype)
    took_s = time.perf_counter() - started
    return Calibration(payload_name, platform, mesh.size, took_s, fit, clock)


class MeshClock:
    """Measures computes on all devices of a mesh at once.

    A sample is the difference between programs of 1 + n and of 1 computes, over n: starting a
    program costs more than some computes take, and is no part of them. `effort` multiplies the
    time spent on samples and their greatest number.
    """

    def __init__(self, mesh: Mesh, seed: int = 0, effort: int = 1):
        self.mesh = mesh
        self.random = random.Random(seed)
        self.effort = effort
        self.sharding = NamedSharding(mesh, PartitionSpec(tuple(mesh.axis_names)))
        self.token = jax.make_array_from_callback(
            (mesh.size,), self.sharding, lambda index: np.ones(mesh.size, np.float32)[index]
        )

    def __call__(self, payloads: Sequence[Payload]) -> list[float]:
        """Return the median of the samples of each payload, the same on every process."""
        return [agree(statistics.median(samples)) for samples in self.samples(payloads)]

    def everywhere(self, ok: bool) -> bool:
        """Return whether it holds in every process."""
        return everywhere(ok)

    def samples(self, payloads: Sequence[Payload]) -> list[tuple[float, ...]]:
        """Return the seconds of one compute, several times measured, for each payload."""
        pairs = [self._pair(payload) for payload in payloads]
        round_s = sum(pair.one_s + pair.many_s for pair in pairs)
        wanted = int(self.effort * SAMPLING_S * len(pairs) / round_s)
        count = agree(_clamp(wanted, SAMPLES[0], self.effort * SAMPLES[1]))
        found: list[list[float]] = [[] for _ in pairs]
        for _ in range(count):
            for index in self.random.sample(range(len(pairs)), len(pairs)):
                found[index].append(self._sample(pairs[index]))
        return [tuple(samples) for samples in found]

    def _pair(self, payload: Payload) -> _Pair:
        """Compile and warm up the two programs whose difference is measured."""
        one = self._program(payload, 1)
        one_s = min(self._seconds(one) for _ in range(WARM_UPS))
        more = agree(_clamp(int(CHAIN_S / one_s), 1, CHAIN_LIMIT))
        many = self._program(payload, 1 + more)
        return _Pair(one, many, more, one_s, min(self._seconds(many) for _ in range(WARM_UPS)))

    def _sample(self, pair: _Pair) -> float:
        """Return the difference per compute of one run of each program, in random order."""
        if self.random.random() < 0.5:
            one_s = self._seconds(pair.one)
            return (self._seconds(pair.many) - one_s) / pair.more
        many_s = self._seconds(pair.many)
        return (many_s - self._seconds(pair.one)) / pair.more

    def _program(self, payload: Payload, computes: int) -> Callable[..., Any]:
        """Compile a program in which every device runs `computes` of them, one after the other."""

        def chain(token: jax.Array) -> jax.Array:
            return lax.fori_loop(0, computes, lambda _, token: payload.apply(token), token)

        spec = self.sharding.spec
        mapped = jax.shard_map(
            chain, mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
        shape = jax.ShapeDtypeStruct(self.token.shape, jnp.float32, sharding=self.sharding)
        return jax.jit(mapped).lower(shape).compile()

    def _seconds(self, program: Callable[..., Any]) -> float:
        start = time.perf_counter()
        jax.block_until_ready(program(self.token))
        return time.perf_counter() - start


@dataclass(frozen=True)
class _Pair:
    """Programs of 1 and of 1 + `more` computes, and about how long they take."""

    one: Callable[..., Any]
    many: Callable[..., Any]
    more: int
    one_s: float
    many_s: float


def _clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))
