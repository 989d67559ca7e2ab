"""A sweep's bookkeeping, with a runner that pretends, and how child processes end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.measure.record import FIELDS, FILE_NAME, append_record, make_record, read_records
from jaxbench.measure.sweeps import child
from jaxbench.measure.sweeps.child import Ended, run_child
from jaxbench.measure.sweeps.grid import Cell, combinations, distinct, experiment_key, grid_faults
from jaxbench.measure.sweeps.results import NOTES_NAME, read_results
from jaxbench.measure.sweeps.sweep import Task, only_one, run_sweep, sweep_results, tasks_in_order


def a_cell(**flags: Any) -> Cell:
    """Return a cell of a small experiment."""
    given = {"strategy": "dp", "model": "tiny", "devices": "2"}
    texts = {**given, **{name: str(value) for name, value in flags.items()}}
    return Cell(str(flags), texts, Experiment.from_flags(texts))


CELLS = [a_cell(devices=n) for n in (2, 3, 4)]


class Pretender:
    """A runner that records what it is asked to run; `ends` says what happens instead."""

    def __init__(self, *ends: Ended | BaseException | str):
        self.ends = list(ends)
        self.calls: list[str] = []

    def __call__(self, words: Sequence[str], timeout_s: float | None) -> Ended:
        flags = dict(word.removeprefix("--").split("=", 1) for word in words)
        self.calls.append(flags["devices"])
        end = self.ends.pop(0) if self.ends else ""
        if isinstance(end, BaseException):
            raise end
        out = flags.pop("out")
        if not isinstance(end, Ended):
            record(out, words, Experiment.from_flags(flags), partial=end == "partial")
            return Ended(1 if end == "partial" else 0, False, 1.5, "values are wrong")
        return end


def record(out: str, words: Sequence[str], experiment: Experiment, partial: bool = False) -> None:
    """Append a record as `jaxbench run` would."""
    named = ("schema", "id", "time", "partial", "command", "experiment", "metrics")
    empty = {name: None for name in FIELDS if name not in named}
    command = ["jaxbench", "run", *words]
    append_record(
        out,
        make_record(
            **empty,
            partial=partial,
            command=command,
            experiment=experiment.to_dict(),
            metrics={},
        ),
    )


def sweep(out: Path, runner: Pretender, repetitions: int = 1) -> bool:
    return run_sweep(tasks_in_order(CELLS, repetitions, 0), out, timeout_s=9, runner=runner)


def statuses(out: Path) -> dict[tuple[int, int | None], str]:
    """Return {(devices, repetition): status} of a folder's runs."""
    results, _ = sweep_results(CELLS, out)
    return {(r.experiment["devices"], r.repetition): r.status for r in results}


ALL_DONE = {(n, r): "done" for n in (2, 3, 4) for r in (1, 2)}


def test_every_run_is_made_once_and_noted(tmp_path: Path) -> None:
    runner = Pretender()
    assert sweep(tmp_path, runner, repetitions=2)
    assert statuses(tmp_path) == ALL_DONE
    assert sorted(runner.calls) == sorted("223344")
    assert sorted(runner.calls[:3]) == ["2", "3", "4"]  # repetition by repetition
    assert sweep(tmp_path, again := Pretender(), repetitions=2)
    assert again.calls == []
    assert sweep(tmp_path, more := Pretender(), repetitions=3) and len(more.calls) == 3
    notes, _ = read_records(tmp_path / NOTES_NAME)
    ids = [r["id"] for r in read_records(tmp_path)[0]]
    assert [note["record"] for note in notes] == ids
    assert notes[0]["key"] in {cell.key for cell in CELLS} and notes[0]["wall_s"] == 1.5


def test_the_order_is_random_and_the_seed_s() -> None:
    cells = [a_cell(devices=n) for n in range(1, 9)]

    def order(seed: int) -> list[tuple[str, int]]:
        return [(t.cell.key, t.repetition) for t in tasks_in_order(cells, 3, seed)]

    assert order(5) == order(5) != order(6)
    rounds = [[k for k, r in order(5) if r == repetition] for repetition in (1, 2, 3)]
    assert all(sorted(keys) == sorted(c.key for c in cells) for keys in rounds)
    assert rounds[0] != rounds[1] != rounds[2]


@pytest.mark.parametrize(
    ("end", "status", "text"),
    [
        (Ended(-9, False, 1, "last words"), "failed", "killed by SIGKILL\nlast words"),
        (Ended(143, True, 9, "at step 3"), "timeout", "no end after 9 s\nat step 3"),
        (Ended(2, False, 1, "no memory"), "failed", "no memory"),
        (Ended(0, False, 1, ""), "failed", "it ended well but left no whole record"),
        ("partial", "failed", "values are wrong"),
    ],
)
def test_a_failure_costs_one_run_and_is_tried_again(
    tmp_path: Path, end: Ended | str, status: str, text: str
) -> None:
    runner = Pretender("", end)
    assert not sweep(tmp_path, runner)
    assert sorted(statuses(tmp_path).values()) == sorted(["done", "done", status])
    note = read_records(tmp_path / NOTES_NAME)[0][1]
    assert note["error"] == text
    assert note["exit_code"] == (1 if isinstance(end, str) else end.exit_code)
    assert (note["record"] is not None) == (end == "partial")
    assert sweep(tmp_path, again := Pretender())
    assert again.calls == [runner.calls[1]]
    assert set(statuses(tmp_path).values()) == {"done"}


def test_an_interruption_leaves_all_resumable(tmp_path: Path) -> None:
    runner = Pretender("", "", "", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, runner, repetitions=2)
    assert len(statuses(tmp_path)) == 3
    with open(tmp_path / NOTES_NAME, "a") as file:
        file.write('{"schema": 1, "key": "torn')
    assert sweep(tmp_path, again := Pretender(), repetitions=2)
    assert sorted(runner.calls[:3] + again.calls) == sorted("223344")
    assert statuses(tmp_path) == ALL_DONE
    assert "line 4 is not a whole record" in read_results(tmp_path)[1][0]


def test_a_record_that_was_not_noted_is_not_made_again(tmp_path: Path) -> None:
    cell = CELLS[1]
    for partial in (True, False):
        record(str(tmp_path), [*cell.words, "--out=elsewhere"], cell.experiment, partial)
    assert sweep(tmp_path, runner := Pretender())
    assert sorted(runner.calls) == ["2", "4"]
    assert set(statuses(tmp_path).values()) == {"done"} and len(statuses(tmp_path)) == 3


def test_the_runs_of_others_are_not_taken(tmp_path: Path) -> None:
    """Neither the same experiment run by hand, nor a folder's other lines."""
    hand = ["--strategy=dp", f"--out={tmp_path}"]
    record(str(tmp_path), hand, CELLS[0].experiment)
    append_record(tmp_path, {"schema": 1, "experiment": None, "command": None, "id": "x"})
    assert sweep(tmp_path, runner := Pretender())
    assert len(runner.calls) == 3
    results, warnings = read_results(tmp_path)
    assert [r.repetition for r in results] == [1, 1, 1, None] and warnings == []


def test_a_note_whose_record_is_gone_is_not_done(tmp_path: Path) -> None:
    sweep(tmp_path, Pretender())
    (tmp_path / FILE_NAME).unlink()
    assert sweep(tmp_path, again := Pretender())
    assert len(again.calls) == 3


def test_two_sweeps_in_one_folder(tmp_path: Path) -> None:
    with only_one(tmp_path):
        with pytest.raises(InputError, match="another sweep is at work"):
            sweep(tmp_path, Pretender())
    assert sweep(tmp_path, Pretender())


def test_the_key_is_that_of_the_experiment() -> None:
    cell = a_cell()
    assert cell.key == experiment_key(json.loads(json.dumps(cell.experiment.to_dict())))
    assert cell.key == a_cell(buckets=50).key  # the default
    assert cell.key == experiment_key(dict(reversed(cell.experiment.to_dict().items())))
    others = [a_cell(buckets=49), a_cell(seed=1), a_cell(inject_delay="1:5"), *CELLS[1:]]
    assert len({cell.key, *(other.key for other in others)}) == 6


def test_combinations() -> None:
    layers = [{"strategy": "dp|fsdp", "mesh": "x"}, {"mesh": "data=1,fsdp=2|fsdp=4", "steps": "3"}]
    found = list(combinations(layers))
    assert [label for label, _ in found] == [
        "strategy=dp mesh=data=1,fsdp=2",
        "strategy=dp mesh=fsdp=4",
        "strategy=fsdp mesh=data=1,fsdp=2",
        "strategy=fsdp mesh=fsdp=4",
    ]
    assert found[3][1] == [{"strategy": "fsdp"}, {"mesh": "fsdp=4", "steps": "3"}]


def test_an_option_without_effect_makes_no_further_cells() -> None:
    flags = {"strategy": "dp|fsdp", "model": "tiny", "mesh": "data=2", "buckets": "1|2|3"}
    cells = [
        Cell(label, chosen[0], Experiment.from_flags(chosen[0]))
        for label, chosen in combinations([flags])
    ]
    assert [cell.label for cell in distinct(cells)] == [
        *(f"strategy=dp buckets={n}" for n in (1, 2, 3)),
        "strategy=fsdp",
    ]


def test_faults_are_told_once_with_their_cells() -> None:
    wrong = [("a=1", ["f", "g", "h"]), ("a=2", ["f", "g"]), ("a=3", ["f"])]
    assert grid_faults(wrong, 3) == ["f", "g (in 2 of 3 cells, first a=1)", "cell a=1: h"]


def executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Make the Python that is started a script."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(child.sys, "executable", str(path))


def test_a_child_tells_how_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path, monkeypatch, 'seq 50 >&2; echo "$*" >&2; kill -SEGV $$')
    ended = run_child(["--steps=2"], None)
    assert (ended.exit_code, ended.timed_out) == (-11, False)
    lines = ended.error.splitlines()
    assert lines[-2:] == ["50", "-m jaxbench run --steps=2"] and len(lines) == child.TAIL_LINES


def test_a_child_that_does_not_end_is_killed_with_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "STOP_S", 0.3)
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 60 & echo $$ $! > {pids}; wait; wait; sleep 60"
    executable(tmp_path, monkeypatch, script)
    ended = run_child([], 0.5)
    assert ended.timed_out and ended.exit_code == -9 and ended.seconds < 30
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def gone(pid: int) -> bool:
    """Tell whether a process ends within some seconds (a zombie has)."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    os.kill(pid, 9)
    return False


def test_the_progress_of_tasks_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, Task]] = []
    run_sweep(
        tasks_in_order(CELLS[:2], 1, 0),
        tmp_path,
        runner=Pretender("", Ended(1, False, 1, "")),
        before=lambda task: told.append(("before", task)),
        after=lambda task, note: told.append((note["status"], task)),
    )
    assert [what for what, _ in told] == ["before", "done", "before", "failed"]
    assert told[0][1] == told[1][1] != told[2][1]
