"""Processes that are really started: they do the same, and end together, soon and with one word."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from jaxbench.measure.record import read_records
from tests.launch import many

pytestmark = pytest.mark.slow  # many processes at once

BARE = ("bare", "--steps=1000", "--silence_s=3")
TINY = ("run", "--flagfile=flags/tiny_dp.flags", "--devices=4", "--payload=none", "--nodecompose")


def test_processes_of_one_command(tmp_path: Path) -> None:
    told = many.local("bare", f"--out={tmp_path / 'out'}", processes=3)
    assert told.codes == (0,), told.output
    assert json.loads((tmp_path / "out").read_text()) == {
        "why": "",
        "steps": [3, 3, 3],
        "partial": False,
    }
    (line,) = told.output.splitlines()  # of process 0 alone
    clocks = json.loads(line)["clocks"]
    assert clocks["offset_s"] == [0.0, 0.0, 0.0]  # one machine, one clock
    assert clocks["start_skew_s"]["steps"] == 3
    assert 0 < clocks["start_skew_s"]["median"]


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("what", many.DEATHS)
def test_the_death_of_one_is_the_end_of_all(what: str, where: int, tmp_path: Path) -> None:
    out = tmp_path / "out"
    told = many.local(*BARE, f"--out={out}", processes=3, fault=f"{what}@{where}")
    assert told.code in (1, 7, 137), told.output
    assert told.seconds is not None and told.seconds < many.DEATHS[what], told.output
    (message,) = told.messages
    assert re.search(rf"stage step \d+: .*process {where} \(", message)
    assert "process 2" not in message
    if where or what == "raised":  # process 0 is there to keep it
        kept = json.loads(out.read_text())
        assert kept["partial"] and kept["why"] in message
        alive = [steps for steps in kept["steps"] if steps is not None]
        assert len(alive) >= 2 and all(3 <= steps <= 4 for steps in alive)


def test_a_stage_without_end_names_who_is_missed(tmp_path: Path) -> None:
    words = (*BARE, "--stage_limits=step=1.5", f"--out={tmp_path / 'out'}")
    told = many.local(*words, processes=3, fault="hung@2")
    assert told.code == 1
    assert told.seconds is not None and told.seconds < 5
    (message,) = told.messages
    assert re.search(r"stage step 3: over its limit of 1.5 s; process 2 \(.*did not get", message)


@pytest.mark.parametrize("where", [0, 1])
def test_sigterm_keeps_what_was_measured(where: int, tmp_path: Path) -> None:
    out = tmp_path / "out"
    told = many.local(*BARE, f"--out={out}", processes=3, fault=f"terminated@{where}")
    assert told.code == 143, told.output
    assert told.messages == ["jaxbench bare: terminated; what is recorded is kept"]
    assert told.seconds is not None and told.seconds < 3
    kept = json.loads(out.read_text())["steps"]
    assert kept[where] >= 3
    assert all(steps >= 2 for steps in kept)  # the others may still be in the third


def test_a_signal_to_who_started_them(tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = many.command("bare", "--steps=100000", "--processes=2", f"--out={out}")
    with subprocess.Popen(
        line, env=many.environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(6)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 143, error
    assert json.loads(out.read_text())["partial"] is True


def test_one_that_is_missing(tmp_path: Path) -> None:
    told = many.explicit(
        "bare", "--stage_limits=start=3", f"--out={tmp_path}", processes=3, changed={1: None}
    )
    assert told.codes == (1, 1)
    (message,) = told.messages
    assert "stage start: process 1 of 3 did not arrive within 3 s; processes 0, 2 (" in message


@pytest.mark.parametrize("missing", [(0,), (0, 1)])
def test_process_0_is_missing(missing: tuple[int, ...]) -> None:
    changed = dict.fromkeys(missing)
    told = many.explicit("bare", "--stage_limits=start=2", processes=4, changed=changed)
    assert set(told.codes) == {1}
    (message,) = told.messages  # of one process of each host
    assert "did not find process 0 within 2 s (127.0.0.1:" in message
    assert "Connection refused" in message


def test_two_with_one_number(tmp_path: Path) -> None:
    told = many.explicit("bare", processes=3, changed={2: ["--process_id=1"]})
    assert told.codes == (2, 2, 2)
    (message,) = told.messages
    assert re.search(r"two processes are process 1: .*pid \d+, and .*pid \d+", message)


def test_another_number_of_processes(tmp_path: Path) -> None:
    told = many.explicit("bare", processes=2, changed={1: ["--num_processes=4"]})
    assert told.codes == (2, 2)
    (message,) = told.messages
    assert "process 1 (" in message and "was told of 4 processes, process 0 of 2" in message


def test_other_flags_on_one_of_them(tmp_path: Path) -> None:
    told = many.explicit("bare", "--seed=1", processes=3, changed={2: ["--seed=5", "--steps=9"]})
    assert told.codes == (2, 2, 2)
    (message,) = told.messages
    assert "not all processes run what process 0 runs: process 2 (" in message
    assert "--seed is 5 instead of 1" in message and "--steps is 9 instead of " in message


def test_a_fault_in_all_flags_is_told_once() -> None:
    told = many.explicit("bare", "--silence_s=0", "--stpes=4", processes=3)
    assert told.codes == (2, 2, 2)
    assert told.messages == ["jaxbench bare: 2 faults:"]
    assert told.output.count("--stpes") == told.output.count("--silence_s is '0'") == 1


def test_a_fault_in_the_flags_of_one() -> None:
    told = many.explicit("bare", processes=3, changed={1: ["--align_steps=maybe"]})
    assert told.codes == (2, 2, 2)
    (message,) = told.messages
    assert re.search(r"process 1 \(.*\): --align_steps is 'maybe'", message)


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        told = many.explicit("bare", "--stage_limits=start=2", processes=3, port=port)
    assert told.codes[0] == 2 and set(told.codes[1:]) == {1}
    assert f"can't listen at 127.0.0.1:{port}: Address already in use" in told.output
    assert len(told.messages) == 2  # process 1 can't know that process 0 has spoken
    assert "somebody else is there" in told.messages[1] or "somebody" in told.messages[0]


def test_a_run_over_two_processes(tmp_path: Path) -> None:
    words = ("--flagfile=flags/tiny_fsdp.flags", "--devices=8", "--steps=2", "--time_scale=0.1")
    told = many.local("run", *words, processes=2, folder=tmp_path)
    assert told.codes == (0,), told.output
    assert "[Gloo]" not in told.output
    (record,), warnings = read_records(tmp_path / "results")
    assert warnings == [] and record["partial"] is False
    assert record["checks"]["values_ok"] is record["checks"]["plan_equals_compiled"] is True
    assert record["environment"]["processes"] == 2
    assert [rank["process"] for rank in record["ranks"]] == [0] * 4 + [1] * 4
    assert [rank["rank"] for rank in record["ranks"]] == list(range(8))
    assert {rank["host"] for rank in record["ranks"]} == {record["environment"]["host"]}
    assert {len(steps) for v in record["samples"].values() for steps in v} == {2}
    assert {len(steps) for steps in record["device_ready_s"]["compute_only"]} == {8}
    assert record["timing"]["clocks"]["start_skew_s"]["steps"] == 10


@pytest.mark.parametrize("fault", ["killed@1", "killed@0", "raised@1"])
def test_a_death_in_a_collective(fault: str, tmp_path: Path) -> None:
    """JAX would abort, wait 100 s for a heartbeat, or 300 s at a barrier."""
    told = many.local(*TINY, "--steps=100000", processes=2, fault=fault, folder=tmp_path)
    assert told.code in (1, 137), told.output
    assert told.seconds is not None and told.seconds < 5
    (message,) = told.messages
    assert f"process {fault[-1]} (" in message
    assert "PollForError" not in told.output and "core dumped" not in told.output
    if fault != "killed@0":
        (record,), _ = read_records(tmp_path / "results")
        assert record["partial"] is True
        assert len(record["samples"]["full"]) >= 3
        assert len(record["samples"]["full"][0]) == (2 if fault == "raised@1" else 1)


def test_profiles_of_all_processes_are_in_one_place(tmp_path: Path) -> None:
    told = many.local(*TINY, "--steps=3", "--profile", processes=2, folder=tmp_path)
    assert told.codes == (0,), told.output
    (record,), _ = read_records(tmp_path / "results")
    (folder,) = (tmp_path / "results" / "profile").iterdir()
    assert folder.name == record["id"]
    assert sorted(p.name for p in folder.iterdir()) == ["process_0", "process_1"]


def test_a_mesh_that_does_not_fit() -> None:
    told = many.local("run", "--flagfile=flags/tiny_dp.flags", "--devices=3", processes=2)
    assert told.codes == (2,)
    assert told.messages == [
        "jaxbench run: 3 devices can't be shared out evenly to 2 processes: --devices or --mesh "
        "must be a multiple of them"
    ]
