"""Waiting for processes on this host: the worst code, and nobody left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time

import pytest

from jaxbench.errors import InputError
from jaxbench.launch import local_processes
from jaxbench.launch.channel import kill_stopped
from jaxbench.launch.join import read_limits
from jaxbench.launch.local_processes import is_stopped, show, wait_for


def started(*codes: str) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen([sys.executable, "-c", f"import os, time; {c}"]) for c in codes]


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        (["os._exit(0)", "os._exit(0)"], 0),
        (["os._exit(2)", "os._exit(2)"], 2),
        (["os._exit(1)", "os.kill(os.getpid(), 9)"], 137),
        (["os._exit(0)", "os._exit(143)"], 143),
    ],
)
def test_the_worst_code(codes: list[str], worst: int) -> None:
    assert wait_for(started(*codes)) == worst


@pytest.mark.parametrize("other", ["time.sleep(600)", "os.kill(os.getpid(), 19)"])
def test_who_does_not_end_with_the_others_is_killed(
    monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setattr(local_processes, "LINGER_S", 1.5)
    began = time.monotonic()
    assert wait_for(started("os._exit(3)", other)) == 3  # and not 137, which was us
    assert time.monotonic() - began < 20


def test_a_stopped_process_is_killed_and_no_other() -> None:
    running, stopped = started("time.sleep(600)", "time.sleep(600)")
    stopped.send_signal(signal.SIGSTOP)
    while not is_stopped(stopped.pid):
        time.sleep(0.01)
    assert not is_stopped(running.pid) and not is_stopped(2**30)
    for process in (running, stopped):
        kill_stopped(process.pid)
    assert stopped.wait(10) == -signal.SIGKILL
    assert running.poll() is None
    running.kill()
    running.wait()


def test_what_they_said_last(capsys: pytest.CaptureFixture[str]) -> None:
    file = tempfile.TemporaryFile()
    file.write(b"\n".join(b"line %d" % k for k in range(50)) + b"\n[Gloo] Rank 1 is connected\n\n")
    show([None, file])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "[1] line 30" and lines[-1] == "[1] line 49" and len(lines) == 20


def test_limits() -> None:
    limits = read_limits({"silence_s": "4", "stage_limits": "step=7.5, compile=3600"})
    assert limits.silence_s == 4
    assert (limits.stages["step"], limits.stages["compile"]) == (7.5, 3600)
    assert limits.stages["start"] == read_limits({}).stages["start"] == 60
    assert read_limits({}).silence_s == 10


def test_limits_that_make_no_sense_are_all_told() -> None:
    with pytest.raises(InputError) as caught:
        read_limits({"silence_s": "1", "stage_limits": "stepp=3,step=soon,step=-1,compile"})
    assert len(caught.value.faults) == 5
    assert "with the stages start, handshake, backend, compile" in caught.value.faults[1]
