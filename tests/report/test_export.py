"""The tidy table of runs, and the table of a sweep."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxbench.errors import RunError
from jaxbench.experiment import Experiment
from jaxbench.measure.metrics import METRICS, metric
from jaxbench.measure.sweeps.grid import experiment_key
from jaxbench.measure.sweeps.results import Result
from jaxbench.report.export import columns, export_faults, row, write_rows
from jaxbench.report.sweep_progress import duration
from jaxbench.report.sweep_table import print_sweep


def a_result(step_s: float | None, repetition: int | None = 1, **flags: Any) -> Result:
    """Return a run that took this long or, for None, one that failed."""
    base = {"strategy": "dp_pp", "model": "tiny", "mesh": "pipeline=2", "devices": 4, "batch": 16}
    texts = {name: str(value) for name, value in {**base, **flags}.items()}
    settings = Experiment.from_flags(texts).to_dict()
    key = experiment_key(settings)
    note = {"exit_code": 0 if step_s else -9, "wall_s": 4.5, "error": None, "time": "noted"}
    if step_s is None:
        note["error"] = "killed by SIGKILL\nlast words, with a comma"
        return Result(key, "failed", settings, None, repetition, note)
    metrics = {
        **{name: metric(name, None) for name in METRICS},
        "step_s": metric("step_s", step_s, ci_low=step_s / 2, ci_high=step_s * 2, n=6),
        "throughput": metric("throughput", 32 / step_s, n=6),
    }
    record = {
        "id": f"id{step_s}",
        "time": "recorded",
        "experiment": settings,
        "metrics": metrics,
        "samples": {"full": [[step_s]] * 6},
    }
    return Result(key, "done", settings, record, repetition, note)


RESULTS = [
    a_result(0.25, inject_delay="1:500,3:20", recompute="true"),
    a_result(0.5, None, mesh="pipeline=1", devices="2"),
    a_result(None),
]


def test_a_row_has_a_column_for_each_flag_and_metric() -> None:
    values = row(RESULTS[0])
    assert list(values) == list(columns())
    assert len(columns()) == len(set(columns()))
    assert values["mesh"] == "data=2,pipeline=2" and values["mesh_pipeline"] == 2
    assert values["axis_order"] == "data,fsdp,pipeline,expert,tensor"
    assert values["inject_delay"] == "1:500,3:20" and values["recompute"] is True
    assert (values["step_s"], values["step_s_ci_low"], values["step_s_n"]) == (0.25, 0.125, 6)
    assert (values["status"], values["record"], values["exit_code"]) == ("done", "id0.25", 0)
    assert values["compute_s"] is None and values["time"] == "recorded"


def test_csv_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write_rows(RESULTS, path)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["status"] for r in rows] == ["done", "done", "failed"]
    assert [r["step_s"] for r in rows] == ["0.25", "0.5", ""]
    assert [r["recompute"] for r in rows] == ["true", "false", "false"]
    assert rows[1]["repetition"] == "" and rows[2]["error"].endswith("\nlast words, with a comma")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("results", [RESULTS, RESULTS[2:], []], ids=["all", "failed", "none"])
def test_parquet_has_the_same_with_types(tmp_path: Path, results: list[Result]) -> None:
    from pyarrow import parquet

    path = tmp_path / "table.parquet"
    write_rows(results, path)
    table = parquet.read_table(path)
    assert table.to_pylist() == [row(result) for result in results]
    kinds = {name: str(table.schema.field(name).type) for name in table.column_names}
    names = {"str": "string", "int": "int64", "float": "double", "bool": "bool"}
    assert kinds == {name: names[kind] for name, kind in columns().items()}


def test_what_can_t_be_written_is_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert export_faults(tmp_path / "a.csv") == export_faults(tmp_path / "a.parquet") == []
    assert "must end in .csv or .parquet" in export_faults(tmp_path / "a.xls")[0]
    assert "there is no folder" in export_faults(tmp_path / "b" / "a.csv")[0]
    (tmp_path / "c.csv").mkdir()
    assert "is a folder" in export_faults(tmp_path / "c.csv")[0]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'jaxbench[parquet]'" in export_faults(tmp_path / "a.parquet")[0]
    with pytest.raises(RunError, match="can't write"):
        write_rows([], tmp_path / "b" / "a.csv")


def test_the_table_of_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    several = [
        a_result(0.1, 1),
        a_result(0.1, 2),
        a_result(0.125, 1, devices=8),
        a_result(0.125, 2, devices=8),
        a_result(None, 3, devices=8),
        a_result(0.3, 1, strategy="dp", mesh="data=4", buckets=7),
    ]
    print_sweep(several, {several[0].key: "devices=4"})
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("dp")]
    assert lines[1].split()[:5] == ["strategy", "model", "mesh", "buckets", "runs"]
    assert table[0].split()[:5] == ["dp_pp", "tiny", "data=2,pipeline=2", "-", "2"]
    assert "100 ms .. 100 ms" in table[0] and "320 samples/s" in table[0]
    assert "40.0 % .. 40.0 %" in table[1] and table[1].endswith(" 4")  # 32 samples each, here
    assert table[2].split()[:5] == ["dp", "tiny", "data=4", "7", "1"]
    assert "run-to-run variance unknown" in "\n".join(lines)
    assert lines[-3].startswith("failed: dp_pp tiny, data=4,pipeline=2")
    assert lines[-3].endswith("#3: exit code -9")
    assert lines[-1] == "  last words, with a comma"


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 s"), (725, "12 min"), (11_100, "3 h 05 min")]
)
def test_a_time_to_wait(seconds: float, text: str) -> None:
    assert duration(seconds) == text
