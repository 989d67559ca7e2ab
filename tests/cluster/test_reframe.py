"""The ReFrame check on a real Slurm: it passes, reports what was measured, and can fail."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.tools import SCRIPTS, tool, with_jaxbench

CHECK = SCRIPTS / "reframe" / "jaxbench_check.py"
QUICK = "--steps=6,--time_scale=0.1"
STRATEGIES = {"dp", "fsdp", "dp_pp", "dp_pp_tp", "dp_pp_ep"}
NUMBERS = {"step_s": "s", "throughput": "samples/s", "communication_share": "1"}


def site(scheduler: str, launcher: str, access: list[str]) -> str:
    """Return the settings of a site, as ReFrame reads them: all JSON is YAML."""
    partition = {
        **{"name": "all", "scheduler": scheduler, "launcher": launcher},
        **{"access": access, "environs": ["builtin"]},
    }
    system = {"name": "test", "hostnames": [".*"], "partitions": [partition]}
    general = {"topology_prefix": "topology"}  # not in the user's home
    return json.dumps({"systems": [system], "general": [general]})


# Slurm keeps no accounts here, so that ReFrame's `slurm`, which asks sacct, would wait for ever.
SLURM = site("squeue", "srun", ["--partition=all"])
LOCAL = site("local", "local", [])


def command(folder: Path, settings: str, check: Path, *words: str) -> list[str]:
    """Return ReFrame's command, which writes nothing outside the folder."""
    (folder / "site.yaml").write_text(settings)
    return [
        *(tool("reframe"), f"--config-file={folder}/site.yaml", f"--checkpath={check}", "--run"),
        *(f"--prefix={folder}", f"--report-file={folder}/report.json", "--exec-policy=serial"),
        *words,
    ]


def cases(folder: Path) -> list[dict[str, Any]]:
    """Return the cases of ReFrame's report."""
    report = json.loads((folder / "report.json").read_text())
    return [case for run in report["runs"] for case in run["testcases"]]


def on_slurm(
    cluster: Cluster, folder: Path, *words: str, check: Path = CHECK
) -> subprocess.CompletedProcess[str]:
    """Run the check on two nodes of the cluster."""
    tasks = ("--setvar=num_tasks=2", "--setvar=num_tasks_per_node=1")
    return cluster.run(
        command(folder, SLURM, check, *tasks, *words),
        timeout=600,
        env={**with_jaxbench(folder), "TMPDIR": str(folder)},
        cwd=folder,
    )


def test_every_strategy_passes(loopback: Cluster, tmp_path: Path) -> None:
    done = on_slurm(loopback, tmp_path, f"--setvar=flags={QUICK}")
    assert done.returncode == 0, done.stdout
    found = cases(tmp_path)
    assert {case["strategy"] for case in found} == STRATEGIES
    for case in found:
        assert case["result"] == "pass"
        (path,) = Path(case["outputdir"]).rglob("runs.jsonl")
        (record,) = [json.loads(line) for line in path.read_text().splitlines()]
        assert record["experiment"]["strategy"] == case["strategy"]
        assert record["environment"]["processes"] == 2
        assert len({rank["host"] for rank in record["ranks"]}) == 2
        for name, unit in NUMBERS.items():
            value, *_, reported_unit, verdict = case["perfvalues"][f"test:all:{name}"]
            assert value == record["metrics"][name]["value"] and verdict == "pass"
            assert reported_unit == unit
            assert f"P: {name}: {value} {unit}\n" in done.stdout


def test_a_run_that_fails(loopback: Cluster, tmp_path: Path) -> None:
    dp = "--name=JaxbenchCheck%strategy=dp$"
    done = on_slurm(loopback, tmp_path, dp, "--setvar=flags=--stesp=6")
    assert done.returncode != 0
    (case,) = cases(tmp_path)
    assert (case["result"], case["fail_phase"]) == ("fail", "sanity")
    (errors,) = Path(case["stagedir"]).glob("*.err")
    assert "did you mean '--steps'?" in errors.read_text()


def test_a_site_s_reference_that_is_missed(loopback: Cluster, tmp_path: Path) -> None:
    references = {"dp": {"test:all": {"step_s": (1e-6, None, 0.05, "s")}}}
    usual = CHECK.read_text()
    filled = usual.replace("Reference]]] = {}\n", f"Reference]]] = {references}\n")
    assert filled != usual
    check = tmp_path / "site_check.py"
    check.write_text(filled)
    dp = "--name=JaxbenchCheck%strategy=dp$"
    done = on_slurm(loopback, tmp_path, dp, f"--setvar=flags={QUICK}", check=check)
    assert done.returncode != 0
    (case,) = cases(tmp_path)
    assert (case["result"], case["fail_phase"]) == ("fail", "performance")
    assert "failed to meet reference(s): step_s=" in case["fail_reason"]


LINE = (
    "FOM status=ok strategy=dp model=tiny mesh=data=8 ranks=8 processes=2 time_scale=1.0 "
    "size_scale=1.0 values_ok=true plan_equals_compiled=true n=6 step_s=0.5 step_low_s=null "
    "step_high_s=null throughput=256.0 exposed_s=0.1 communication_share=null id=1"
)


@pytest.mark.parametrize(
    ("printed", "result"),
    [
        (LINE, "pass"),
        (f"{LINE}\n{LINE}", "fail"),  # two worlds
        (LINE.replace("processes=2", "processes=1"), "fail"),
        (LINE.replace("status=ok", "status=partial"), "fail"),
        (LINE.replace("strategy=dp", "strategy=dp_pp"), "fail"),
        (LINE.replace("values_ok=true", "values_ok=null"), "fail"),
        (LINE.replace("compiled=true", "compiled=false"), "fail"),
        (f"no {LINE}", "fail"),
    ],
)
def test_what_passes(printed: str, result: str, tmp_path: Path) -> None:
    """Without Slurm and jaxbench: only what is read of the output."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\n")
    program.chmod(0o755)
    variables = (f"--setvar=executable={program}", "--setvar=num_tasks=2")
    words = command(tmp_path, LOCAL, CHECK, "--name=JaxbenchCheck%strategy=dp$", *variables)
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) == (result == "pass"), done.stdout
    (case,) = cases(tmp_path)
    assert case["result"] == result
    if result == "pass":  # what is null isn't reported
        assert {*case["perfvalues"]} == {"test:all:step_s", "test:all:throughput"}
