"""The table after a run: one row per record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.axes import mesh_text
from jaxbench.report.profile_table import print_profile
from jaxbench.report.step_table import print_step, second_estimate
from jaxbench.table import print_table
from jaxbench.units import format_rate, format_seconds, format_share

HEADER = ("strategy", "model", "mesh", "step", "95 % CI", "compute")
UNDIVIDED = ("exposed",)
DIVIDED = ("bubble", "skew", "transfer", "latency", "hidden", "comm")
END = ("throughput", "plan = compiled", "values ok")

LEGEND = {
    UNDIVIDED: "median step; exposed = step - compute of the busiest rank (bubble included)",
    DIVIDED: "median step = compute + bubble + skew + transfer + latency; "
    "comm = (transfer + latency) / step; hidden = transfer behind compute",
}


def print_runs(records: Sequence[Mapping[str, Any]]) -> None:
    """Print the records as a table, then what there is to warn about.

    Where a run was decomposed into variants, the table has the parts of the step.
    """
    divided = any(record["metrics"]["compute_s"]["value"] is not None for record in records)
    middle = DIVIDED if divided else UNDIVIDED
    header = (*HEADER, *middle, *END)
    rows = [_row(record, divided) for record in records]
    if any(_scales(record) for record in records):
        header = (*header, "scaled")
        rows = [(*row, _scales(record)) for row, record in zip(rows, records, strict=True)]
    print_table(header, rows, title=LEGEND[middle])
    for record in records:
        if record.get("profile") or len(records) == 1:
            print_step(record)
        if record.get("profile"):
            print_profile(record["profile"])
            print(_two_estimates(record))
        for warning in record["warnings"]:
            print(f"warning: {' '.join(_who(record))}: {warning}")


def _two_estimates(record: Mapping[str, Any]) -> str:
    """Say what variants and profile make of the exposed transfer, and how far apart they are."""
    names = ("transfer_exposed_s", second_estimate(record))
    one, two = (record["metrics"][name] for name in names)
    if one["value"] is None or two["value"] is None:
        return "exposed transfer: not estimated twice (--decompose and --profile do)"
    apart = format_seconds(two["value"] - one["value"])
    return (
        f"exposed transfer: {format_seconds(one['value'])} by variants (n = {one['n']}), "
        f"{format_seconds(two['value'])} by profile (n = {two['n']}); difference {apart}"
    )


def _who(record: Mapping[str, Any]) -> tuple[str, str, str]:
    experiment = record["experiment"]
    return experiment["strategy"], experiment["model"], mesh_text(experiment["mesh"].items())


def _row(record: Mapping[str, Any], divided: bool) -> tuple[str, ...]:
    metrics, checks = record["metrics"], record["checks"]
    low, high = metrics["step_s"]["ci_low"], metrics["step_s"]["ci_high"]

    def seconds(name: str) -> str:
        return format_seconds(metrics[name]["value"])

    compute, parts = "compute_s", ["exposed_s"]
    if divided:
        parts = ["bubble_s", "skew_s", "transfer_exposed_s", "latency_s", "transfer_hidden_s"]
    else:
        compute = "wanted_compute_s"
    share = (format_share(metrics["communication_share"]["value"]),) if divided else ()
    return (
        *_who(record),
        seconds("step_s"),
        "-" if low is None else f"{format_seconds(low)} .. {format_seconds(high)}",
        seconds(compute),
        *map(seconds, parts),
        *share,
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
