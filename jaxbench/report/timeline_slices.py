"""Simulated events as they are drawn: on a stream of their rank, in whole nanoseconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from jaxbench.readings.simulate import Event, Semantics

COMPUTE = "compute"

# Times that are equal may differ by so much when they are rounded to nanoseconds.
ROUNDING_NS = 1


@dataclass(frozen=True)
class Slice:
    """An event on `stream`; operations that overlap there have different `lane`s.

    `ready_ns` is when its rank has what it needs for it, `idle_since_ns` when the one before it in
    the lane ended. Nothing in a lane starts before that.
    """

    event: Event
    stream: str
    lane: int
    ready_ns: int
    start_ns: int
    end_ns: int
    idle_since_ns: int

    @property
    def waiting_ns(self) -> int:
        """How long its stream was idle before a compute, or its rank waited for a collective."""
        since = self.idle_since_ns if self.event.kind == COMPUTE else self.ready_ns
        return max(0, self.start_ns - since)

    @property
    def thread(self) -> tuple[str, int]:
        """The stream and the lane."""
        return self.stream, self.lane


def make_slices(events: Sequence[Event], semantics: Semantics) -> list[Slice]:
    """Return the events in their order, each with where it is drawn."""
    streams: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number, event in enumerate(events):
        streams[event.rank, _stream(event, semantics)].append(number)
    slices: dict[int, Slice] = {}
    for (_, stream), numbers in streams.items():
        ends: list[int] = []  # of each lane
        for number in sorted(numbers, key=lambda n: (events[n].start_s, events[n].end_s)):
            event = events[number]
            ready, start, end = (_ns(at) for at in (event.ready_s, event.start_s, event.end_s))
            free = [lane for lane, busy in enumerate(ends) if busy <= start + ROUNDING_NS]
            lane = free[0] if free else len(ends)
            idle_since = ends[lane] if free else 0
            start = max(start, idle_since)
            end = max(start, end)
            ends[lane : lane + 1] = [end]
            slices[number] = Slice(event, stream, lane, ready, start, end, idle_since)
    return [slices[number] for number in range(len(events))]


def _stream(event: Event, semantics: Semantics) -> str:
    if event.kind == COMPUTE:
        return COMPUTE
    over = f" over {'+'.join(event.axes)}" if semantics.streams == "axis" else ""
    return f"communication{over}"


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
