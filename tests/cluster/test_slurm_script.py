"""Job scripts given to a real Slurm: all are accepted, and the one for CPUs runs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxbench.cli import slurm
from jaxbench.cli.main import guarded
from jaxbench.launch.slurm_script import job_script
from jaxbench.launch.slurm_systems import GENERIC, SLURM_SYSTEMS
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import require
from tests.cluster.layout import Layout

ROOT = Path(__file__).parents[2]
PARTITIONS = tuple(row.partition for row in SLURM_SYSTEMS.values())
PLUGIN = ("--uenv", "--view")  # of Slurm on Alps alone
QUICK = (
    "--strategy=dp --model=tiny --dtype=float32 --payload=none --steps=3 --nodecompose "
    "--size_scale=0.1"
)


@pytest.fixture(scope="module")
def any_machine() -> Iterator[Cluster]:
    """A cluster that has every partition, and nodes as large as those of any system here."""
    require()
    with Cluster(Layout(nodes=4, cpus=288, gpus=8, partitions=PARTITIONS)) as cluster:
        yield cluster


@pytest.mark.parametrize("array", [False, True], ids=["job", "array"])
@pytest.mark.parametrize("name", [*SLURM_SYSTEMS, *GENERIC])
def test_sbatch_takes_it(name: str, array: bool, any_machine: Cluster) -> None:
    per_node = (SLURM_SYSTEMS | GENERIC)[name].devices_per_node
    words = f"--system={name} --strategy=dp --model=tiny --devices={4 * per_node} --account=me"
    job = slurm.read([*shlex.split(words), *(["--buckets=1|2", "--array"] if array else [])]).job
    lines = [
        line
        for line in job_script(job).splitlines()
        if not line.removeprefix("#SBATCH ").startswith(PLUGIN)
    ]
    sbatch = ["sbatch", "--test-only"]
    done = any_machine.run(sbatch, timeout=20, stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    cpus = 4 * per_node * job.system.cpus_per_task
    assert "to start at" in done.stderr and "on nodes 127.0.0.[1-4]" in done.stderr
    exclusive = any(line.text == "--exclusive" for line in job.system.directives)
    assert f"using {4 * 288 if exclusive else cpus} processors" in done.stderr


def test_sbatch_s_no_is_told(any_machine: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail."""
    wrong = ["--partition=none", "--cpus-per-task=289"]
    for option in wrong:
        done = any_machine.run(["sbatch", "--test-only", option, "--wrap=true"], timeout=20)
        assert done.returncode != 0


@pytest.fixture
def submitting(loopback: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The loopback cluster, for a user with jaxbench on the PATH who is in an empty folder."""
    command = tmp_path / "bin" / "jaxbench"
    command.parent.mkdir()
    python = shlex.quote(sys.executable)
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {python} -m jaxbench "$@"\n')
    command.chmod(0o755)
    for name, value in loopback.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{command.parent}:{loopback.env['PATH']}")
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    return loopback


def submit(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Submit by `jaxbench slurm`, and return the job's id."""
    words = f"--system=generic_cpu {QUICK} --cpus_per_task=1 --submit {words}"
    assert guarded("slurm", slurm, shlex.split(words)) == 0, capsys.readouterr().err  # type: ignore[arg-type]
    return capsys.readouterr().out.split()[-1]


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.timed
def test_a_job_runs(submitting: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    job = submit("--devices=4 --buckets=2", capsys)
    state = submitting.wait_for(job, 240)
    said = Path(f"jaxbench-{job}.out").read_text()
    assert state == "COMPLETED", said
    (record,) = records(Path("results/runs.jsonl"))
    assert record["checks"]["values_ok"] and not record["partial"]  # type: ignore[index]
    assert record["environment"]["processes"] == 4  # type: ignore[index]


@pytest.mark.timed
def test_a_sweep_runs_as_an_array(submitting: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    job = submit("--devices=2 --buckets='1|2' --array", capsys)
    for task in ("0", "1"):
        state = submitting.wait_for(f"{job}_{task}", 240)
        assert state == "COMPLETED", Path(f"jaxbench-{job}_{task}.out").read_text()
    made = [records(Path(f"results/{task}/runs.jsonl")) for task in ("0", "1")]
    assert [len(found) for found in made] == [1, 1]
    assert {found[0]["experiment"]["buckets"] for found in made} == {1, 2}  # type: ignore[index]


@pytest.mark.timed
def test_a_sweep_runs_in_one_job(submitting: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """The second run is refused by jaxbench: that costs it only, and the job says so."""
    job = submit("--devices='2|4' --buckets=2 --expect_devices=2", capsys)
    assert submitting.wait_for(job, 240) == "FAILED"
    said = Path(f"jaxbench-{job}.out").read_text()
    assert said.endswith("1 of 2 runs failed\n") and "--expect_devices is 2" in said
    (record,) = records(Path("results/runs.jsonl"))
    assert record["environment"]["devices"] == 2  # type: ignore[index]
