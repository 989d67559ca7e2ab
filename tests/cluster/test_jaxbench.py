"""jaxbench on several hosts under a real Slurm: right results, and a known end of every failure."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jaxbench.topology.slurm_topology import read_leaves
from tests.cluster.cluster import Cluster, processes_of
from tests.cluster.three_steps import run_tries

ROOT = Path(__file__).parents[2]
FAULTY = str(ROOT / "tests" / "launch" / "faulty.py")
JAXBENCH = (sys.executable, "-m", "jaxbench")
ENV = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
STRATEGIES = ("dp", "fsdp", "dp_pp", "dp_pp_tp", "dp_pp_ep")
SLOW = pytest.mark.slow
QUICK = (
    *("run", "--strategy=dp", "--model=tiny", "--dtype=float32", "--payload=none"),
    *("--buckets=2", "--nodecompose", "--size_scale=0.1"),
)

# Many processes at once, whose ends are timed.
pytestmark = [pytest.mark.timed, pytest.mark.flaky(reruns=1)]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("runs", "strategies"),
    [
        ("--runs=tiny_dp_pp", ["dp_pp"]),
        pytest.param("--flagfile=flags/quickstart.flags", [*STRATEGIES], marks=SLOW),
    ],
    ids=["dp_pp", "quickstart"],
)
def test_eight_processes_on_four_hosts(
    runs: str, strategies: list[str], namespaces: Cluster, tmp_path: Path
) -> None:
    command = ["srun", "-N4", "--ntasks-per-node=2", *JAXBENCH, "run"]
    flags = [runs, "--devices=8", "--steps=3", "--nodecompose"]
    done = namespaces.run(
        [*command, *flags, f"--out={tmp_path}"], timeout=300, env=ENV, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = records(tmp_path)
    assert [r["experiment"]["strategy"] for r in found] == strategies
    leaf_of = {node: leaf for leaf, nodes in namespaces.layout.leaves.items() for node in nodes}
    for record in found:
        assert record["checks"]["values_ok"] and record["checks"]["plan_equals_compiled"]
        assert not record["partial"] and record["environment"]["processes"] == 8
        ranks = record["ranks"]
        assert [r["rank"] for r in ranks] == list(range(8))
        assert sorted(r["host"] for r in ranks) == sorted(["n1", "n2", "n3", "n4"] * 2)
        for rank in ranks:
            leaf = leaf_of[rank["host"]]
            assert (rank["switches"], rank["group"]) == (["core", leaf[:2], leaf], leaf[:2])
        assert all(len(step) == 8 for step in record["samples"]["full"])
    # One process prints, and only what a person wants to read.
    assert done.stdout.count("records: ") == 1 and "Gloo" not in done.stdout


def test_the_topology_that_slurm_prints_is_read(namespaces: Cluster) -> None:
    _, read = read_leaves(namespaces.ask("scontrol", "show", "topology"))
    assert {leaf.name: leaf.nodes for leaf in read} == namespaces.layout.leaves
    assert all(leaf.group == leaf.name[:2] for leaf in read)


@SLOW
def test_process_0_of_a_heterogeneous_job_is_found(namespaces: Cluster, tmp_path: Path) -> None:
    """It is on n2, though n1 is the first node of the step."""
    words = [*JAXBENCH, *QUICK, "--devices=3", "--steps=2", f"--out={tmp_path}"]
    first, second = ["-n1", "--nodelist=n2", *words], ["-n2", "--nodelist=n1", *words]
    done = namespaces.run(["srun", *first, ":", *second], timeout=120, env=ENV)
    assert done.returncode == 0, done.stderr
    (record,) = records(tmp_path)
    assert record["environment"]["processes"] == 3 and record["checks"]["values_ok"]


@pytest.mark.parametrize(("shared", "tries"), [(False, 2), (True, 3)], ids=["disjoint", "shared"])
def test_three_steps_at_once(shared: bool, tries: int, namespaces: Cluster, tmp_path: Path) -> None:
    assert run_tries(namespaces, shared, tries, tmp_path / "tries") == []


# How jobs end. Times are from the fault to the end of srun, without --kill-on-bad-exit: nobody but
# jaxbench ends the others.


class Ended(NamedTuple):
    """A step that a fault ended: its exit code, what it printed, seconds since the fault."""

    code: int
    errors: str
    seconds: float


def struck(cluster: Cluster, fault: str, folder: Path, *srun: str) -> Ended:
    """Run three processes on three hosts, in one of which a fault strikes."""
    stamp, cores = folder / "stamp", folder / "cores"
    cores.mkdir()
    command = ["srun", "-N3", "--ntasks-per-node=1", *srun, sys.executable, FAULTY, fault, *QUICK]
    flags = ("--devices=3", "--steps=100000", f"--out={folder}")
    env = {**ENV, "FAULTY_STAMP": str(stamp)}
    process = cluster.start([*command, *flags], env=env, cwd=cores)
    try:
        errors = process.communicate(timeout=180)[1]
        ended = time.time()
        left = [text for _, text in processes_of(cluster.folder) if FAULTY in text]
    finally:
        cluster.cancel()
    assert stamp.exists(), errors
    assert not left and not list(cores.iterdir()), "processes or core dumps are left"
    return Ended(process.returncode, errors, ended - float(stamp.read_text()))


@pytest.mark.parametrize(
    ("fault", "within_s", "told"),
    [
        ("killed@1", 15, r"stage step \d+: process 1 \(.*n2"),
        pytest.param("killed@0", 15, r"stage step \d+: process 0 \(.*n1", marks=SLOW),
        pytest.param("exited@2", 15, r"stage step \d+: process 2 \(.*n3", marks=SLOW),
        ("raised@1", 6, r"stage step \d+: process 1 \(n2\): .*a fault on purpose"),
        pytest.param("stopped@2", 25, r"stage step \d+: .*process 2 \(n3", marks=SLOW),
        pytest.param("killed@1:compile", 15, r"stage compile: process 1 \(.*n2", marks=SLOW),
    ],
)
def test_a_fault_ends_the_job_in_time(
    fault: str, within_s: float, told: str, namespaces: Cluster, tmp_path: Path
) -> None:
    # Who is stopped can't end itself, nor can others on other hosts: that is for Slurm.
    slurm = ("--kill-on-bad-exit",) if fault.startswith("stopped") else ()
    ended = struck(namespaces, fault, tmp_path, *slurm)
    assert ended.code != 0
    ours = [line for line in ended.errors.splitlines() if line.startswith("jaxbench run: ")]
    assert len(ours) == 1 and re.search(told, ours[0]), ended.errors
    assert "Traceback" not in ended.errors
    assert ended.seconds < within_s


def only(condition: str) -> list[str]:
    """Return the command of a task that is jaxbench only where a shell's condition holds."""
    return ["sh", "-c", f'{condition} && exec "$@"; exit 0', "sh", *JAXBENCH, *QUICK]


def meet(
    cluster: Cluster, command: list[str], folder: Path, *flags: str
) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run three processes that can't meet; return how it ended, and the seconds it took."""
    start = time.monotonic()
    words = ["--devices=3", f"--out={folder}", *flags]
    done = cluster.run(
        ["srun", "-N3", "--ntasks-per-node=1", *command, *words], timeout=120, env=ENV
    )
    return done, time.monotonic() - start


def test_a_process_that_never_comes(namespaces: Cluster, tmp_path: Path) -> None:
    command = only('[ "$SLURM_PROCID" != 1 ]')
    done, seconds = meet(namespaces, command, tmp_path, "--stage_limits=start=6")
    assert done.returncode == 1, done.stderr
    assert "jaxbench run: stage start: process 1 of 3 did not arrive within 6 s" in done.stderr
    assert seconds < 30 and not (tmp_path / "runs.jsonl").exists()


def test_two_processes_with_one_number(namespaces: Cluster, tmp_path: Path) -> None:
    command = ["sh", "-c", '[ "$SLURM_PROCID" = 2 ] && export SLURM_PROCID=1; exec "$@"', "sh"]
    done, seconds = meet(namespaces, [*command, *JAXBENCH, *QUICK], tmp_path)
    assert done.returncode == 2, done.stderr
    assert "jaxbench run: two processes are process 1: n" in done.stderr
    assert seconds < 30


def test_other_flags_on_one_process(namespaces: Cluster, tmp_path: Path) -> None:
    shell = 'k=2; [ "$SLURM_PROCID" = 1 ] && k=3; exec "$@" --steps=$k'
    words = ["sh", "-c", shell, "sh", *JAXBENCH, *QUICK, "--devices=3", f"--out={tmp_path}"]
    done = namespaces.run(["srun", "-N3", "--ntasks-per-node=1", *words], timeout=120, env=ENV)
    assert done.returncode == 2, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("jaxbench run: ")]
    assert len(told) == 1 and "process 1 (n2): --steps is 3 instead of 2" in told[0], done.stderr


@SLOW
def test_a_port_that_others_use(namespaces: Cluster, tmp_path: Path) -> None:
    """Named by the user, it is an error; one that was chosen here gives way to another."""
    listen = "import socket, time; s = socket.create_server(('', 23456)); print(1, flush=True)"
    busy = namespaces.start(
        [sys.executable, "-c", f"{listen}; time.sleep(600)"], on=namespaces.layout.names[0]
    )
    assert busy.stdout and busy.stdout.readline() == "1\n"
    try:
        nodes = "--nodelist=n[1-3]"
        done, seconds = meet(
            namespaces,
            [nodes, *JAXBENCH, *QUICK],
            tmp_path,
            *("--coordinator_port=23456", "--stage_limits=start=8"),
        )
    finally:
        busy.kill()
    assert done.returncode in (1, 2) and "23456" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and seconds < 40


# jaxbench that leaves a file when its fourth timed step begins.
STAMPED = """
import pathlib, sys
from jaxbench.cli.main import main
from jaxbench.launch import channel
usual = channel.Channel.stage
def stage(self, name, number=None):
    usual(self, name, number)
    if number == 4:
        pathlib.Path("stamp").touch()
channel.Channel.stage = stage
raise SystemExit(main())
"""


def test_scancel_keeps_what_was_measured(namespaces: Cluster, tmp_path: Path) -> None:
    """As at a time limit or a preemption, tasks get SIGTERM, and SIGKILL 3 s later here."""
    command = ["srun", "-N2", "--ntasks-per-node=1", sys.executable, "-c", STAMPED, *QUICK]
    flags = ["--steps=1000000", "--devices=2", f"--out={tmp_path}"]
    process = namespaces.start([*command, *flags], env=ENV, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not (tmp_path / "stamp").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    start = time.monotonic()
    namespaces.cancel()
    assert time.monotonic() - start < 15
    errors = process.communicate(timeout=20)[1]
    (record,) = records(tmp_path)
    assert record["partial"] and len(record["samples"]["full"]) >= 3, errors
    assert any("terminated" in warning for warning in record["warnings"])


def test_mpirun_in_an_allocation(namespaces: Cluster, tmp_path: Path) -> None:
    """Its processes are of one host here; mpirun's variables come before Slurm's."""
    if not shutil.which("mpirun"):
        missing = "no mpirun: apt-get install --no-install-recommends openmpi-bin"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    command = ["salloc", "-N1", "-n2", "mpirun", "--allow-run-as-root", "-n", "2"]
    words = [*JAXBENCH, *QUICK, "--devices=2", "--steps=2", f"--out={tmp_path}"]
    done = namespaces.run([*command, *words], timeout=120, env=ENV)
    assert done.returncode == 0, done.stderr
    (record,) = records(tmp_path)
    assert record["environment"]["processes"] == 2 and record["checks"]["values_ok"]
