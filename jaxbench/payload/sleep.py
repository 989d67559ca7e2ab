"""The payload `sleep`: waiting instead of working, for more virtual devices than cores.

Matrix products of 8 virtual devices on 2 cores take four times as long as those of 2, so they are
no clock; sleeping devices don't disturb each other. The native handler (native.py) leaves the
device free to communicate meanwhile; where it can't be built, a Python callback takes its place,
which doesn't, and costs more per call. On accelerators neither makes sense: both run on the host.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from jaxbench.errors import InputError, RunError
from jaxbench.payload import native
from jaxbench.payload.interface import Clock
from jaxbench.payload.opaque import unchanged

FITTED_S = 0.005  # length of the sleep whose lateness is taken for the overhead

REFUSAL = (
    "payload 'sleep' on platform '{}': sleeping is for virtual CPU devices, "
    "an accelerator would wait for its host; use --payload=matmul"
)


@dataclass(frozen=True)
class Sleep:
    """Wait `nanoseconds` from the call's entry on, of which the call itself takes `overhead_ns`."""

    nanoseconds: int
    overhead_ns: int = 0
    native: bool = True

    def apply(self, token: jax.Array) -> jax.Array:
        """Return `token` (f32[1]) after the wait; if that is 0 nothing is called.

        Lowering for anything but CPU raises InputError; a native handler that can't be loaded
        raises RunError, since a callback in its place would be another measurement.
        """
        token = cpu_only_p.bind(token)
        if self.nanoseconds <= self.overhead_ns:
            return unchanged(token, token)
        if not self.native:
            wait = functools.partial(_wait, (self.nanoseconds - self.overhead_ns) * 1e-9)
            return unchanged(token, jax.pure_callback(wait, _TOKEN, token))
        if not (handler := native.load()).available:
            raise RunError(str(handler))
        # In place: XLA gives the bytes of a token that nothing reads afterwards to the result of a
        # collective, which then can't start before the sleep that does read it is over.
        call = jax.ffi.ffi_call(native.TARGET, _TOKEN, input_output_aliases={0: 0})
        return call(
            token,
            nanoseconds=np.int64(self.nanoseconds),
            overhead_ns=np.int64(self.overhead_ns),
        )


_TOKEN = jax.ShapeDtypeStruct((1,), jnp.float32)


def _wait(seconds: float, token: Any) -> np.ndarray:
    """Be the callback: late by what it takes to get here, which is part of the overhead."""
    time.sleep(seconds)
    return np.zeros(1, np.float32)


# A guard rather than a check of the default backend: programs are also compiled for other ones.
cpu_only_p = Primitive("cpu_only")
cpu_only_p.def_abstract_eval(lambda token: token)


def _refuse(ctx: Any, token: Any) -> Any:
    raise InputError(REFUSAL.format("/".join(ctx.module_context.platforms)))


mlir.register_lowering(cpu_only_p, _refuse)
mlir.register_lowering(cpu_only_p, lambda ctx, token: [token], platform="cpu")


@dataclass(frozen=True)
class SleepFit:
    """How late a sleep ends, and by which means it sleeps; `reason` says why not natively."""

    overhead_s: float
    native: bool
    reason: str

    def payload(self, seconds: float) -> Sleep:
        """Return a sleep that ends after `seconds`, its overhead included."""
        return Sleep(round(seconds * 1e9), round(self.overhead_s * 1e9), self.native)

    def to_dict(self) -> dict[str, Any]:
        """Return what the record needs to know."""
        return {
            "implementation": "native" if self.native else "callback",
            "reason": self.reason or None,
            "overhead_s": self.overhead_s,
        }


def fit(clock: Clock, platform: str, dtype: str) -> SleepFit:
    """Measure the overhead of a sleep; an accelerator is an InputError."""
    if platform != "cpu":
        raise InputError(REFUSAL.format(platform))
    handler = native.load()
    everywhere = clock.everywhere(handler.available)  # one payload for all
    reason = handler.reason
    if handler.available and not everywhere:
        reason = "another process has no native sleep"
    (slept_s,) = clock([Sleep(round(FITTED_S * 1e9), 0, everywhere)])
    return SleepFit(max(0.0, slept_s - FITTED_S), everywhere, reason)
