"""What a results folder holds of sweeps: `runs.jsonl`, and who asked for each record.

`sweep.jsonl` beside it has a note for each run of a sweep that ended, well or badly: which cell
and repetition it was, how it ended, and the id of its record. The last note of a repetition
counts.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jaxbench.measure.record import FIELDS, FILE_NAME, SCHEMA, append_record, read_records
from jaxbench.measure.sweeps.grid import experiment_key

NOTES_NAME = "sweep.jsonl"
NOTE_FIELDS = {
    *("key", "repetition", "experiment"),
    *("status", "exit_code", "wall_s", "error", "record"),
}


@dataclass(frozen=True)
class Result:
    """One run: of a sweep (then it has a repetition and a note), or of another command.

    `status` is done, failed, timeout or, for a record without a note, partial; `record` is None
    where a run left none.
    """

    key: str
    status: str
    experiment: Mapping[str, Any]
    record: Mapping[str, Any] | None = None
    repetition: int | None = None
    note: Mapping[str, Any] | None = None


def append_note(out: str | os.PathLike[str], **fields: Any) -> dict[str, Any]:
    """Append a note on a run of a sweep to `out/sweep.jsonl`, with the time; return it."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    note = {"schema": SCHEMA, "time": now, **fields}
    append_record(out, note, NOTES_NAME)
    return note


def read_results(out: str | os.PathLike[str]) -> tuple[list[Result], list[str]]:
    """Return the runs of a results folder and a warning for each line that can't be read.

    A note that says done is left out where its record is gone. Raises OSError.
    """
    records, warnings = _read(Path(out) / FILE_NAME)
    notes, more = _read(Path(out) / NOTES_NAME)
    notes = [note for note in notes if NOTE_FIELDS <= note.keys()]
    by_id = {record["id"]: record for record in records if _of_an_experiment(record)}
    last = {(note["key"], note["repetition"]): note for note in notes}
    results = []
    for (key, repetition), note in last.items():
        record = by_id.get(note["record"])
        if record is not None or note["status"] != "done":
            results.append(
                Result(key, note["status"], note["experiment"], record, repetition, note)
            )
    claimed = {note["record"] for note in notes}
    for number, record in by_id.items():
        if number not in claimed:
            key = experiment_key(record["experiment"])
            status = "partial" if record["partial"] else "done"
            results.append(Result(key, status, record["experiment"], record))
    return results, warnings + more


def of_cells(results: Collection[Result], keys: Collection[str]) -> list[Result]:
    """Return the runs that sweeps made of the cells with these keys."""
    chosen = set(keys)
    return [r for r in results if r.key in chosen and r.repetition is not None]


def _of_an_experiment(record: Mapping[str, Any]) -> bool:
    """Tell whether a record is of `jaxbench run`: others may stand in the same file."""
    experiment = record.get("experiment")
    return set(FIELDS) <= record.keys() and isinstance(experiment, dict) and "mesh" in experiment


def _read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    return read_records(path) if path.is_file() else ([], [])
