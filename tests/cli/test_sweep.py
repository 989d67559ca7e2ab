"""`jaxbench sweep` as a person calls it: what is asked for, killed half-way, and exported."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jaxbench
from jaxbench.cli import sweep
from jaxbench.cli.main import main
from jaxbench.cli.sweep import Sweep, read
from jaxbench.data import data_names
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.measure.record import read_records
from jaxbench.measure.sweeps.grid import experiment_key
from jaxbench.measure.sweeps.results import NOTES_NAME

ROOT = Path(jaxbench.__file__).resolve().parent.parent
DP = ["--strategy=dp", "--model=tiny", "--payload=none", "--steps=2", "--nodecompose"]
GRIDS = [name for name in data_names("flags", ".flags") if name.startswith("sweep_")]


def faults_of(*words: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(words)
    return list(caught.value.faults)


def labels(*words: str) -> list[str]:
    return [cell.label for cell in read(words).cells]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", GRIDS)
def test_the_grids_that_come_with_jaxbench_are_valid(name: str) -> None:
    asked = read([f"--flagfile=flags/{name}.flags"])
    assert len(asked.cells) > 2 and asked.skipped == []
    assert max(cell.experiment.devices for cell in asked.cells) <= 8


def test_the_examples_of_the_help_are_right() -> None:
    lines = [line.strip() for line in (sweep.__doc__ or "").splitlines()]
    examples = [line for line in lines if line.startswith("jaxbench sweep --")]
    assert len(examples) == 2
    for example in examples:
        assert len(read(shlex.split(example)[2:]).cells) >= 4


def test_a_cell_s_words_make_its_experiment() -> None:
    words = ["--runs=tiny_dp|tiny_dp_pp,tiny_fsdp", "--devices=4|8", "--noreshard_after_forward"]
    cells = read([*words, "--dtype=bfloat16|float32", "--buckets=2"]).cells
    assert len(cells) == 12
    for cell in cells:
        flags = dict(word.removeprefix("--").split("=", 1) for word in cell.words)
        assert experiment_key(Experiment.from_flags(flags).to_dict()) == cell.key
    assert cells[0].label == "tiny_dp devices=4 dtype=bfloat16"


def test_the_command_line_overrides_flagfiles() -> None:
    Path("grid.flags").write_text("--strategy=dp\n--model=tiny\n--devices=2|4\n--batch=8|16\n")
    assert len(labels("--flagfile=grid.flags")) == 4
    assert labels("--flagfile=grid.flags", "--devices=3") == ["batch=8", "batch=16"]
    # A mesh that says all replaces the flagfile's devices.
    asked = read(["--flagfile=grid.flags", "--mesh=data=6", "--batch=8"])
    assert [cell.experiment.devices for cell in asked.cells] == [6] and asked.same == 1


def test_faults_of_cells_are_told_at_once_or_skipped() -> None:
    grid = ["--strategy=dp_pp", "--model=tiny", "--mesh=pipeline=2|pipeline=3", "--devices=2|6"]
    (fault,) = faults_of(*grid)
    assert fault.startswith("cell mesh=pipeline=3 devices=2: --mesh=pipeline=3 takes a multiple")
    asked = read([*grid, "--skip_invalid"])
    assert len(asked.cells) == 3 and asked.skipped == [fault]
    assert faults_of(*grid[:2], "--mesh=pipeline=3", "--devices=2|4", "--skip_invalid")


def test_other_faults() -> None:
    wrong = ["--repetitions=0", "--cell_timeout_s=nan", "--export=a.txt", "--skip_invalid=perhaps"]
    assert len(faults_of(*DP, "--devices=2||4", *wrong, "--format=json")) == 6
    assert "the grid has 1,000,000 cells" in faults_of(
        *DP, "--devices=2", *(f"--{n}={'|'.join(map(str, range(1, 101)))}" for n in
                              ("batch", "buckets", "seed"))
    )[0]  # fmt: skip
    assert "needs a folder with results" in faults_of("--export_only", "--out=nonesuch")[0]


def test_a_folder_without_results(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text("not JSON\n")
    assert main(["sweep", f"--out={tmp_path}", "--export_only"]) == 2
    error = capsys.readouterr().err
    assert "line 1 is not a whole record" in error and "has no results" in error


def test_checking_a_grid_starts_no_jax() -> None:
    code = (
        "import sys; from jaxbench.cli.sweep import read\n"
        "import jaxbench.measure.sweeps.sweep, jaxbench.measure.sweeps.scaling\n"
        "import jaxbench.report.sweep_table\n"
        "import jaxbench.report.sweep_progress\n"
        "assert read(['--flagfile=flags/sweep_quick.flags']).cells\n"
        "print(sorted({'jax', 'numpy', 'rich', 'scipy', 'pyarrow'} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout == "[]\n", done.stderr


def test_sigkill_half_way_and_started_again(tmp_path: Path) -> None:
    """Every cell ends up recorded exactly once, and no child outlives its sweep."""
    command = [sys.executable, "-m", "jaxbench", "sweep", *DP, "--devices=2|3"]
    ours = ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS", "JAXBENCH_ENVIRONMENT_SET")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    env |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    notes, records = (tmp_path / "results" / name for name in (NOTES_NAME, "runs.jsonl"))
    first = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not notes.is_file() and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)  # into the second cell
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL and len(children) == 1
    time.sleep(1)
    assert not Path(f"/proc/{children[0]}").exists() or "(zombie)" in (
        Path(f"/proc/{children[0]}/status").read_text()
    )
    assert len(read_records(notes)[0]) == len(read_records(records)[0]) == 1

    words = ["--export=table.csv", "--cell_timeout_s=100"]
    again = subprocess.run([*command, *words], env=env, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "2 runs, 1 recorded already" in again.stderr
    noted, recorded = read_records(notes)[0], read_records(records)[0]
    assert [note["status"] for note in noted] == ["done", "done"]
    assert [note["record"] for note in noted] == [record["id"] for record in recorded]
    assert sorted(record["experiment"]["devices"] for record in recorded) == [2, 3]
    with open("table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["devices"] for row in rows) == ["2", "3"]
    assert all(float(row["step_s"]) > 0 for row in rows)
    assert "run-to-run variance unknown" in again.stdout

    # The same table, from the folder alone.
    assert main(["sweep", "--export_only", "--out=results", "--export=whole.csv"]) == 0
    assert sorted(Path("whole.csv").read_text().splitlines()) == sorted(
        Path("table.csv").read_text().splitlines()
    )
    assert json.loads(notes.read_text().splitlines()[0])["repetition"] == 1


def test_an_interruption_shows_what_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By SIGTERM, as schedulers send it, while a run is on its way."""

    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("jaxbench.measure.sweeps.child.subprocess.Popen", interrupted)
    assert main(["sweep", *DP, "--devices=2"]) == 143
    output = capsys.readouterr()
    assert "1 runs" in output.err and "terminated; what is recorded is kept" in output.err
    assert "records: results/runs.jsonl" in output.out


def test_what_is_read_has_all_fields() -> None:
    asked = read([*DP, "--devices=2", "--cell_timeout_s=2.5", "--repetitions=3", "--out=x"])
    assert isinstance(asked, Sweep) and not asked.export_only
    assert (asked.repetitions, asked.cell_timeout_s, asked.out) == (3, 2.5, "x")
