"""The other processes of a run, as code that measures sees them: what they agree on and exchange.

    processes = here()
    processes.stage("compile")             # where this process is, for the watchdog
    ok = processes.everywhere(ok)          # every process calls these, in the same order
    failure = processes.settle(failure)

One process is `Alone`. `jaxbench.launch` starts many and tells it by `join`.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

from jaxbench.errors import InputError

Value = TypeVar("Value")

# Stages of a run, and seconds that a process may be in one (in one step, for steps) before the
# watchdog ends the job. What takes longer than this on purpose is given more by --stage_limits.
STAGES: Mapping[str, float] = {
    "start": 60.0,
    "handshake": 60.0,
    "backend": 300.0,
    "compile": 1800.0,
    "calibration": 600.0,
    "warm-up": 600.0,
    "step": 300.0,
    "profile": 600.0,
    "gather": 120.0,
    "end": 60.0,
}


class Place(NamedTuple):
    """Where a process is: host, the switches above it (outermost first) and their group.

    What the scheduler doesn't tell is empty or None.
    """

    host: str
    switches: tuple[str, ...] = ()
    group: str | None = None


class Processes(Protocol):
    """This process among the others. The calls after `stage` are made by all, in one order."""

    index: int
    count: int

    @property
    def places(self) -> Sequence[Place]:
        """Of every process, on process 0; of itself only elsewhere."""
        ...

    @property
    def order(self) -> Sequence[int]:
        """The processes so that those near each other are neighbours."""
        ...

    @property
    def host_cores(self) -> int:
        """How many processors of this machine its processes may use together."""
        ...

    @property
    def host_processes(self) -> int:
        """How many processes this machine has."""
        ...

    @property
    def start_s(self) -> dict[str, float]:
        """Seconds that starting took: to join, for the handshake, for JAX's own start."""
        ...

    def stage(self, name: str, number: int | None = None) -> None:
        """Say what this process is about to do; `number` counts steps."""
        ...

    def from_first(self, value: Value) -> Value:
        """Return process 0's value, which JSON must be able to hold."""
        ...

    def everywhere(self, ok: bool) -> bool:
        """Return whether it holds on every process."""
        ...

    def to_first(self, value: Value) -> list[Value]:
        """Return the values of all processes on process 0, its own alone elsewhere."""
        ...

    def settle(self, failure: str | None) -> str | None:
        """Tell how a run ended here; return why it failed anywhere, None if all went well.

        Where a process has failed and others don't come, the job ends instead.
        """
        ...

    def align(self) -> None:
        """Return at about the same moment on every process, and note when."""
        ...

    def clocks(self) -> dict[str, Any] | None:
        """Return, on process 0, what is known of clocks and of the starts of aligned steps."""
        ...

    def keeping(
        self, mine: Callable[[], Any], keep: Callable[[Sequence[Any], str], None]
    ) -> AbstractContextManager[None]:
        """Within it, if the job is ended: process 0 is to `keep` what all have as `mine`.

        `keep` gets it by process, None where it isn't known, and why the job ends.
        """
        ...

    def fail(self, code: int, text: str) -> None:
        """End the job for this reason, told once; returns only where this process is alone."""
        ...

    def leave(self, code: int) -> int:
        """Wait until all are done, and return the code to exit with."""
        ...


class Alone:
    """One process: it agrees with itself."""

    index = 0
    count = 1
    host_processes = 1
    order: Sequence[int] = (0,)

    def __init__(self, place: Place | None = None):
        self.places: Sequence[Place] = (place or Place(platform.node()),)
        self.start_s: dict[str, float] = {}

    @property
    def host_cores(self) -> int:
        """The processors that this process may use."""
        return len(own_cores())

    def stage(self, name: str, number: int | None = None) -> None:
        """Nobody watches."""

    def from_first(self, value: Value) -> Value:
        """Return the value."""
        return value

    def everywhere(self, ok: bool) -> bool:
        """Return whether it holds."""
        return ok

    def to_first(self, value: Value) -> list[Value]:
        """Return the value as that of the only process."""
        return [value]

    def settle(self, failure: str | None) -> str | None:
        """Return the failure."""
        return failure

    def align(self) -> None:
        """All devices start together anyway."""

    def clocks(self) -> dict[str, Any] | None:
        """There is only one."""
        return None

    @contextmanager
    def keeping(
        self, mine: Callable[[], Any], keep: Callable[[Sequence[Any], str], None]
    ) -> Iterator[None]:
        """An interruption is an exception here, and handled as such."""
        yield

    def fail(self, code: int, text: str) -> None:
        """Leave it to the caller."""

    def leave(self, code: int) -> int:
        """Return the code."""
        return code


_here: list[Processes] = [Alone()]


def here() -> Processes:
    """Return this process among the others."""
    return _here[0]


def join(processes: Processes) -> None:
    """Make these the processes of the run."""
    _here[0] = processes


def own_cores() -> list[int]:
    """Return the numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def in_order(devices: Sequence[Any]) -> list[Any]:
    """Return the jax.Devices of all processes, those of near processes next to each other."""
    position = {process: k for k, process in enumerate(here().order)}
    return sorted(devices, key=lambda d: (position.get(d.process_index, d.process_index), d.id))


def devices_for(count: int, devices: Sequence[Any]) -> list[Any]:
    """Return the jax.Devices of a run of `count` ranks: the first ones, as many of each process.

    InputError if a process would have none, or another number than the others.
    """
    processes = here()
    ordered = in_order(devices)
    if processes.count == 1:
        return ordered[:count]
    if count % processes.count:
        raise InputError(
            f"{count} devices can't be shared out evenly to {processes.count} processes: "
            "--devices or --mesh must be a multiple of them"
        )
    each = count // processes.count
    taken: Counter[int] = Counter()
    chosen = []
    for device in ordered:
        taken[device.process_index] += 1
        if taken[device.process_index] <= each:
            chosen.append(device)
    return chosen


def ranks_of(devices: Sequence[Any]) -> list[dict[str, Any]]:
    """Return for the record where each rank is: `devices` in the order of ranks.

    On process 0; elsewhere the hosts of other processes are None.
    """
    processes = here()
    places = dict(enumerate(processes.places))
    if len(places) != processes.count:
        places = {processes.index: processes.places[0]}
    found = []
    for rank, device in enumerate(devices):
        place = places.get(device.process_index)
        found.append(
            {
                "rank": rank,
                "process": device.process_index,
                "host": place.host if place else None,
                "device": device.id,
                "local_device": device.local_hardware_id,
                "switches": list(place.switches) if place else None,
                "group": place.group if place else None,
            }
        )
    return found
