"""`jaxbench simulate` end to end: the examples of its help, both formats, bad input."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from jaxbench.cli import simulate
from jaxbench.cli.flagfile import override
from jaxbench.cli.main import guarded

EXAMPLES = re.findall(r"^  jaxbench simulate (.*)$", simulate.__doc__ or "", re.MULTILINE)
PAPER = "--flagfile=flags/paper_dp_pp_tp_llama3_70b.flags"


def run(*words: str) -> int:
    return guarded("simulate", simulate, words)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_work(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*shlex.split(example)) == 0
    text = capsys.readouterr().out
    assert "step" in text
    assert "all_reduce" in text


def test_help_has_two_examples() -> None:
    assert len(EXAMPLES) == 2


def test_the_table_of_2400_devices_of_jupiter(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--system=jupiter", PAPER, "--devices=2400") == 0
    text = capsys.readouterr().out
    assert "data=75,pipeline=8,tensor=4" in text
    assert "times of gh200" in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith(("all", "perm"))}
    assert re.search(r"permute +pipeline +300 +8 +46 +134 MB", rows["permute"])
    assert re.search(r"all_reduce +data +32 +75 +1 +4.41 GB", rows["all_reduce"])
    assert re.search(r"all_reduce +tensor +600 +4 +640 +134 MB", text)
    assert "attention forward, mlp forward" in text
    assert "nic" in rows["all_reduce"]


def test_a_device_count_that_does_not_fit_names_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--system=jupiter", PAPER, "--devices=2390") == 2
    told = capsys.readouterr().err
    assert "2390" in told
    assert "use 2368 or 2400" in told
    assert run("--system=jupiter", PAPER, "--devices=2400", "--mesh=pipeline=8,tensor=7") == 2


def test_json_is_one_document_per_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--system=dgx_a100", "--runs=tiny_dp,tiny_fsdp", "--format=json") == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [d["experiment"]["strategy"] for d in documents] == ["dp", "fsdp"]
    assert all(d["metrics"]["step_s"] > 0 for d in documents)


def test_several_runs_share_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--system=laptop", "--flagfile=flags/quickstart.flags") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:8]] == [
        "dp",
        "fsdp",
        "dp_pp",
        "dp_pp_tp",
        "dp_pp_ep",
    ]
    assert sum(line.startswith("system laptop") for line in lines) == 5


def test_a_system_on_the_command_line_brings_its_hardware(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The flagfile names the hardware of another one."""
    assert run("--system=leonardo", PAPER) == 0
    assert "times of a100_64" in capsys.readouterr().out
    assert override({"hardware": "gh200"}, {"system": "leonardo"}) == {"system": "leonardo"}
    both = {"hardware": "a100_64", "system": "leonardo"}
    assert override({"hardware": "gh200"}, both) == both
    assert override({"hardware": "gh200"}, {"system": ""})["hardware"] == "gh200"


def test_all_faults_are_told_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = tmp_path / "fits.json"
    bad.write_text("{}")
    words = ("--format=xml", f"--fits=node:{bad}", "--top=3", "--devices=7")
    assert run("--system=jupiter", PAPER, *words) == 2
    told = capsys.readouterr().err
    for piece in ("unknown format 'xml'", "isn't a file of fits", "--top", "but --devices is 7"):
        assert piece in told
    assert run("--system=jupiter", PAPER, "--placement=x", "--algorithm=y") == 2
    told = capsys.readouterr().err
    assert "unknown placement 'x'" in told
    assert "unknown algorithm 'y'" in told


def test_a_file_of_fits_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fit = {
        "kind": "all_reduce",
        "axis": "data",
        "group_size": 8,
        "groups": 1,
        "dtype": "float32",
        "latency_s": 1e-3,
        "bandwidth_Bps": 1e9,
        "bytes": [10**6, 10**7],
        "time_s": [2e-3, 11e-3],
    }
    path = tmp_path / "fits.json"
    path.write_text(
        json.dumps(
            {
                "format": "jaxbench collective fits",
                "version": 1,
                "environment": {"platform": "cpu"},
                "fits": [fit],
            }
        )
    )
    assert run("--flagfile=flags/tiny_dp.flags", f"--fits={path}", "--format=json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["semantics"]["permute"] == "clique"
    assert {row["bound"] for row in found["collectives"]} == {"measured"}
    # Four groups over two ranks, and a pipeline of four: with its fill, fewer are at it at once.
    tensor = {**fit, "axis": "tensor", "group_size": 2}
    hop = {**fit, "kind": "permute", "axis": "pipeline", "group_size": 4}
    steps = {}
    for name, one_s in (("alike", 2e-3), ("quicker", 1e-3)):
        files = []
        for groups, seconds in ((4, 2e-3), (1, one_s)):
            series = {**tensor, "groups": groups, "bytes": [10**5], "time_s": [seconds]}
            document = {**json.loads(path.read_text()), "fits": [series, hop]}
            files.append(tmp_path / f"{name}{groups}.json")
            files[-1].write_text(json.dumps(document))
        both = f"--fits={files[0]},{files[1]}"
        assert run("--flagfile=flags/tiny_dp_pp_tp.flags", both, "--format=json") == 0
        steps[name] = json.loads(capsys.readouterr().out)["metrics"]["step_s"]
    # Of 7 slots each way, 4 collectives a slot: with 1, 2, 3, 4, 3, 2, 1 stages at it.
    saved = 2 * 4 * sum((4 - stages) / 3 * 1e-3 for stages in (1, 2, 3, 4, 3, 2, 1))
    assert steps["alike"] - steps["quicker"] == pytest.approx(saved, rel=0.02)
    words = ("--system=h100_node", "--flagfile=flags/tiny_dp.flags", f"--fits=node:{path}")
    assert run(*words) == 0
    assert "measured" in capsys.readouterr().out


def test_a_topology_file_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "topology.txt"
    path.write_text("SwitchName=leaf1 Level=0 Nodes=n[1-\n")
    assert run("--system=leonardo", PAPER, f"--topology={path}") == 2
    assert "line 1" in capsys.readouterr().err
    path.write_text("- topology: a\n  tree:\n    switches:\n    - nodes: n[\n      nods: n1\n")
    assert run("--system=leonardo", PAPER, f"--topology={path}") == 2
    told = capsys.readouterr().err
    for line in (
        "line 5: unknown key of a switch",
        "line 4: a switch without",
        "line 4: nodes: 'n['",
    ):
        assert line in told
    assert "Traceback" not in told


def test_a_topology_of_several_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(
        "- topology: a\n  flat: true\n  cluster_default: true\n"
        "- topology: b\n  block:\n    blocks:\n    - {block: b1, nodes: 'n[1-4]'}\n"
    )
    words = ("--system=leonardo", "--flagfile=flags/tiny_dp.flags")
    assert run(*words, f"--topology={path}") == 2
    assert "topology a is flat" in capsys.readouterr().err
    assert run(*words, f"--topology={path}:b") == 0
    assert f"{path}:b, nodes in order: 2 nodes" in capsys.readouterr().out


def test_a_timeline_and_chakra_traces_are_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("google.protobuf")
    timeline, chakra = tmp_path / "timeline.json", tmp_path / "chakra"
    words = ("--system=dgx_a100", "--flagfile=flags/tiny_dp_pp.flags", "--format=json")
    assert run(*words, f"--timeline={timeline}", f"--chakra={chakra}") == 0
    step_s = json.loads(capsys.readouterr().out)["metrics"]["step_s"]
    trace = json.loads(timeline.read_text())
    ends = [e["ts"] + e["dur"] for e in trace["traceEvents"] if e["ph"] == "X"]
    assert max(ends) * 1e-6 == pytest.approx(step_s, rel=1e-3)
    assert len(list(chakra.glob("dp_pp*"))) >= 8  # one a rank

    several = ("--system=dgx_a100", "--runs=tiny_dp,tiny_fsdp", f"--timeline={timeline}")
    assert run(*several, "--chakra=/dev/null") == 2
    told = capsys.readouterr().err
    assert "--timeline takes one experiment" in told
    assert "--chakra" in told


def test_a_function_of_the_user_s_own_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nosuchmodule:step", "--system=h100_node") == 2
    assert "nosuchmodule" in capsys.readouterr().err
