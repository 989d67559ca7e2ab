"""The results file outlives its writers: torn lines, many writers, folders that can't be."""

from __future__ import annotations

import fcntl
import json
import math
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxbench.measure.record import (
    FIELDS,
    FILE_NAME,
    SCHEMA,
    append_record,
    make_record,
    read_records,
    writable_faults,
)


def a_record(**changes: object) -> dict[str, object]:
    """Return a record whose fields are empty but for the changes."""
    empty = {name: None for name in FIELDS if name not in ("schema", "id", "time", "partial")}
    return make_record(**{**empty, **changes})


def test_a_record_comes_back(tmp_path: Path) -> None:
    record = a_record(seed=7, samples={"full": [[1.5], [2.5]]}, command=["jaxbench", "run"])
    path = append_record(tmp_path / "new" / "folder", record)
    assert path == tmp_path / "new" / "folder" / FILE_NAME
    assert read_records(path) == ([record], [])
    assert read_records(path.parent) == ([record], [])
    assert record["schema"] == SCHEMA and record["partial"] is False
    assert list(record) == list(FIELDS)


def test_ids_differ() -> None:
    assert a_record()["id"] != a_record()["id"]


def test_fields_are_neither_missing_nor_invented() -> None:
    with pytest.raises(TypeError, match="metrics"):
        make_record(**{name: None for name in FIELDS if name != "metrics"})
    with pytest.raises(TypeError, match="colour"):
        a_record(colour="red")


def test_numbers_that_are_none_are_null(tmp_path: Path) -> None:
    arrays = {"full": np.array([[1.0, math.nan]], np.float32), "n": np.int64(3)}
    append_record(tmp_path, a_record(samples=arrays, metrics={"a": math.inf, "b": (1, 2)}))
    (record,), _ = read_records(tmp_path)
    assert record["samples"] == {"full": [[1.0, None]], "n": 3}
    assert record["metrics"] == {"a": None, "b": [1, 2]}


def test_a_torn_line_is_closed_and_skipped(tmp_path: Path) -> None:
    first, second = a_record(seed=1), a_record(seed=2)
    path = append_record(tmp_path, first)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])  # the writer was killed
    records, warnings = read_records(path)
    assert records == [first]
    assert warnings == [f"{path} line 2 is not a whole record: skipped"]
    append_record(tmp_path, second)
    records, warnings = read_records(path)
    assert records == [first, second]
    assert len(warnings) == 1


@pytest.mark.parametrize("line", [b"[1]", b"{}", b"\xff\xfe", b'{"schema": "1"}', b"nonsense"])
def test_a_line_of_something_else_is_skipped(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(b"\n" + line + b"\n\n")
    append_record(tmp_path, a_record())
    records, warnings = read_records(path)
    assert len(records) == 1
    assert warnings == [f"{path} line 2 is not a whole record: skipped"]


def test_a_newer_schema_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps({"schema": SCHEMA + 1}) + "\n")
    records, warnings = read_records(tmp_path)
    assert records == [] and "newer than" in warnings[0]


def test_writers_at_once_don_t_mix(tmp_path: Path) -> None:
    code = (
        "import sys; from jaxbench.measure.record import *\n"
        "empty = dict.fromkeys(FIELDS); [empty.pop(k) for k in ('schema', 'id', 'time')]\n"
        "for i in range(25): append_record(sys.argv[1], make_record(**{**empty,"
        " 'plan': ['x' * 50_000]}))"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=dict(os.environ))
        for _ in range(4)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    records, warnings = read_records(tmp_path)
    assert (len(records), warnings) == (100, [])
    assert len({record["id"] for record in records}) == 100


def test_a_writer_waits_for_another_one(tmp_path: Path) -> None:
    path = append_record(tmp_path, a_record())
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = threading.Thread(target=append_record, args=(tmp_path, a_record()))
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
        assert len(read_records(path)[0]) == 1
    writer.join(30)
    assert len(read_records(path)[0]) == 2


def test_a_killed_writer_leaves_a_readable_file(tmp_path: Path) -> None:
    code = (
        "import sys; from jaxbench.measure.record import *\n"
        "empty = dict.fromkeys(FIELDS); [empty.pop(k) for k in ('schema', 'id', 'time')]\n"
        "while True: append_record(sys.argv[1], make_record(**empty)); print(flush=True)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    for _ in range(5):
        writer.stdout.readline()
    writer.kill()
    writer.wait()
    writer.stdout.close()
    append_record(tmp_path, a_record(seed=99))
    records, _ = read_records(tmp_path)
    assert len(records) >= 6
    assert records[-1]["seed"] == 99


def test_a_writable_folder_is_left_as_it_was(tmp_path: Path) -> None:
    assert writable_faults(tmp_path / "a" / "b") == []
    assert list(tmp_path.iterdir()) == []
    path = append_record(tmp_path, a_record())
    before = path.read_bytes()
    assert writable_faults(tmp_path) == []
    assert path.read_bytes() == before


def test_a_folder_that_can_t_be_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for folder in (file, file / "below", Path("/proc/results")):
        (fault,) = writable_faults(folder)
        assert fault.startswith(f"can't write results to '{folder}': ")
    (tmp_path / FILE_NAME).mkdir()
    assert "Is a directory" in writable_faults(tmp_path)[0]
    assert file.read_text() == "mine"


def test_runs_that_start_at_once_under_one_new_folder_leave_each_other_alone(
    tmp_path: Path,
) -> None:
    """Each probes its own folder and takes away what it has made, empty parents included."""

    def probe(number: int) -> list[str]:
        folder = tmp_path / "new" / "deep" / str(number)
        return [fault for _ in range(200) for fault in writable_faults(folder)]

    with ThreadPoolExecutor(4) as pool:
        assert [fault for faults in pool.map(probe, range(4)) for fault in faults] == []


def test_a_folder_that_goes_away_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real = tmp_path / "a" / "b", os.open
    gone = iter([True, True])

    def taken_away(path: Any, *rest: Any) -> int:
        if next(gone, False):
            folder.rmdir()
            folder.parent.rmdir()
        return real(path, *rest)

    monkeypatch.setattr(os, "open", taken_away)
    assert append_record(folder, a_record()).exists()
