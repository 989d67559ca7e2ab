"""The tables of a simulation: the parts of each step, then what its collectives take and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxbench.axes import mesh_text
from jaxbench.readings.predict import Prediction
from jaxbench.readings.simulate import Semantics, Use
from jaxbench.table import print_table
from jaxbench.units import format_bytes, format_rate, format_seconds, format_share

STEPS = (
    "strategy",
    "model",
    "mesh",
    "step",
    "compute",
    "bubble",
    "skew",
    "transfer",
    "latency",
    "comm",
    "relevance",
    "efficiency",
    "throughput",
)
STEPS_LEGEND = (
    "step = compute + bubble + skew + transfer + latency; comm = (transfer + latency) / step; "
    "relevance = longest blocked time of a rank / step, bubble included; "
    "efficiency: against replicas that needn't communicate"
)
COLLECTIVES = (
    "collective",
    "axis",
    "groups",
    "of",
    "count",
    "bytes",
    "dtype",
    "each",
    "in all",
    "algorithm",
    "bound by",
    "what for",
)
COLLECTIVES_LEGEND = (
    "collectives of a rank in a step; each: in the slowest group, with all members there"
)
MOST_LABELS = 4  # that are listed by name in a row


@dataclass(frozen=True)
class Line:
    """Uses that read the same; `count` and `seconds` are maxima over ranks."""

    read: tuple[str, ...]
    labels: tuple[str, ...]
    count: int
    seconds: float


def print_predictions(predictions: Sequence[Prediction]) -> None:
    """Print the steps as one table, then a table of collectives for each of them."""
    print_table(STEPS, [_step(p) for p in predictions], title=STEPS_LEGEND)
    for prediction in predictions:
        print()
        print(prediction.experiment.describe())
        print(f"{prediction.costs}; {streams_text(prediction.semantics)}")
        print_uses(prediction.simulation.uses)
        for note in prediction.experiment.notes:
            print(f"warning: {note}")


def streams_text(semantics: Semantics) -> str:
    """Return in words which collectives overlap."""
    if semantics.streams == "axis":
        return "a communication stream per mesh axis"
    return "one communication stream"


def print_uses(uses: Sequence[Use]) -> None:
    """Print the collectives of a simulated step as a table."""
    lines = merge(uses)
    if lines:
        print_table(COLLECTIVES, [_collective(x) for x in lines], title=COLLECTIVES_LEGEND)
    else:
        print("no collectives")


def merge(uses: Sequence[Use]) -> list[Line]:
    """Return as one line each the uses that read the same but for what they are for.

    Buckets and units may differ by an element, which nobody needs to see here.
    """
    merged: dict[tuple[str, ...], list[Use]] = {}
    for use in uses:
        merged.setdefault(_read(use), []).append(use)
    lines = []
    for read, members in merged.items():
        count = int(np.sum([use.executions for use in members], axis=0).max())
        each = max(use.seconds / use.count for use in members)
        labels = tuple(dict.fromkeys(use.label for use in members))
        lines.append(Line(read, labels, count, count * each))
    return lines


def _read(use: Use) -> tuple[str, ...]:
    return (
        use.kind,
        "+".join(use.axes),
        str(use.groups),
        str(use.group_size),
        format_bytes(use.nbytes),
        use.dtype,
        format_seconds(use.cost.seconds),
        use.cost.algorithm,
        use.bound,
    )


def _step(p: Prediction) -> tuple[str, ...]:
    e = p.experiment
    parts = (
        p.step_s,
        p.compute_s,
        p.bubble_s,
        p.skew_s,
        p.transfer_exposed_s,
        p.latency_s,
    )
    shares = (p.communication_share, p.communication_relevance, p.scaling_efficiency)
    return (
        e.strategy,
        e.model,
        mesh_text(e.mesh),
        *map(format_seconds, parts),
        *map(format_share, shares),
        format_rate(p.throughput, "samples"),
    )


def _collective(line: Line) -> tuple[str, ...]:
    kind, axis, groups, size, nbytes, dtype, each, algorithm, bound = line.read
    shown = ", ".join(line.labels[:MOST_LABELS])
    if len(line.labels) > MOST_LABELS:
        shown += f" and {len(line.labels) - MOST_LABELS} more"
    count, total = str(line.count), format_seconds(line.seconds)
    return kind, axis, groups, size, count, nbytes, dtype, each, total, algorithm, bound, shown
