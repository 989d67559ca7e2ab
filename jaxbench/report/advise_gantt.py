"""The timeline of a simulated step as text: two lines a rank, its compute and its communication."""

from __future__ import annotations

from collections.abc import Sequence

from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import Event
from jaxbench.report.timeline import representative_ranks
from jaxbench.units import format_seconds

WIDTH = 100
IDLE = "."

# A column shows what fills most of it.
MARKS = {
    "all_reduce": "r",
    "all_gather": "g",
    "reduce_scatter": "s",
    "all_to_all": "a",
    "permute": "p",
}
FORWARD, BACKWARD, BOTH = "F", "B", "X"
SMALLER = 0.25  # share of a column from which the smaller direction is shown too
MOST_RANKS = 8
LEGEND = (
    f"{FORWARD} forward, {BACKWARD} backward, {BOTH} both; r all-reduce, g all-gather, "
    f"s reduce-scatter, a all-to-all, p permute; {IDLE} idle"
)


def shown_ranks(ranks: Ranks) -> tuple[int, ...]:
    """Return at most MOST_RANKS ranks that show what a step is like."""
    all_ = representative_ranks(ranks)
    count = min(len(all_), MOST_RANKS)
    return tuple(all_[round(i * (len(all_) - 1) / max(count - 1, 1))] for i in range(count))


def gantt(events: Sequence[Event], step_s: float, width: int = WIDTH) -> str:
    """Return the timeline of the ranks that `events` are of, over a step of `step_s` seconds."""
    ranks = sorted({event.rank for event in events})
    name_width = len(f"rank {max(ranks, default=0)}")
    column_s = step_s / width
    lines = [f"{LEGEND}; a column is {format_seconds(column_s)}"]
    for rank in ranks:
        own = [event for event in events if event.rank == rank]
        computes = [event for event in own if event.kind == "compute"]
        others = [event for event in own if event.kind != "compute"]
        lines.append(f"{f'rank {rank}':<{name_width}}  {_line(computes, column_s, width)}")
        if others:
            lines.append(f"{'':<{name_width}}  {_line(others, column_s, width)}")
    return "\n".join(lines)


def mark_of(event: Event) -> str:
    """Return the letter of an operation; a compute of neither direction counts as forward."""
    if event.kind != "compute":
        return MARKS[event.kind]
    backward = "backward" in event.label or "gradient" in event.label
    return BACKWARD if backward else FORWARD


def _line(events: Sequence[Event], column_s: float, width: int) -> str:
    """Return a line of columns, each with the mark that fills most of it."""
    filled: list[dict[str, float]] = [{} for _ in range(width)]
    for event in events:
        first = min(int(event.start_s / column_s), width - 1)
        last = min(int(event.end_s / column_s), width - 1)
        for column in range(first, last + 1):
            begin, end = column * column_s, (column + 1) * column_s
            share = min(event.end_s, end) - max(event.start_s, begin)
            if share > 0:
                mark = mark_of(event)
                filled[column][mark] = filled[column].get(mark, 0.0) + share
    return "".join(_mark(column, column_s) for column in filled).rstrip()


def _mark(column: dict[str, float], column_s: float) -> str:
    idle = column_s - sum(column.values())
    if min(column.get(FORWARD, 0.0), column.get(BACKWARD, 0.0)) > SMALLER * column_s:
        return BOTH
    mark, share = max(column.items(), key=lambda item: item[1], default=(IDLE, 0.0))
    return mark if share > idle else IDLE
