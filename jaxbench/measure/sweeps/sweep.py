"""A sweep: the cells of a grid, some times each, every run in a process of its own.

What is recorded is not run again, so that an interrupted sweep goes on where it was, and one
whose cells failed tries those again. Nothing here starts a backend.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from jaxbench.errors import InputError
from jaxbench.measure.record import FILE_NAME, read_records
from jaxbench.measure.sweeps.child import Ended, run_child
from jaxbench.measure.sweeps.grid import Cell, experiment_key
from jaxbench.measure.sweeps.results import Result, append_note, of_cells, read_results

LOCK_NAME = "sweep.lock"

Runner = Callable[[Sequence[str], float | None], Ended]


class Task(NamedTuple):
    """One run of a sweep: a cell, and the how-manieth time (from 1)."""

    cell: Cell
    repetition: int


def tasks_in_order(cells: Sequence[Cell], repetitions: int, seed: int) -> list[Task]:
    """Return the runs of a sweep: repetition by repetition, each in a random order of its own.

    So slow drift of the machine doesn't fall on some cells only, and what an interrupted sweep
    has is spread over all.
    """
    order = random.Random(seed)
    return [
        Task(cell, repetition)
        for repetition in range(1, repetitions + 1)
        for cell in order.sample(cells, len(cells))
    ]


def missing_tasks(tasks: Sequence[Task], results: Sequence[Result]) -> list[Task]:
    """Return the tasks that no result says are done."""
    done = {(r.key, r.repetition) for r in results if r.status == "done"}
    return [task for task in tasks if (task.cell.key, task.repetition) not in done]


def run_sweep(
    tasks: Sequence[Task],
    out: str | os.PathLike[str],
    *,
    timeout_s: float | None = None,
    runner: Runner = run_child,
    before: Callable[[Task], None] = lambda task: None,
    after: Callable[[Task, Mapping[str, Any]], None] = lambda task, note: None,
) -> bool:
    """Run the tasks that are missing in `out`; return whether all of them are done now.

    Each ends with a note (see results.py) before the next begins; `before` and `after` are told.
    Raises InputError if another sweep is at work in `out`.
    """
    with only_one(out):
        results = read_results(out)[0]
        tasks = missing_tasks(tasks, adopt(tasks, results, out))
        good = True
        for task in tasks:
            before(task)
            note = run_task(task, out, timeout_s, runner)
            after(task, note)
            good &= note["status"] == "done"
        return good


def run_task(
    task: Task, out: str | os.PathLike[str], timeout_s: float | None, runner: Runner
) -> dict[str, Any]:
    """Run one task and return the note that was made of it."""
    path = Path(out) / FILE_NAME
    before = path.stat().st_size if path.is_file() else 0
    ended = runner([*task.cell.words, f"--out={out}"], timeout_s)
    new = read_records(path, before)[0] if path.is_file() else []
    records = [record for record in new if is_of(record, task.cell)]
    record = records[-1] if records else None
    whole = record is not None and not record["partial"]
    if ended.exit_code == 0 and whole:
        status, error = "done", None
    elif ended.timed_out:
        status, error = "timeout", f"no end after {timeout_s:g} s\n{ended.error}".strip()
    else:
        status, error = "failed", _reason(ended)
    return append_note(
        out,
        **_identity(task),
        status=status,
        exit_code=ended.exit_code,
        wall_s=round(ended.seconds, 3),
        error=error,
        record=record["id"] if record else None,
    )


def adopt(
    tasks: Sequence[Task], results: Sequence[Result], out: str | os.PathLike[str]
) -> list[Result]:
    """Note the records that a killed sweep did not come to note; return all results then.

    Such a record is whole, claimed by no note, and made by the very command of a cell.
    """
    waiting = missing_tasks(tasks, results)
    results = list(results)
    for result in list(results):
        if result.repetition is not None or result.status != "done" or result.record is None:
            continue
        found = [task for task in waiting if is_of(result.record, task.cell)]
        if found:
            waiting.remove(found[0])
            record = result.record["id"]
            append_note(
                out,
                **_identity(found[0]),
                status="done",
                exit_code=None,
                wall_s=None,
                error=None,
                record=record,
            )
            results.append(
                Result(result.key, "done", result.experiment, result.record, found[0].repetition)
            )
    return results


def is_of(record: Mapping[str, Any], cell: Cell) -> bool:
    """Tell whether a record was made by a sweep's command for this cell, to whatever folder."""
    command = record.get("command") or []
    words = [word for word in command[2:] if not word.startswith("--out=")]
    return words == cell.words and experiment_key(record["experiment"]) == cell.key


@contextmanager
def only_one(out: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other sweeps out of a folder: both would run what neither has noted yet."""
    Path(out).mkdir(parents=True, exist_ok=True)
    with open(Path(out) / LOCK_NAME, "w") as lock:  # the kernel frees it, however we end
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another sweep is at work in '{out}': choose another --out") from None
        yield


def sweep_results(
    cells: Sequence[Cell], out: str | os.PathLike[str]
) -> tuple[list[Result], list[str]]:
    """Return what `out` has of a sweep's cells, in the order of cells, and warnings."""
    results, warnings = read_results(out)
    place = {cell.key: index for index, cell in enumerate(cells)}
    chosen = of_cells(results, place)
    return sorted(chosen, key=lambda r: (place[r.key], r.repetition or 0)), warnings


def _identity(task: Task) -> dict[str, Any]:
    return {
        "key": task.cell.key,
        "repetition": task.repetition,
        "experiment": task.cell.experiment.to_dict(),
    }


def _reason(ended: Ended) -> str:
    if ended.exit_code == 0:
        return "it ended well but left no whole record"
    if ended.exit_code < 0:
        try:
            name = signal.Signals(-ended.exit_code).name
        except ValueError:
            name = f"signal {-ended.exit_code}"
        return f"killed by {name}\n{ended.error}".strip()
    return ended.error or f"exit code {ended.exit_code}"
