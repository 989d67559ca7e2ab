"""Advice as text: the winner and why, the ranking, and what doesn't fit."""

from __future__ import annotations

from collections.abc import Sequence

from jaxbench.axes import mesh_text
from jaxbench.readings.advise import Advice, Choice, why_unfit
from jaxbench.readings.advise_candidates import Candidate
from jaxbench.readings.predict import Prediction
from jaxbench.report.advise_gantt import gantt
from jaxbench.table import print_table
from jaxbench.units import (
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
    format_share,
)

HEADER = (
    "",
    "strategy",
    "mesh",
    "options",
    "batch",
    "global batch",
    "throughput",
    "step",
    "comm",
    "memory",
    "",
)
UNFIT = ("strategy", "mesh", "options", "batch", "why not")
LEGEND = (
    "comm = (exposed transfer + latency) / step; memory of real training per device, with flash "
    "attention, Adam in mixed precision and schedules in published order; batch: samples per "
    "data-parallel rank"
)


def print_advice(advice: Advice, top: int, timeline: Prediction | None = None) -> None:
    """Print the winner, `top` rows of the ranking, `top` of what doesn't fit, and a timeline."""
    winner = advice.winner
    if winner is None:
        print("winner     none: nothing fits")
    else:
        c = winner.candidate
        print(f"winner     {c.describe()}: {format_rate(winner.throughput, 'samples')}")
        print(f"why        {advice.reason}".replace("; ", "\n           "))
        print(f"memory     {_memory(c)}")
        print(f"flags      {' '.join(c.flags)}")
        if c.warning:
            print(f"warning    {c.warning}")
    if advice.ranking:
        print()
        rows = [
            _row(number, choice, winner)
            for number, choice in enumerate(advice.ranking[:top], start=1)
        ]
        print_table(HEADER, rows, title=LEGEND)
        _print_notes(advice, top)
    if advice.unfit:
        print()
        shown = advice.unfit[:top]
        print_table(
            UNFIT,
            [_unfit(c) for c in shown],
            title="what doesn't fit, with the options that need least",
        )
        _print_rest(len(advice.unfit) - len(shown))
    print()
    print(
        f"{format_count(advice.considered)} combinations considered, "
        f"{format_count(sum(advice.refused.values()))} make no sense; of "
        f"{format_count(advice.feasible)} with the best batch each {format_count(advice.fitting)} "
        f"fit, {format_count(advice.simulated)} were simulated, the others of the same shapes "
        f"can't change who is first or second; {format_seconds(advice.took_s)}"
    )
    if timeline is not None:
        print()
        print(gantt(timeline.simulation.events, timeline.step_s))


def _print_notes(advice: Advice, top: int) -> None:
    _print_rest(len(advice.ranking) - top)
    warnings = dict.fromkeys(
        choice.candidate.warning for choice in advice.ranking[:top] if choice.candidate.warning
    )
    winner = advice.winner
    if winner is not None and not winner.candidate.warning:
        if advice.ranking.index(winner):
            print("*: the winner, the fastest whose global batch converges")
    for warning in warnings:
        print(f"!: {warning}")


def _print_rest(count: int) -> None:
    if count > 0:
        print(f"and {count} more (--top)")


def _row(number: int, choice: Choice, winner: Choice | None) -> tuple[str, ...]:
    c = choice.candidate
    marks = ("*" if choice is winner else "") + ("!" if c.warning else "")
    return (
        str(number),
        c.experiment.strategy,
        mesh_text(c.experiment.mesh),
        c.options,
        str(c.experiment.batch),
        format_count(c.global_batch),
        format_rate(choice.throughput, "samples"),
        format_seconds(choice.step_s),
        format_share(choice.communication_share),
        format_bytes(c.memory.total_bytes),
        marks,
    )


def _unfit(c: Candidate) -> tuple[str, ...]:
    return (
        c.experiment.strategy,
        mesh_text(c.experiment.mesh),
        c.options,
        str(c.experiment.batch),
        why_unfit(c),
    )


def _memory(c: Candidate) -> str:
    parts: Sequence[str] = [
        f"{name} {format_bytes(size)}" for name, size in c.memory.parts.items() if size
    ]
    return (
        f"{format_bytes(c.memory.total_bytes)} of {format_bytes(c.memory.usable_bytes)} usable a "
        f"device: {', '.join(parts)}"
    )
