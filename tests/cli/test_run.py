"""`jaxbench run` end to end, as a process of its own in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jaxbench
from jaxbench.cli import run
from jaxbench.cli.command import read_command
from jaxbench.measure.record import FIELDS, read_records

EXAMPLES = re.findall(r"^  jaxbench run (.*)$", run.__doc__ or "", re.MULTILINE)
ROOT = Path(jaxbench.__file__).resolve().parent.parent
QUICK = ["--steps=2", "--time_scale=0.1"]


def command_of(*words: str) -> list[str]:
    """Return the command line of a run."""
    return [sys.executable, "-m", "jaxbench", "run", *words]


def environment_of(**env: str) -> dict[str, str]:
    """Return an environment of CPU devices, none of the tests' own settings in it."""
    ours = ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS", "JAXBENCH_ENVIRONMENT_SET")
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    return {**clean, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), **env}


def jaxbench_run(
    folder: Path, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `jaxbench run` in a folder."""
    return subprocess.run(
        command_of(*words),
        cwd=folder,
        env=environment_of(**(env or {})),
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_quickstart(tmp_path: Path) -> None:
    """All that it says but the decomposition, which `scripts/quickstart` itself is run for."""
    done = jaxbench_run(tmp_path, "--flagfile=flags/quickstart.flags", "--nodecompose", *QUICK)
    assert done.returncode == 0, done.stderr
    records, warnings = read_records(tmp_path / "results")
    assert warnings == []
    strategies = ["dp", "fsdp", "dp_pp", "dp_pp_tp", "dp_pp_ep"]
    assert [record["experiment"]["strategy"] for record in records] == strategies
    for record in records:
        assert list(record) == list(FIELDS)
        assert record["partial"] is False
        assert record["checks"]["plan_equals_compiled"] is True
        assert record["checks"]["values_ok"] is True
        assert record["command"][:2] == ["jaxbench", "run"]
        assert record["environment"]["devices"] == 8
        assert record["environment"]["variables"]["MALLOC_ARENA_MAX"] == "1"
        assert record["scales"] == {"time_scale": 0.1, "size_scale": 1.0}
        assert len(record["samples"]["full"]) == 2
        assert record["metrics"]["step_s"]["value"] > 0
    assert "FOM" not in done.stdout
    table = [line for line in done.stdout.splitlines() if line.startswith("dp ")]
    assert re.search(r"^dp +tiny +data=8 .* yes +yes +time x 0\.1$", table[0])


def test_lines_for_other_programs(tmp_path: Path) -> None:
    """One per record, whole, the last thing that is printed; and only if they are asked for."""
    runs = ["--runs=tiny_dp,tiny_fsdp", "--steps=6", "--time_scale=0.1"]
    done = jaxbench_run(tmp_path, *runs, "--fom", env={"COLUMNS": "20"})
    assert done.returncode == 0, done.stderr
    records, _ = read_records(tmp_path / "results")
    lines = done.stdout.splitlines()[-2:]
    for line, record, strategy in zip(lines, records, ("dp", "fsdp"), strict=True):
        assert line.startswith(f"FOM status=ok strategy={strategy} model=tiny mesh=")
        for name in ("step_s", "throughput", "communication_share"):
            assert f" {name}={json.dumps(record['metrics'][name]['value'])} " in line
        assert f" n=6 step_s={record['metrics']['step_s']['value']} " in line
        assert line.endswith(f" id={record['id']}")
    assert done.stdout.count("FOM") == 2


def test_the_examples_of_the_help_are_right(tmp_path: Path) -> None:
    for example in EXAMPLES:
        assert read_command("run", shlex.split(example), run.FLAGS).faults == []
    assert jaxbench_run(tmp_path, *shlex.split(EXAMPLES[1])).returncode == 0


def test_faults_leave_nothing_behind(tmp_path: Path) -> None:
    words = ["--flagfile=flags/tiny_dp_pp.flags", "--devices=7", "--dtype=int8", "--stesp=1"]
    done = jaxbench_run(tmp_path, *words, "--fom=perhaps")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == "jaxbench run: 4 faults:"
    assert len(done.stderr.splitlines()) == 5
    assert "--fom is 'perhaps'; it must be true or false" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "env", "text"),
    [
        ([], {"JAX_NUM_CPU_DEVICES": "3"}, "the runs need 8 devices and JAX has 3 (cpu)"),
        (["--expect_devices=16"], {}, "--expect_devices is 16 and JAX has 8 (cpu)"),
        (["--model=llama3_405b"], {}, "TB of memory, this host has free"),
    ],
)
def test_what_this_machine_hasn_t_is_bad_input(
    tmp_path: Path, words: list[str], env: dict[str, str], text: str
) -> None:
    done = jaxbench_run(tmp_path, "--flagfile=flags/tiny_dp.flags", *words, env=env)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_user_s_environment_wins(tmp_path: Path) -> None:
    own = {"MALLOC_ARENA_MAX": "4", "XLA_FLAGS": "--xla_cpu_collective_timeout_seconds=77"}
    done = jaxbench_run(tmp_path, "--flagfile=flags/tiny_dp.flags", *QUICK, env=own)
    assert done.returncode == 0, done.stderr
    (record,), _ = read_records(tmp_path / "results")
    variables = record["environment"]["variables"]
    assert variables["MALLOC_ARENA_MAX"] == "4"
    assert variables["XLA_FLAGS"].endswith(own["XLA_FLAGS"])
    assert variables["XLA_FLAGS"].count("xla_cpu_collective_timeout_seconds") == 1


def test_sigterm_keeps_what_is_recorded(tmp_path: Path) -> None:
    for name, steps in (("tiny_dp", 2), ("tiny_fsdp", 100_000)):
        lines = f"--flagfile=flags/{name}.flags\n--steps={steps}\n--time_scale=0.1\n"
        (tmp_path / f"{name}.flags").write_text(lines)
    process = subprocess.Popen(
        command_of("--runs=tiny_dp.flags,tiny_fsdp.flags"),
        cwd=tmp_path,
        env=environment_of(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    results = tmp_path / "results" / "runs.jsonl"
    deadline = time.monotonic() + 120
    while not results.is_file() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 143, error
    assert "terminated; what is recorded is kept" in error
    records, warnings = read_records(results)
    assert warnings == []
    assert records[0]["partial"] is False
    assert [record["partial"] for record in records[1:]] == [True] * len(records[1:])
    assert json.loads(results.read_text().splitlines()[0])["experiment"]["strategy"] == "dp"
