"""Where a step's time went, for people: one line per part, with its interval and both estimates."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from jaxbench.table import print_table
from jaxbench.units import format_seconds, format_share

HEADER = ("part", "time", "of step", "95 % CI", "n", "by profile", "what it is")

# The parts add up to the step, but for medians being taken one by one.
PARTS: dict[str, tuple[str, str]] = {
    "compute_s": ("compute", "the step without collectives, median device"),
    "bubble_s": ("bubble", "idle slots of the pipeline schedule"),
    "skew_s": ("skew", "slowest device less the median one, without collectives"),
    "transfer_exposed_s": ("transfer", "the step less the one with collectives of 1 element"),
    "latency_s": ("latency", "what those collectives of 1 element add"),
}
BESIDE: dict[str, tuple[str, str]] = {
    "transfer_hidden_s": ("hidden", "transfer behind compute: no part of the step"),
    "communication_share": ("communication", "(transfer + latency) / step"),
    "communication_relevance": ("relevance", "(step - compute) / step, as in arXiv 2609.00817"),
}


def print_step(record: Mapping[str, Any]) -> None:
    """Print the decomposition of one record; nothing if it has none."""
    metrics = record["metrics"]
    step = metrics["step_s"]["value"]
    if not step or metrics["compute_s"]["value"] is None:
        return
    profiled = _by_profile(record)
    sum_s = sum(metrics[name]["value"] for name in PARTS)
    rows = [
        _row("step", metrics["step_s"], step, profiled.get("step_s"), "median of the timed steps"),
        *(_row(word, metrics[n], step, profiled.get(n), what) for n, (word, what) in PARTS.items()),
        ("sum", format_seconds(sum_s), format_share(sum_s / step), "-", "-", "-", "of the parts"),
        *(
            _row(word, metrics[n], None, profiled.get(n), what)
            for n, (word, what) in BESIDE.items()
        ),
    ]
    experiment = record["experiment"]
    title = f"where a step of {experiment['strategy']} {experiment['model']} goes"
    print_table(HEADER, rows, title=title)


def _row(
    word: str, metric: Mapping[str, Any], step_s: float | None, profiled: float | None, what: str
) -> tuple[str, ...]:
    form = format_share if metric["unit"] == "1" else format_seconds
    low, high = metric["ci_low"], metric["ci_high"]
    return (
        word,
        form(metric["value"]),
        "-" if step_s is None else format_share(metric["value"] / step_s),
        "-" if low is None else f"{form(low)} .. {form(high)}",
        str(metric["n"]),
        form(profiled),
        what,
    )


def second_estimate(record: Mapping[str, Any]) -> str:
    """Return which of the profile's metrics stands beside `transfer_exposed_s`.

    With a pipeline, ranks wait for peers in its bubble: then waiting is no part of the transfer.
    """
    piped = record["experiment"]["mesh"].get("pipeline", 1) > 1
    return "profile_transfer_s" if piped else "profile_exposed_s"


def _by_profile(record: Mapping[str, Any]) -> dict[str, float | None]:
    profile = record.get("profile")
    if not profile or not profile["step_s"]:
        return {}
    ranks = zip(*profile["steps"]["compute_s"], strict=True)
    return {
        "step_s": statistics.median(profile["step_s"]),
        "compute_s": statistics.median(statistics.median(rank) for rank in ranks),
        "transfer_exposed_s": record["metrics"][second_estimate(record)]["value"],
    }
