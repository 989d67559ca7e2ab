"""`jaxbench doctor` as a person calls it: on this machine, and with something broken."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import jaxbench
from jaxbench.cli import doctor
from jaxbench.cli.main import main
from jaxbench.launch import doctor as launch_doctor
from jaxbench.launch.findings import Finding

ROOT = Path(jaxbench.__file__).resolve().parent.parent
EXAMPLES = re.findall(r"^  jaxbench doctor ?(.*)$", doctor.__doc__ or "", re.MULTILINE)


def doctor_run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `jaxbench doctor` in a folder, with the tests' own settings out of its way."""
    ours = ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS", "JAXBENCH_ENVIRONMENT_SET")
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run(
        [sys.executable, "-m", "jaxbench", "doctor", *words],
        cwd=folder,
        env={**clean, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_this_machine(tmp_path: Path) -> None:
    done = doctor_run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    rows = {line[:16].strip(): line for line in lines}
    for check in ("python", "jax", "backend", "psum", "virtual devices", "data files", "results"):
        assert re.search(r"  ok  ", rows[check]), rows[check]
    assert lines[-1].endswith(" 0 wrong")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_backend_is_told_and_the_rest_is_checked(tmp_path: Path) -> None:
    env = {"XLA_FLAGS": "--xla_nonesuch=1", "JAX_ENABLE_X64": "1"}
    done = doctor_run(tmp_path, "--format=json", "--out=/proc/x", **env)
    assert done.returncode == 1 and done.stderr == ""
    told = json.loads(done.stdout)
    rows = {row["check"]: row for row in told["checks"]}
    wrong = [name for name, row in rows.items() if row["state"] == "wrong"]
    assert wrong == ["backend", "virtual devices", "results"]
    assert told["counts"]["wrong"] == 3 and told["counts"]["warning"] >= 1
    assert "--xla_nonesuch=1" in rows["backend"]["found"] and rows["backend"]["remedy"]
    assert rows["data files"]["state"] == "ok" and rows["JAX_ENABLE_X64"]["state"] == "warning"


@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("warning", 0), ("wrong", 1)])
def test_only_what_is_wrong_fails(
    state: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def examine(out: str) -> list[Finding]:
        asked.append(out)
        return [Finding("a", "ok", "b"), Finding("c", state, "d", "e")]  # type: ignore[arg-type]

    monkeypatch.setattr(launch_doctor, "examine", examine)
    for example in EXAMPLES:
        assert main(["doctor", *shlex.split(example)]) == code
    assert asked == ["results", "/scratch/results"]
    assert state in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--format=xml"], "unknown format 'xml'; known: json, text"),
        (["file"], "unexpected argument 'file'; flags are written --name=value"),
        (["--steps=3"], "doctor has no flag '--steps'"),
        (["--oout=x"], "did you mean '--out'?"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *words]) == 2
    output = capsys.readouterr()
    assert output.out == "" and len(output.err.splitlines()) == 1 and text in output.err
