"""What a payload is, and how calibration and payloads talk to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax


class Payload(Protocol):
    """Work of a fixed length: a frozen, hashable dataclass, so that it can be a jaxpr parameter.

    `apply` takes the token (f32[1]) and returns it bit for bit once the work is done. The work
    depends on the token and the result on the work, so that XLA can't merge two computes, move one
    out of a loop or drop it.
    """

    def apply(self, token: jax.Array) -> jax.Array: ...


class Fit(Protocol):
    """What a calibration found out: how to make a payload of a wanted length."""

    def payload(self, seconds: float) -> Payload: ...

    def to_dict(self) -> dict[str, Any]:
        """Return the facts behind the fit for the record."""
        ...


# Seconds that one compute takes with each of the given payloads, while all devices of a mesh run
# it; measured in turns, so that what changes on the machine meanwhile meets all of them alike.
Timing = Callable[[Sequence[Payload]], list[float]]


class Clock(Protocol):
    """A `Timing` of a mesh, whose processes can agree on what they measure."""

    def __call__(self, payloads: Sequence[Payload]) -> list[float]: ...

    def everywhere(self, ok: bool) -> bool:
        """Return whether it holds in every process."""
        ...


# Fits a payload with a clock, for a platform ("cpu", "gpu", "tpu") and a dtype of the program.
Fitter = Callable[[Clock, str, str], Fit]
