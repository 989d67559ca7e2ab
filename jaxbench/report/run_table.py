"""The table after a run: one row per record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.table import print_table
from jaxbench.units import format_rate, format_seconds

HEADER = (
    "strategy",
    "model",
    "mesh",
    "step",
    "95 % CI",
    "compute",
    "exposed",
    "throughput",
    "plan = compiled",
    "values ok",
)


def print_runs(records: Sequence[Mapping[str, Any]]) -> None:
    """Print the records as a table, then what there is to warn about."""
    title = "median step; exposed = step - compute of the busiest rank (bubble included)"
    header, rows = HEADER, [_row(record) for record in records]
    if any(_scales(record) for record in records):
        header = (*HEADER, "scaled")
        rows = [(*row, _scales(record)) for row, record in zip(rows, records, strict=True)]
    print_table(header, rows, title=title)
    for record in records:
        who = " ".join(_row(record)[:3])
        for warning in record["warnings"]:
            print(f"warning: {who}: {warning}")


def _row(record: Mapping[str, Any]) -> tuple[str, ...]:
    experiment, metrics, checks = record["experiment"], record["metrics"], record["checks"]
    step = metrics["step_s"]
    mesh = ",".join(f"{axis}={size}" for axis, size in experiment["mesh"].items() if size > 1)
    low, high = step["ci_low"], step["ci_high"]
    interval = "-" if low is None else f"{format_seconds(low)} .. {format_seconds(high)}"
    return (
        experiment["strategy"],
        experiment["model"],
        mesh or "1 device",
        format_seconds(step["value"]),
        interval,
        format_seconds(metrics["compute_s"]["value"]),
        format_seconds(metrics["exposed_s"]["value"]),
        format_rate(metrics["throughput"]["value"], "samples"),
        _verdict(checks["plan_equals_compiled"]),
        _verdict(checks["values_ok"]),
    )


def _scales(record: Mapping[str, Any]) -> str:
    """Say which factors make this less (or more) than the named workload: 'size x 0.001'."""
    changed = {k.removesuffix("_scale"): v for k, v in record["scales"].items() if v != 1.0}
    return ", ".join(f"{name} x {value:g}" for name, value in changed.items())


def _verdict(checked: bool | None) -> str:
    return "-" if checked is None else "yes" if checked else "NO"
