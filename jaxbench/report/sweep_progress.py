"""How far a sweep is and how long it will take: a bar on a terminal, a line per run elsewhere."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jaxbench.measure.sweeps.results import Result
from jaxbench.measure.sweeps.sweep import Task
from jaxbench.table import is_terminal
from jaxbench.units import format_seconds


class Progress:
    """Tells of the runs of a sweep on stderr; a context, since a bar must be put away.

    `missing` are the runs to come, of `total`; of the others `recorded` has the seconds.
    """

    def __init__(self, missing: Sequence[Task], total: int, recorded: Collection[Result]):
        self._waiting = list(missing)
        self._total = total
        self._done = total - len(missing)
        self._seconds: dict[str, list[float]] = {}
        for result in recorded:
            if result.note and result.note["wall_s"] is not None:
                self._seconds.setdefault(result.key, []).append(result.note["wall_s"])
        self._bar: Any = None
        self._line: Any = None

    def __enter__(self) -> Progress:
        recorded = f", {self._done} recorded already" if self._done else ""
        print(f"{self._total} runs{recorded}{self._left()}", file=sys.stderr, flush=True)
        if is_terminal(sys.stderr):
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            # No thread that draws: a child process is forked from this one.
            self._bar = Bar(
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}", markup=False),
                console=Console(file=sys.stderr),
                auto_refresh=False,
            )
            self._line = self._bar.add_task("", total=self._total, completed=self._done)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def before(self, task: Task) -> None:
        """Say that a run begins (on a terminal: elsewhere its end is enough)."""
        if task not in self._waiting:  # adopted or noted since
            return
        if self._bar is not None:
            text = f"{title(task)}{self._left()}"
            self._bar.update(self._line, completed=self._done, description=text, refresh=True)

    def after(self, task: Task, note: Mapping[str, Any]) -> None:
        """Say how a run ended, and how long the rest will take."""
        self._done += 1
        self._waiting.remove(task)
        self._seconds.setdefault(task.cell.key, []).append(note["wall_s"])
        how = f"{note['status']} in {format_seconds(note['wall_s'])}"
        if note["error"]:
            how += f": {last_line(note['error'])}"
        line = f"[{self._done}/{self._total}] {title(task)}: {how}"
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
            self._bar.update(self._line, completed=self._done, refresh=True)
        else:
            print(f"{line}{self._left()}", file=sys.stderr, flush=True)

    def seconds_left(self) -> float | None:
        """Return the seconds of the runs to come, from earlier runs of their cells or of all."""
        taken = [s for of_cell in self._seconds.values() for s in of_cell]
        if not taken:
            return None
        usual = statistics.fmean(taken)
        return sum(
            statistics.fmean(self._seconds.get(task.cell.key, [usual])) for task in self._waiting
        )

    def _left(self) -> str:
        seconds = self.seconds_left()
        return f"; {duration(seconds)} left" if self._waiting and seconds is not None else ""


def title(task: Task) -> str:
    """Return the name of a run: the flags that vary, and which repetition it is."""
    what = task.cell.label or task.cell.experiment.describe()
    return f"{what} #{task.repetition}"


def last_line(text: str) -> str:
    """Return the last line of a message, which says most."""
    return text.strip().splitlines()[-1] if text.strip() else ""


def duration(seconds: float) -> str:
    """Return a time to wait in one or two units: '40 s', '12 min', '3 h 05 min'."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
