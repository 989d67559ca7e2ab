"""One mind for many processes: what steers control flow is decided by process 0."""

from __future__ import annotations

import hashlib
import re
from typing import Any, TypeVar

import jax

from jaxbench.errors import RunError
from jaxbench.measure.processes import Processes, here

Number = TypeVar("Number", int, float)


def agree(value: Number) -> Number:
    """Return process 0's `value` on every process; every process must call it, in the same order.

    It travels by the control channel, as text from which the same 64 bits are read, not by device
    collectives: JAX would round it to 32, and compile a program for it.
    """
    return all_processes().from_first(value)


def everywhere(ok: bool) -> bool:
    """Return whether `ok` holds on every process; every process must call it."""
    return all_processes().everywhere(ok)


def odd_processes(value: Any) -> list[int]:
    """Return, on every process, which ones have another `value` than process 0."""
    processes = all_processes()
    told = processes.to_first(value)
    return processes.from_first([k for k, other in enumerate(told) if other != told[0]])


def digest(program: Any) -> str:
    """Return the hash of a traced program, without the addresses of this process in its text."""
    return hashlib.sha256(re.sub(r"0x[0-9a-f]+", "0x", str(program)).encode()).hexdigest()


def all_processes() -> Processes:
    """Return this process among all that JAX has; RunError where others haven't been joined."""
    if jax.process_count() != here().count:
        raise RunError(
            f"JAX has {jax.process_count()} processes and jaxbench knows of {here().count}: start "
            "them by jaxbench.launch (--coordinator, --processes, srun or Open MPI)"
        )
    return here()
