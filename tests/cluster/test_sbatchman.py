"""The SbatchMan jobs on a real Slurm: one runs, its numbers are in the tables, one can fail."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.tools import SCRIPTS, tool, with_jaxbench

FOLDER = SCRIPTS / "sbatchman"
ONE = ("--variable=strategy=dp", "--variable=tasks=2")
TABLES = (
    "from pathlib import Path; from sbatchman.parser import parse_jobs_and_generate_sqlite_db as p;"
    f"p(Path({str(FOLDER / 'parser.py')!r}), Path('tables'), csv_files=True)"
)


class Project:
    """A SbatchMan project of a user of the cluster."""

    def __init__(self, cluster: Cluster, folder: Path):
        self.cluster, self.folder = cluster, folder
        self.env = {**with_jaxbench(folder), "XDG_CONFIG_HOME": str(folder / "config")}
        self.call(tool("sbatchman"), "init")
        self.call(tool("sbatchman"), "set-cluster-name", "mycluster")

    def call(self, *command: str) -> str:
        """Run a command in the project and return what it printed."""
        done = self.cluster.run(command, timeout=60, env=self.env, cwd=self.folder)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def launch(self, jobs: Path, *words: str) -> str:
        """Launch the jobs of a file."""
        return self.call(tool("sbatchman"), "launch", f"--file={jobs}", *words)

    def end(self) -> tuple[Path, str, dict[str, str]]:
        """Wait for the one job; return its folder, Slurm's state, and what SbatchMan says of it."""
        (path,) = (self.folder / "SbatchMan" / "experiments").rglob("metadata.yaml")
        (job,) = re.findall(r"^job_id: (\d+)$", path.read_text(), re.MULTILINE)
        state = self.cluster.wait_for(job, 240)
        lines = (line.partition(": ") for line in path.read_text().splitlines())
        return path.parent, state, {key: value for key, _, value in lines}


@pytest.fixture
def project(loopback: Cluster, tmp_path: Path) -> Project:
    return Project(loopback, tmp_path)


def test_there_is_a_job_for_every_combination(project: Project) -> None:
    said = project.launch(FOLDER / "jobs.yaml", "--dry-run")
    found = re.findall(r"Submitted job '(\w+)' with tag '(\w+)'", said)
    strategies = ("dp", "fsdp", "dp_pp", "dp_pp_tp", "dp_pp_ep")
    assert sorted(found) == sorted((f"tasks_{n}", name) for n in (2, 8) for name in strategies)


def test_a_job_runs_and_is_in_the_tables(project: Project) -> None:
    assert "Submitted successfully 1 jobs" in project.launch(FOLDER / "jobs.yaml", *ONE)
    folder, state, told = project.end()
    assert state == "COMPLETED", (folder / "stderr.log").read_text()
    assert (told["status"], told["exitcode"]) == ("COMPLETED", "0")
    (record,) = map(json.loads, (folder / "results" / "runs.jsonl").read_text().splitlines())
    assert record["environment"]["processes"] == 2 and len({*_hosts(record)}) == 2

    project.call(sys.executable, "-c", TABLES)
    (row,) = csv.DictReader((project.folder / "tables" / "runs.csv").open())
    assert (row["config"], row["tag"], row["status"]) == ("tasks_2", "dp", "ok")
    assert row["id"] == record["id"] and row["mesh"] == "data=8"
    assert (row["values_ok"], row["ranks"]) == ("True", "8")
    for name in ("step_s", "throughput", "communication_share"):
        assert float(row[name]) == record["metrics"][name]["value"]


def _hosts(record: dict[str, list[dict[str, str]]]) -> list[str]:
    return [rank["host"] for rank in record["ranks"]]


def test_a_job_without_its_line_has_failed(project: Project) -> None:
    """Whatever the exit code of its command is."""
    text = (FOLDER / "jobs.yaml").read_text()
    wrong = text.replace(" --fom ", " --stesp=3 || true #")
    assert wrong != text
    (project.folder / "jobs.yaml").write_text(wrong)
    (project.folder / "configs.yaml").write_text((FOLDER / "configs.yaml").read_text())
    project.launch(project.folder / "jobs.yaml", *ONE)
    folder, state, told = project.end()
    assert state == "FAILED" and told["status"] == "CHECK_FAIL"
    assert "did you mean '--steps'?" in (folder / "stderr.log").read_text()
