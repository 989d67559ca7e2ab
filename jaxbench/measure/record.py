"""The results file: append-only JSON lines, one object per run in `DIR/runs.jsonl`.

A record is on disk before the next run starts, and a file stays readable whatever
happened to its writer: a line that a killed process left torn is closed by the next
writer and skipped, by its number, by every reader.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA = 1
FILE_NAME = "runs.jsonl"
OPEN_TRIES = 100  # to make folders and open a file in them, while others take empty ones away

# The top-level fields of a record, in the order in which they are written. `samples` is
# {variant: [steps][processes] seconds}, `device_ready_s` {variant: [steps][ranks] seconds} of the
# variants without collectives (collectives end all devices of a step together). `ranks` says of
# each rank, in order: process, host, device, and the switches and group above its host.
FIELDS = (
    "schema",
    "id",
    "time",
    "command",
    "seed",
    "scales",
    "experiment",
    "environment",
    "ranks",
    "plan",
    "checks",
    "calibration",
    "timing",
    "samples",
    "device_ready_s",
    "metrics",
    "profile",
    "warnings",
    "partial",
)


def make_record(**fields: Any) -> dict[str, Any]:
    """Return a record of the given fields, with `schema`, `id` and `time` filled in.

    `partial` is False, `profile` and `ranks` null unless given. Raises TypeError if a field is
    missing or has no place.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    given = {"schema": SCHEMA, "id": uuid.uuid4().hex, "time": now, "partial": False}
    given |= {"profile": None, "ranks": None, **fields}
    if wrong := set(FIELDS) ^ set(given):
        raise TypeError(f"record fields missing or unknown: {', '.join(sorted(wrong))}")
    return {name: given[name] for name in FIELDS}


def append_record(
    folder: str | os.PathLike[str], record: Mapping[str, Any], name: str = FILE_NAME
) -> Path:
    """Append one record to `folder/runs.jsonl` in one locked, synced write; return the path.

    `name` is another file of such lines in the folder.
    """
    path = Path(folder) / name
    line = json.dumps(_plain(record), allow_nan=False).encode() + b"\n"
    handle = _open_in_folder(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # released when the handle is closed
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(handle, line) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    return path


def read_records(
    path: str | os.PathLike[str], start: int = 0
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the records of a results file (or of a folder's) and a warning per skipped line.

    `start` is the byte from which the file is read: its size at an earlier time, for what is new.
    """
    path = Path(path)
    if path.is_dir():
        path = path / FILE_NAME
    records: list[dict[str, Any]] = []
    warnings: list[str] = []
    data = path.read_bytes()
    first = data.count(b"\n", 0, start) + 1
    for number, line in enumerate(data[start:].split(b"\n"), start=first):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("schema"), int):
            warnings.append(f"{path} line {number} is not a whole record: skipped")
        elif record["schema"] > SCHEMA:
            newer = f"has schema {record['schema']}, newer than the {SCHEMA} known here"
            warnings.append(f"{path} line {number} {newer}: skipped")
        else:
            records.append(record)
    return records, warnings


def writable_faults(folder: str | os.PathLike[str]) -> list[str]:
    """Return why nothing can be written to `folder`, or nothing; leaves no trace.

    It tries, with a file of another name: permission bits alone don't tell what a file system
    allows, and results of other runs aren't touched.
    """
    path = Path(folder) / FILE_NAME
    missing = [parent for parent in path.parents if not parent.exists()]
    probe = path.with_name(f".probe-{uuid.uuid4().hex}")
    try:
        os.close(_open_in_folder(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        if path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
    except OSError as error:
        return [f"can't write results to '{folder}': {error.strerror} ({path.parent})"]
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
        with contextlib.suppress(OSError):  # another run may have filled it meanwhile
            for parent in missing:  # innermost first
                parent.rmdir()
    return []


def _open_in_folder(path: Path, flags: int) -> int:
    """Open a file, making the folders above it; return the handle.

    Another run may take away the empty folders that its own probe has made, just when they are
    relied on here, so that is tried again.
    """
    for left in reversed(range(OPEN_TRIES)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, flags, 0o644)
        except FileNotFoundError:
            if not left:
                raise
    raise AssertionError("unreachable")


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: arrays as lists, and null for a number that is none."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value
