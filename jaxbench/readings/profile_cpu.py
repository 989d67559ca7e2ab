"""Events of XLA's CPU backend, as thunks leave them.

All devices are threads of one plane, `/host:CPU`; a line is a thread, and a device's operations
appear on whichever thread ran them. What belongs together says so in its stats: `hlo_op`,
`hlo_module`, `run_id` (an execution of the program), `device_ordinal`, and `_p`, which an event
named `end: <operation>` repeats as `_c`.

That event is recorded when all that waited for the operation has been told, and what waited runs
at once on the telling thread. So an operation that ends asynchronously (every native sleep) ends
before the first event that the same thread records afterwards, which may be long before its
`end:`: a sleep followed by an all-reduce would otherwise seem to hide it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxbench.readings.device_events import (
    Event,
    Events,
    Request,
    no_events,
    other_program,
    unknown_layout,
)
from jaxbench.readings.operations import Operations
from jaxbench.readings.xspace import Space

PLANE = "/host:CPU"
_END = "end: "
_STATS = ("hlo_op", "hlo_module", "run_id", "device_ordinal", "_p")

# Longest pause in what a thread runs after it was told that an operation has ended. Shorter than
# an operation that is worth a thread of its own, longer than what lies between two thunks.
_PAUSE_NS = 50_000


@dataclass(frozen=True, slots=True)
class _Thunk:
    """An operation's event: where it began, and how to find its end."""

    name: str
    run: int
    device: int
    key: int
    start_ns: float
    end_ns: float


def read_cpu(space: Space, request: Request) -> Events:
    """Return the events of the requested devices; see `device_events` for the errors."""
    planes = [plane for plane in space.planes if plane.name == PLANE]
    if not planes:
        raise no_events(space, "cpu", f"plane '{PLANE}'")
    operations = request.operations
    if operations.ends:
        fault = f"asynchronous collectives ({', '.join(sorted(operations.ends))})"
        raise unknown_layout(space, "cpu", fault)
    wanted = operations.begins.keys() | operations.outermost
    lines = list(planes[0].lines)
    thunks, ends = _read(lines, space, wanted, operations.module)
    runs = list(dict.fromkeys(thunk.run for thunk in thunks))
    if len(runs) != request.steps:
        raise unknown_layout(
            space, "cpu", f"{len(runs)} executions (run_id) where {request.steps} were recorded"
        )
    step = {run: number for number, run in enumerate(runs)}
    threads: dict[int, _Thread] = {}
    events = Events()
    for thunk in thunks:
        if thunk.device not in request.ranks:
            continue
        name = operations.begins.get(thunk.name, thunk.name)
        kept = events.collectives if thunk.name in operations.begins else events.compute
        ended = ends.get(thunk.key)
        if ended and ended.line not in threads and _is_apart(thunk, operations, ended):
            threads[ended.line] = _Thread(lines[ended.line])
        end_ns = _end(thunk, operations, threads, ended)
        kept.append(
            Event(request.ranks[thunk.device], step[thunk.run], name, thunk.start_ns, end_ns)
        )
    return events


def _read(
    lines: Sequence[Any], space: Space, wanted: Collection[str], module: str
) -> tuple[list[_Thunk], dict[int, _Ended]]:
    """Return the wanted operations in order of beginning, and what told of their ends, by key."""
    thunks: list[_Thunk] = []
    ends: dict[int, _Ended] = {}
    modules: set[str] = set()
    wanted_ends = {_END + name for name in wanted}
    for number, line in enumerate(lines):
        for event in line.events:
            name = event.name
            if name in wanted_ends:
                key = dict(event.stats).get("_c")
                if key is not None:
                    ends[key] = _Ended(number, event.start_ns)
            elif name in wanted:
                stats = dict(event.stats)
                if missing := [key for key in _STATS if key not in stats]:
                    fault = f"the event '{name}' has no {', '.join(missing)}, only {sorted(stats)}"
                    raise unknown_layout(space, "cpu", fault)
                modules.add(stats["hlo_module"])
                if stats["hlo_module"] == module:
                    run, device, key = stats["run_id"], stats["device_ordinal"], stats["_p"]
                    thunks.append(_Thunk(name, run, device, key, event.start_ns, event.end_ns))
    if not thunks:
        if modules:
            raise other_program(space, module, modules)
        raise no_events(space, "cpu", "events with the names of the program's operations")
    return sorted(thunks, key=lambda thunk: thunk.start_ns), ends


@dataclass(frozen=True, slots=True)
class _Ended:
    """On which thread (line) and when it was told that an operation had ended."""

    line: int
    told_ns: float


def _is_apart(thunk: _Thunk, operations: Operations, ended: _Ended) -> bool:
    """Whether an operation ended apart from its event."""
    return thunk.name in operations.sleeps or ended.told_ns > thunk.end_ns


class _Thread:
    """When a thread began and ended each thing it did, in order of beginning."""

    def __init__(self, line: Any):
        spans = sorted((event.start_ns, event.end_ns) for event in line.events)
        self.starts = [start for start, _ in spans]
        self.latest_ends: list[float] = []  # of all events up to this one
        for _, end in spans:
            self.latest_ends.append(max(end, self.latest_ends[-1] if self.latest_ends else end))

    def resumed(self, after_ns: float, until_ns: float) -> float:
        """Return the start of the first event in [after_ns, until_ns], or `until_ns`."""
        first = bisect_left(self.starts, after_ns)
        return min(self.starts[first], until_ns) if first < len(self.starts) else until_ns

    def told(self, after_ns: float, until_ns: float) -> float:
        """Return when the unbroken activity up to `until_ns` began, not before `after_ns`."""
        told, number = until_ns, bisect_left(self.starts, until_ns) - 1
        while number >= 0 and self.starts[number] >= after_ns:
            if told - self.latest_ends[number] > _PAUSE_NS:
                break
            told = self.starts[number]
            number -= 1
        return told


def _end(
    thunk: _Thunk,
    operations: Operations,
    threads: Mapping[int, _Thread],
    ended: _Ended | None,
) -> float:
    """Return when the operation was over.

    An operation whose `end:` follows its event at once was synchronous. Of an asynchronous one the
    thread that ended it knows more. `ended` is None if recording stopped before its `end:`.
    """
    if thunk.name in operations.sleeps:
        # Over no earlier than it was to be, and no later than asked: how late a busy machine wakes
        # a sleeper is no work, and what runs meanwhile isn't hidden by it.
        sleep = operations.sleeps[thunk.name]
        due_ns = max(thunk.end_ns, thunk.start_ns + sleep.waits_ns)
        latest_ns = max(due_ns, thunk.start_ns + sleep.asked_ns)
        return latest_ns if ended is None else threads[ended.line].resumed(due_ns, latest_ns)
    if ended is None or not _is_apart(thunk, operations, ended):
        return thunk.end_ns
    return max(thunk.end_ns, threads[ended.line].told(thunk.end_ns, ended.told_ns))
