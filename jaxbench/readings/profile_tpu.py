"""Events of TPUs, one per operation of a TensorCore.

A device is a plane `/device:TPU:n`. Its line `XLA Modules` has one event per execution of a
program, `XLA Ops` what the core itself did (of an asynchronous collective: starting it, and
waiting for its end), `Async XLA Ops` how long asynchronous operations were under way, as one event
or as the two that share a stat `flow`. An event is called as its instruction is printed,
`%all-reduce.3 = f32[...] ...`, or by its bare name.

Written after descriptions of such profiles; no TPU was at hand.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
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

PREFIX = "/device:TPU:"
_MODULES, _OPS, _ASYNC = "XLA Modules", "XLA Ops", "Async XLA Ops"
_NAME = re.compile(r"%?([\w.\-]+)")
_MODULE = re.compile(r"(.*?)(?:\(\d+\))?$")


def read_tpu(space: Space, request: Request) -> Events:
    """Return the events of the requested devices; see `device_events` for the errors."""
    planes = space.numbered(PREFIX)
    if not any(list(plane.lines) for plane in planes.values()):
        raise no_events(space, "tpu", f"plane '{PREFIX}n' with events")
    events = Events()
    for number, rank in request.ranks.items():
        if number not in planes:
            raise no_events(space, "tpu", f"plane '{PREFIX}{number}' (of rank {rank})")
        lines = {line.name: line for line in planes[number].lines}
        if missing := {_MODULES, _OPS} - lines.keys():
            raise unknown_layout(
                space, "tpu", f"no line {' and '.join(sorted(missing))} in '{PREFIX}{number}'"
            )
        runs = _runs(space, lines[_MODULES], request)
        core = list(_spans(lines[_OPS]))
        apart = list(_joined(lines[_ASYNC])) if _ASYNC in lines else []
        for name, start, end in _collectives(core, apart, request.operations):
            if (step := _step(runs, start)) is not None:
                events.collectives.append(Event(rank, step, name, start, end))
        for name, start, end in core:
            if name in request.operations.compute and (step := _step(runs, start)) is not None:
                events.compute.append(Event(rank, step, name, start, end))
    return events


Span = tuple[str, float, float]


def _spans(line: Any) -> Iterator[Span]:
    """Yield (instruction, start, end) of a line's events, in order of start."""
    found = []
    for event in line.events:
        name = _NAME.match(event.name)
        found.append((name[1] if name else event.name, event.start_ns, event.end_ns))
    yield from sorted(found, key=lambda span: span[1:])


def _joined(line: Any) -> Iterator[Span]:
    """Yield what was under way and from when to when: events that share a `flow` are one."""
    flows: dict[Any, list[Span]] = defaultdict(list)
    for number, event in enumerate(line.events):
        name = _NAME.match(event.name)
        flow = dict(event.stats).get("flow", f"event {number}")
        flows[flow].append((name[1] if name else event.name, event.start_ns, event.end_ns))
    for spans in flows.values():
        first = min(spans, key=lambda span: span[1])
        yield first[0], first[1], max(end for _, _, end in spans)


def _runs(space: Space, line: Any, request: Request) -> list[tuple[float, float]]:
    """Return from when to when each step's execution of the program took."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in line.events:
        module = _MODULE.match(event.name)
        found[module[1] if module else event.name].append((event.start_ns, event.end_ns))
    if not found:
        raise no_events(space, "tpu", f"events in the line '{_MODULES}'")
    if request.operations.module not in found:
        raise other_program(space, request.operations.module, found)
    runs = sorted(found[request.operations.module])
    if len(runs) != request.steps:
        raise unknown_layout(
            space, "tpu", f"{len(runs)} executions where {request.steps} were recorded"
        )
    return runs


def _step(runs: list[tuple[float, float]], start_ns: float) -> int | None:
    """Return the number of the execution under way at `start_ns`; None between executions."""
    step = bisect_right(runs, (start_ns, float("inf"))) - 1
    return step if step >= 0 and start_ns <= runs[step][1] else None


def _collectives(core: list[Span], apart: list[Span], operations: Operations) -> Iterator[Span]:
    """Yield the executions of collectives.

    A synchronous one is an event of the core. An asynchronous one lasts as long as its event apart
    from the core; where there is none, from its start on the core to the end of the wait for it.
    """
    asynchronous = set(operations.ends.values())
    seen_apart = set()
    for name, start, end in apart:
        collective = operations.begins.get(name) or operations.ends.get(name)
        if collective:
            seen_apart.add(collective)
            yield collective, start, end
    open_since: dict[str, float] = {}
    for name, start, end in core:
        collective = operations.begins.get(name)
        if collective and collective not in asynchronous:
            yield collective, start, end
        elif collective:
            open_since[collective] = start
        elif (ended := operations.ends.get(name)) and ended not in seen_apart:
            if ended in open_since:
                yield ended, open_since.pop(ended), end
