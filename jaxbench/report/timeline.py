"""A simulated step as a Chrome trace (JSON), which ui.perfetto.dev and chrome://tracing open.

A process is a rank, a thread one of its streams: compute, then communication. Where operations of
a stream overlap (semantics 'unlimited') it has several threads. Arrows lead from the work that the
others wait for to the collectives that wait (`timeline_arrows`).

The format: "Trace Event Format" (Google, 2016), with complete events and flow events; times are in
microseconds, here with whole nanoseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jax.extend.core import ClosedJaxpr

import jaxbench
from jaxbench.errors import RunError
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Event, Semantics, Simulation
from jaxbench.report.timeline_arrows import find_arrows
from jaxbench.report.timeline_slices import COMPUTE, Slice, make_slices

MOST_RANKS = 16

Json = dict[str, Any]


def representative_ranks(ranks: Ranks) -> tuple[int, ...]:
    """Return at most MOST_RANKS ranks that show what a step is like.

    One of each pipeline stage of the first replica (of many stages the first, the last, and some
    spread between), then the first rank's neighbour along every other axis.
    """
    stride, strides = 1, {}
    for axis, size in reversed(ranks.axes):
        strides[axis] = stride
        stride *= size
    neighbours = [strides[axis] for axis, size in ranks.axes if axis != "pipeline" and size > 1]
    stages = ranks.sizes.get("pipeline", 1)
    shown = max(1, min(stages, MOST_RANKS - len(neighbours)))
    spread = sorted({round(i * (stages - 1) / max(shown - 1, 1)) for i in range(shown)})
    return (*(stage * strides.get("pipeline", 0) for stage in spread), *neighbours)


def timeline_faults(path: str | Path) -> list[str]:
    """Return why no timeline can be written to `path`, or nothing."""
    path = Path(path)
    if path.is_dir():
        return [f"--timeline is '{path}', which is a folder; name a file such as timeline.json"]
    if not path.parent.is_dir():
        return [f"--timeline is '{path}', but there is no folder '{path.parent}'"]
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return [f"--timeline is '{path}', which can't be written"]
    return []


def write_timeline(
    path: str | Path,
    simulation: Simulation,
    ranks: Ranks,
    semantics: Semantics,
    closed: ClosedJaxpr,
    *,
    title: str = "",
    nodes: Mapping[int, str] | None = None,
) -> None:
    """Write the recorded events of a simulation to a file, replacing it. Raises RunError.

    `closed` is the program that was simulated with `semantics`; `nodes` names the node of a rank.
    """
    lines = ",\n".join(
        json.dumps(event, allow_nan=False, separators=(",", ":"))
        for event in trace_events(simulation, ranks, semantics, closed, nodes or {})
    )
    other = {
        "title": title,
        "producer": f"jaxbench {jaxbench.__version__}",
        "step_us": simulation.step_s * 1e6,
        "note": "simulated, not measured",
    }
    text = (
        f'{{"displayTimeUnit":"ms","otherData":{json.dumps(other)},"traceEvents":[\n{lines}\n]}}\n'
    )
    new = Path(f"{path}.new")  # a reader sees the old timeline or the whole new one
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise RunError(f"can't write '{path}': {error.strerror or error}") from error


def trace_events(
    simulation: Simulation,
    ranks: Ranks,
    semantics: Semantics,
    closed: ClosedJaxpr,
    nodes: Mapping[int, str],
) -> Iterator[Json]:
    """Yield the trace's events: names, then operations by rank, stream and time, then arrows."""
    slices = make_slices(simulation.events, semantics)
    streams = sorted({piece.thread for piece in slices} | {(COMPUTE, 0)}, key=_compute_first)
    threads = {thread: number for number, thread in enumerate(streams, start=1)}
    for rank in sorted({piece.event.rank for piece in slices}):
        yield _named("process_name", rank, name=_rank_name(rank, ranks, nodes.get(rank)))
        yield _named("process_sort_index", rank, sort_index=rank)
        used = {piece.thread for piece in slices if piece.event.rank == rank}
        for (stream, lane), number in threads.items():
            if (stream, lane) in used:
                name = f"{stream} ({lane + 1})" if lane else stream
                yield _named("thread_name", rank, number, name=name)
                yield _named("thread_sort_index", rank, number, sort_index=number)

    def where(piece: Slice) -> Json:
        return {"pid": _process(piece.event.rank), "tid": threads[piece.thread]}

    def order(piece: Slice) -> tuple[int, ...]:
        return piece.event.rank, threads[piece.thread], piece.start_ns, piece.end_ns

    for piece in sorted(slices, key=order):
        yield {
            "ph": "X",
            "name": _name(piece.event),
            "cat": COMPUTE if piece.event.kind == COMPUTE else "communication",
            **where(piece),
            "ts": piece.start_ns / 1000,
            "dur": (piece.end_ns - piece.start_ns) / 1000,
            "args": _arguments(piece),
        }
    for number, arrow in enumerate(find_arrows(slices, ranks, closed), start=1):
        about = {"name": "waited for", "cat": "waiting", "id": number}
        # Both ends are inside of a slice, which ties the arrow to it.
        begin, end = (arrow.cause.end_ns - 1) / 1000, arrow.end_ns / 1000
        yield {"ph": "s", **about, **where(arrow.cause), "ts": begin}
        yield {"ph": "f", "bp": "e", **about, **where(arrow.waiter), "ts": end}


def _compute_first(thread: tuple[str, int]) -> tuple[bool, str, int]:
    return (thread[0] != COMPUTE, *thread)


def _process(rank: int) -> int:
    """Return the process number of a rank; 0 would be the idle process to Perfetto."""
    return rank + 1


def _named(what: str, rank: int, thread: int = 1, **args: Any) -> Json:
    return {"ph": "M", "name": what, "pid": _process(rank), "tid": thread, "args": args}


def _rank_name(rank: int, ranks: Ranks, node: str | None) -> str:
    """Return 'rank 5: pipeline 1, tensor 1 (n0002)'."""
    place = [f"{axis} {ranks.coordinate(axis)[rank]}" for axis, size in ranks.axes if size > 1]
    return f"rank {rank}{': ' if place else ''}{', '.join(place)}{f' ({node})' if node else ''}"


def _name(event: Event) -> str:
    return event.label if event.kind == COMPUTE else f"{event.kind} {event.label}"


def _arguments(piece: Slice) -> Json:
    event, waiting = piece.event, {"waiting_us": piece.waiting_ns / 1000}
    if event.cost is None:
        return waiting
    return {
        "axes": "+".join(event.axes),
        "bytes": event.nbytes,
        "algorithm": event.cost.algorithm,
        "bound": event.cost.bound,
        "latency_us": event.cost.latency_s * 1e6,
        **waiting,
    }
