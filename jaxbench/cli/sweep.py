"""run every combination of the given flags, each in a process of its own, and record them.

Any flag of an experiment may have alternatives, separated by '|'; so may --runs. A cell that
crashes or takes too long costs that cell only. The same command again goes on after an
interruption: what is recorded in --out is not run again.

examples:
  jaxbench sweep --flagfile=flags/sweep_quick.flags --repetitions=3 --export=tiny.csv
  jaxbench sweep --strategy=dp --model=tiny --devices='2|4' --buckets='1|8' --payload=none
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxbench.cli.command import read_words
from jaxbench.cli.flagfile import override, read_run
from jaxbench.cli.flags import EXPERIMENT_FLAGS, SWEEP_FLAGS, read_boolean
from jaxbench.cli.flags import FLAGS as ALL_FLAGS
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.measure.record import writable_faults
from jaxbench.measure.sweeps.grid import (
    MOST_CELLS,
    SEPARATOR,
    Cell,
    combinations,
    distinct,
    grid_faults,
)

GRID_FLAGS = (*EXPERIMENT_FLAGS, "runs")
OWN_FLAGS = (*SWEEP_FLAGS, "out")
FLAGS = (*GRID_FLAGS, *OWN_FLAGS, "flagfile")
STARTS_BACKEND = False

MOST_REPETITIONS = 10_000


class Sweep(NamedTuple):
    """A call of the command: its cells, which are none where all of a folder is meant."""

    cells: list[Cell]
    skipped: list[str]
    same: int  # combinations that are the same experiment as another
    repetitions: int
    cell_timeout_s: float | None
    export: str
    export_only: bool
    out: str


def main(words: Sequence[str]) -> int:
    """Run what is missing; return 0 if every run of the grid is done and its checks passed."""
    sweep = read(words)
    for reason in sweep.skipped:
        print(f"skipped: {reason}", file=sys.stderr)
    if sweep.same:
        text = f"{sweep.same} combinations left out: the same experiment as another"
        print(text, file=sys.stderr)
    if sweep.export_only:
        show(sweep)
        return 0

    from jaxbench.measure.sweeps.results import read_results
    from jaxbench.measure.sweeps.sweep import missing_tasks, run_sweep, tasks_in_order
    from jaxbench.report.sweep_progress import Progress

    tasks = tasks_in_order(sweep.cells, sweep.repetitions, sweep.cells[0].experiment.seed)
    recorded = read_results(sweep.out)[0]
    missing = missing_tasks(tasks, recorded)
    try:
        with Progress(missing, len(tasks), recorded) as progress:
            good = run_sweep(
                tasks,
                sweep.out,
                timeout_s=sweep.cell_timeout_s,
                before=progress.before,
                after=progress.after,
            )
    except KeyboardInterrupt:
        show(sweep)
        raise
    show(sweep)
    return 0 if good else 1


def show(sweep: Sweep) -> None:
    """Print what the folder has of the cells, or all that it has, and export it."""
    from pathlib import Path

    from jaxbench.measure.record import FILE_NAME
    from jaxbench.measure.sweeps.results import read_results
    from jaxbench.measure.sweeps.sweep import sweep_results
    from jaxbench.report.export import write_rows
    from jaxbench.report.sweep_table import print_sweep

    found = sweep_results(sweep.cells, sweep.out) if sweep.cells else read_results(sweep.out)
    results, warnings = found
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if not results and sweep.export_only:
        what = "of these cells" if sweep.cells else "of jaxbench run or sweep"
        raise InputError(f"'{sweep.out}' has no results {what}")
    print_sweep(results, {cell.key: cell.label for cell in sweep.cells})
    if sweep.export:
        write_rows(results, sweep.export)
        print(f"table: {sweep.export}")
    print(f"records: {Path(sweep.out) / FILE_NAME}")


def read(words: Sequence[str]) -> Sweep:
    """Return what the words ask for. Raises InputError with everything that is wrong."""
    line, files, faults, complete = read_words("sweep", words, FLAGS)
    faults = list(faults)
    given = {name: text.strip() for name, text in override(files, line).items() if text.strip()}
    own = {name: given.get(name, ALL_FLAGS[name].default or "") for name in OWN_FLAGS}
    repetitions = _number(
        "repetitions", own["repetitions"], 1, MOST_REPETITIONS, faults, whole=True
    )
    timeout_s = None
    if own["cell_timeout_s"]:
        timeout_s = _number("cell_timeout_s", own["cell_timeout_s"], 0, math.inf, faults)
    skip_invalid, export_only = (
        read_boolean(name, own[name], faults) for name in ("skip_invalid", "export_only")
    )
    if own["export"]:
        from jaxbench.report.export import export_faults

        faults += export_faults(own["export"])
    if not export_only:
        faults += writable_faults(own["out"])
    elif not os.path.isdir(own["out"]):
        faults.append(f"--out is '{own['out']}'; --export_only needs a folder with results")

    cells, skipped, same = [], [], 0
    if complete and not (export_only and not set(given) & set(GRID_FLAGS)):
        try:
            cells, skipped, same = read_cells(files, line, skip_invalid)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    return Sweep(
        *(cells, skipped, same, int(repetitions), timeout_s),
        *(own["export"], export_only, own["out"]),
    )


def read_cells(
    files: Mapping[str, str], line: Mapping[str, str], skip_invalid: bool
) -> tuple[list[Cell], list[str], int]:
    """Return the cells, why which others are skipped, and how many were the same as another.

    Raises InputError with the faults of all cells, or if none is left.
    """
    named = override(files, line).get("runs", "").replace(SEPARATOR, ",").split(",")
    runs = [name.strip() for name in named if name.strip()]
    faults: list[str] = []
    cells: list[Cell] = []
    wrong: list[tuple[str, Sequence[str]]] = []
    for run in runs or [""]:
        try:
            of_run = read_run(run) if run else None
            layers = [of_run.values, files, line] if of_run else [files, line]
            faults += of_run.faults if of_run else []
            for label, chosen in combinations([_of_experiments(layer) for layer in layers]):
                label = " ".join([run] * (len(runs) > 1) + [label] * bool(label))
                flags = override(*chosen)
                try:
                    cells.append(Cell(label, flags, Experiment.from_flags(flags)))
                except InputError as error:
                    wrong.append((label, error.faults))
        except InputError as error:
            faults += error.faults
    total = len(cells) + len(wrong)
    if total > MOST_CELLS:
        faults.append(f"the grid has {total:,} cells; at most {MOST_CELLS:,} are taken")
    if wrong and not (skip_invalid and cells):
        faults += grid_faults(wrong, total)
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    kept = distinct(cells)
    skipped = [f"cell {label}: {'; '.join(told)}" for label, told in wrong]
    return kept, skipped, len(cells) - len(kept)


def _of_experiments(layer: Mapping[str, str]) -> dict[str, str]:
    return {n: text for n, text in layer.items() if n in EXPERIMENT_FLAGS and text.strip()}


def _number(
    name: str, text: str, low: float, high: float, faults: list[str], *, whole: bool = False
) -> float:
    """Return a flag's number, which is at least `low` or, where not whole, above it."""
    try:
        value = float(int(text)) if whole else float(text)
    except (ValueError, OverflowError):
        value = math.nan
    if (low <= value if whole else low < value) and value <= high and value < math.inf:
        return value
    allowed = f"a whole number from {low} to {high:,}" if whole else f"a number above {low}"
    faults.append(f"--{name} is '{text}'; it must be {allowed}")
    return low
