"""Keeping runs: the record is written once, whole or as far as it came, whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jaxbench.errors import RunError
from jaxbench.experiment import Experiment
from jaxbench.measure import execute, processes
from jaxbench.measure.execute import Keeper
from jaxbench.measure.processes import Alone
from jaxbench.measure.record import read_records
from jaxbench.measure.run import Run

MINE: dict[str, Any] = {"samples": {"full": [[0.1]]}, "ready": {}}


class First(Alone):
    """Process 0 of two, whose other one has shared the same."""

    count = 2

    def __init__(self, gather: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.gather = gather

    def to_first(self, value: Any) -> list[Any]:
        self.gather()
        return [value, value]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is recorded: the parts and the failure."""
    found: list[Any] = []

    def record_of(run: Any, command: Sequence[str], parts: Any = None) -> Any:
        return parts, run.failure

    monkeypatch.setattr(execute, "record_of", record_of)
    monkeypatch.setattr(execute, "measured_so_far", lambda run: MINE)
    monkeypatch.setattr(execute, "append_record", lambda out, record: found.append(record))
    return found


def keeper(partial: bool) -> Keeper:
    return Keeper(cast(Run, SimpleNamespace(partial=partial, failure=None)), "out", [])


def test_a_whole_record_has_the_samples_of_all(
    monkeypatch: pytest.MonkeyPatch, written: list[Any]
) -> None:
    monkeypatch.setattr(processes, "_here", [First()])
    made = keeper(partial=False)
    assert made.record() == ([MINE, MINE], None)
    made.keep([None, None], "terminated")  # too late to matter
    assert written == [([MINE, MINE], None)]


def test_a_record_of_a_run_that_failed_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, written: list[Any]
) -> None:
    monkeypatch.setattr(processes, "_here", [First(pytest.fail)])
    assert keeper(partial=True).record() == (None, None)


def test_a_job_that_ends_while_samples_are_gathered_keeps_them(
    monkeypatch: pytest.MonkeyPatch, written: list[Any]
) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def gather() -> None:
        waiting.set()
        assert go_on.wait(30)

    monkeypatch.setattr(processes, "_here", [First(gather)])
    made = keeper(partial=False)
    main = threading.Thread(target=made.record, daemon=True)
    main.start()
    assert waiting.wait(30)
    made.keep([MINE, None], "process 1 has died")
    assert written == [([MINE, None], "process 1 has died")]
    go_on.set()


def test_runs_have_the_same_id_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The id names the folder of the profiles of all processes."""

    class Second(Alone):
        def from_first(self, value: Any) -> Any:
            return "process 0's"

    def fail(*_: object) -> None:
        raise RunError("enough")

    monkeypatch.setattr(execute, "_execute", fail)
    monkeypatch.setattr(processes, "_here", [Second()])
    made = Experiment(strategy="dp", model="tiny", mesh=(("data", 2),), devices=2)
    execute.run_experiments([made], out=str(tmp_path), command=[])
    (record,), _ = read_records(tmp_path)
    assert record["id"] == "process 0's"
