"""The table after a sweep: a row per cell with whole runs, then which runs failed and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.experiment import Experiment
from jaxbench.experiment_rules import OPTION_STRATEGIES
from jaxbench.measure.ratio import Ratio
from jaxbench.measure.sweeps.results import Result
from jaxbench.measure.sweeps.scaling import CellSummary, Efficiency, efficiencies, summarise
from jaxbench.report.export import row
from jaxbench.table import print_table
from jaxbench.units import format_rate, format_seconds, format_share

ALWAYS = ("strategy", "model", "mesh")
MIDDLE = ("runs", "step", "95 % CI", "throughput", "comm")
SCALING = ("efficiency", "95 % CI", "against")
LEGEND = "step: geometric mean of the runs' median steps; CI by resampling runs, then steps"
ONE_RUN = "cells with one run: CI of the steps of that run; run-to-run variance unknown"


def print_sweep(results: Sequence[Result], labels: Mapping[str, str]) -> None:
    """Print a table of the cells and a line for each run that is not whole.

    `labels` are the names of cells by their keys, where they have any.
    """
    cells = summarise(results)
    if cells:
        scaling = efficiencies(cells)
        varied = varied_fields(cells)
        header = (*ALWAYS, *varied, *MIDDLE, *(SCALING if scaling else ()))
        rows = [
            (*_settings(cell, varied), *_level(cell), *(_scaling(cell, scaling) if scaling else ()))
            for cell in cells
        ]
        print_table(header, rows, title=LEGEND)
        if any(len(cell.runs) == 1 for cell in cells):
            print(ONE_RUN)
        if scaling:
            print("efficiency: T(N)/T(N0) * N0/N, T the throughput on N devices, against N0")
    for result in results:
        if result.status != "done":
            print(_failure(result, labels.get(result.key, "")))


def varied_fields(cells: Sequence[CellSummary]) -> list[str]:
    """Return the experiment fields that differ between cells, without those shown always."""
    first = cells[0].experiment
    names = [n for n in first if n not in (*ALWAYS, "devices")]
    varied = {n for n in names if any(c.experiment.get(n) != first[n] for c in cells)}
    if "grad_dtype" in varied and all(
        c.experiment["grad_dtype"] == c.experiment["dtype"] for c in cells
    ):
        varied.remove("grad_dtype")  # it follows dtype
    return [n for n in names if n in varied]


def _settings(cell: CellSummary, varied: Sequence[str]) -> tuple[str, ...]:
    values = row(Result(cell.key, "done", cell.experiment))
    for name, strategies in OPTION_STRATEGIES.items():
        if values["strategy"] not in strategies:
            values[name] = None
    return tuple(_word(values[name]) for name in (*ALWAYS, *varied))


def _level(cell: CellSummary) -> tuple[str, ...]:
    low, high = cell.step_s.ci_low, cell.step_s.ci_high
    return (
        str(len(cell.runs)),
        format_seconds(cell.step_s.value),
        "-" if low is None else f"{format_seconds(low)} .. {format_seconds(high)}",
        format_rate(cell.throughput, "samples"),
        format_share(cell.communication_share),
    )


def _scaling(cell: CellSummary, scaling: Mapping[str, Efficiency]) -> tuple[str, ...]:
    found = scaling.get(cell.key)
    if found is None:
        return ("-", "-", "-")
    return (format_share(found.ratio.value), _interval(found.ratio), str(found.base_devices))


def _interval(ratio: Ratio) -> str:
    if ratio.ci_low is None or ratio.ci_high is None:
        return "-"
    return f"{format_share(ratio.ci_low)} .. {format_share(ratio.ci_high)}"


def _failure(result: Result, label: str) -> str:
    what = label or Experiment.from_dict(result.experiment).describe()
    if result.repetition is not None:
        what += f" #{result.repetition}"
    if result.note is None or not result.note["error"]:
        return f"{result.status}: {what}"
    indented = result.note["error"].replace("\n", "\n  ")
    return f"{result.status}: {what}: exit code {result.note['exit_code']}\n  {indented}"


def _word(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
