"""Two sets of records side by side: a row per configuration, then what limits the comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from jaxbench.measure.comparison import Compared, Comparison, Side
from jaxbench.table import print_table
from jaxbench.units import format_seconds

HEADER = (
    "configuration",
    "runs a",
    "runs b",
    "median a",
    "median b",
    "b / a",
    "95 % CI",
    "verdict",
)
MANY = 10  # rows from which on a false alarm among them is likely
MOST_WARNINGS = 10


def print_comparison(comparison: Comparison) -> None:
    """Print the table, then what is on one side only, what differs, and warnings."""
    title = f"median step; a: {comparison.a.name}, b: {comparison.b.name}"
    print_table(HEADER, [_row(row) for row in comparison.rows], title=title)
    if len(comparison.rows) >= MANY:
        print(
            f"note: of {len(comparison.rows)} equal configurations, "
            f"{len(comparison.rows) * 0.05:.2g} show a difference by chance"
        )
    _print_only("a", comparison.only_a)
    _print_only("b", comparison.only_b)
    for side, name in ((comparison.a, "a"), (comparison.b, "b")):
        _print_partial(side, name)
    _print_differences(comparison)
    for warning in comparison.warnings[:MOST_WARNINGS]:
        print(f"warning: {warning}")
    if len(comparison.warnings) > MOST_WARNINGS:
        print(f"warning: and {len(comparison.warnings) - MOST_WARNINGS} more such lines")


def _row(row: Compared) -> tuple[str, ...]:
    ratio = row.ratio
    interval = "-" if ratio.ci_low is None else f"{ratio.ci_low:.3f} .. {ratio.ci_high:.3f}"
    return (
        row.configuration,
        str(row.runs[0]),
        str(row.runs[1]),
        format_seconds(row.levels[0]),
        format_seconds(row.levels[1]),
        "-" if ratio.value is None else f"{ratio.value:.3f}",
        interval,
        row.verdict,
    )


def _print_only(name: str, only: Mapping[str, int]) -> None:
    for configuration, runs in only.items():
        print(f"only in {name}: {configuration} ({runs} run{'s' * (runs > 1)})")


def _print_partial(side: Side, name: str) -> None:
    if side.partial:
        count = f"{side.partial} partial record{'s' * (side.partial > 1)}"
        print(f"left out: {count} of {name} ({side.name})")


def _print_differences(comparison: Comparison) -> None:
    """Print each difference once, with its configurations if it isn't of all of them."""
    counts = Counter(text for row in comparison.rows for text in row.differences)
    for text, count in counts.items():
        if count == len(comparison.rows):
            print(f"different: {text}")
    for row in comparison.rows:
        for text in row.differences:
            if counts[text] < len(comparison.rows):
                print(f"different: {row.configuration}: {text}")
