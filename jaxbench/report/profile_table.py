"""What a profile said, for people: where the time went, how fast it was, what each rank did."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.table import print_table
from jaxbench.units import format_bytes, format_seconds

SHARES = ("total_s", "exposed_s", "waiting_s", "transfer_s", "hidden_s")
TIME = ("collective", "count", "total", "exposed", "waiting", "transfer", "hidden", "what for")
SPEED = ("collective", "bytes", "execution", "algorithmic", "bus", "skew", "most skew")
RANKS = ("rank", "collectives", "exposed", "waiting", "transfer", "hidden", "compute", "rest")

SPEED_TITLE = (
    "an execution lasts from when its last member has begun to when its last one is done; "
    "skew = how long after the first member the last begins"
)
MOST_RANKS = 16  # more are summed up
MOST_LABELS = 4


def print_profile(profile: Mapping[str, Any]) -> None:
    """Print a `ProfileReading.to_json()`: collectives, ranks, where the trace is."""
    steps = len(profile["steps"]["total_s"])
    took = statistics.median(profile["step_s"]) if profile["step_s"] else None
    title = (
        f"profile of {steps} steps of {format_seconds(took)}, per rank and step (medians); "
        "exposed = waiting for peers + transfer, total = exposed + hidden by compute"
    )
    print_table(TIME, [_time(row) for row in profile["rows"]], title=title)
    print_table(SPEED, [_speed(row) for row in profile["rows"]], title=SPEED_TITLE)
    print_table(RANKS, _ranks(profile), title="compute + exposed + rest = step")
    print(f"trace: {profile['path']} (XProf), *.trace.json.gz beside it (https://ui.perfetto.dev)")
    for warning in profile["warnings"]:
        print(f"warning: profile: {warning}")


def _time(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["id"],
        _range(row["count"]),
        *(format_seconds(statistics.median(row[name])) for name in SHARES),
        _labels(row["labels"]),
    )


def _speed(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["id"],
        format_bytes(row["bytes_logical"]),
        format_seconds(row["execution_s"]),
        _rate(row["algorithmic_Bps"]),
        _rate(row["bus_Bps"]),
        format_seconds(row["skew_s"]),
        format_seconds(row["skew_max_s"]),
    )


def _ranks(profile: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row per rank; of many, the least, the median and the most of each column."""
    names = (*SHARES, "compute_s", "rest_s")
    columns = [_over_steps(profile["steps"][name]) for name in names]
    if len(profile["ranks"]) <= MOST_RANKS:
        lines = zip(profile["ranks"], zip(*columns, strict=True), strict=True)
        return [(str(rank), *map(format_seconds, values)) for rank, values in lines]
    summaries = {"least": min, "median": statistics.median, "most": max}
    return [
        (name, *(format_seconds(summary(column)) for column in columns))
        for name, summary in summaries.items()
    ]


def _over_steps(steps: Sequence[Sequence[float]]) -> list[float]:
    """Return the median over steps for each rank of [steps][ranks] values."""
    return [statistics.median(values) for values in zip(*steps, strict=True)]


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"


def _rate(per_second: float | None) -> str:
    return "-" if per_second is None else f"{format_bytes(per_second)}/s"


def _labels(names: Sequence[str]) -> str:
    if len(names) <= MOST_LABELS:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} .. {names[-1]}"
