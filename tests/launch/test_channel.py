"""A process's end of the channel, spoken to by hand: what it keeps, says and makes of clocks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jaxbench.launch import channel
from jaxbench.launch.arrangement import this_member
from jaxbench.launch.channel import LATEST, PINGS, Channel
from jaxbench.launch.watch import FAILED, TERMINATED, Limits, Verdict
from jaxbench.launch.wire import Wire
from jaxbench.launch.world import World
from tests.launch import many


def one(index: int = 1, **world: Any) -> tuple[Channel, Wire]:
    """Return a process of two and the other end of its wire."""
    where = World("test", index, 2, "key", hosts=("n0",), host=f"n{index}", **world)
    ours, theirs = socket.socketpair()
    made = Channel(where, Wire(ours), this_member(where, {}), Limits(), "jaxbench run")
    return made, Wire(theirs)


class Ended(Exception):
    """In place of the end of the process."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what will be said, and at last the code."""
    heard: list[Any] = []

    def end(code: int) -> None:
        heard.append(code)
        raise Ended

    monkeypatch.setattr(channel, "say", heard.append)
    monkeypatch.setattr(channel, "leave_now", end)
    monkeypatch.setattr(os, "_exit", end)
    return heard


def test_at_the_end_all_is_kept_before_anything_is_said(told: list[Any]) -> None:
    first, _ = one(0)
    with pytest.raises(Ended), first.keeping(lambda: None, lambda parts, why: told.append(parts)):
        first.finish(Verdict(TERMINATED, "terminated"), [1, 2])
    assert told == [[1, 2], "jaxbench run: terminated", TERMINATED]


def test_what_could_not_be_kept_is_said_after_why_it_ends(told: list[Any]) -> None:
    def keep(parts: object, why: str) -> None:
        raise OSError("no space")

    first, _ = one(0)
    with pytest.raises(Ended), first.keeping(lambda: None, keep):
        first.finish(Verdict(TERMINATED, "terminated"), [])
    assert told == [
        "jaxbench run: terminated",
        "jaxbench run: what was measured could not be kept: no space",
        TERMINATED,
    ]


def test_nobody_reads_what_is_said(tmp_path: Path) -> None:
    """As when Ctrl-C ends the other end of a pipeline too."""
    code = (
        "import sys; from pathlib import Path\n"
        "from jaxbench.launch.watch import Verdict\n"
        "from tests.launch.test_channel import one\n"
        "first, _ = one(0)\n"
        "print('what stdout still holds')\n"
        "first._keep = lambda parts, why: Path(sys.argv[1]).write_text(why)\n"
        "first.finish(Verdict(143, 'terminated'), [])"
    )
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "kept")],
            stdout=write,
            stderr=write,
            cwd=many.ROOT,
            env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
            timeout=60,
        )
    finally:
        os.close(write)
    assert done.returncode == 143
    assert (tmp_path / "kept").read_text() == "terminated"


@pytest.mark.parametrize(
    ("arranged", "speaks", "says"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"deputy": 1}, False, True),
        ({"deputy": 2}, True, False),
    ],
)
def test_who_says_that_process_0_is_lost(
    told: list[Any], arranged: dict[str, Any], speaks: bool, says: bool
) -> None:
    """Before all have met, the first of each host does (see `join_world`)."""
    lost, _ = one()
    lost.arranged, lost.speaks = arranged, speaks
    with pytest.raises(Ended):
        lost._lost("its connection has ended")
    assert told[-1] == FAILED
    assert len(told) == 1 + says


def test_clocks_are_compared_all_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while each step's messages say that the process lives."""
    monkeypatch.setattr(channel, "PING_S", 0.1)
    this, first = one()
    this.arranged = {"machine": "another"}
    this._welcome.set()
    this.start()
    pings = 0
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        this._send("beat")
        for message in first.receive():
            if message["kind"] == "ping":
                pings += 1
                first.send("pong", sent=message["sent"], at=message["sent"] + 7.0)
        time.sleep(0.02)
    this._left = True
    assert pings >= PINGS + 5
    assert this._offset_s == pytest.approx(7.0, abs=0.5)
    assert len(this._rounds) == pings or len(this._rounds) == pings - 1


def test_a_clock_that_drifts_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    this, _ = one()
    this.arranged = {"machine": "another"}
    now = 0.0
    monkeypatch.setattr(channel.time, "perf_counter", lambda: now)

    def pong(at: float, round_s: float, offset_s: float) -> None:
        nonlocal now
        now = at + round_s
        this._on_pong({"sent": at, "at": at + round_s / 2 + offset_s})

    pong(0.0, 1e-5, 5.0)  # quicker than any that follows
    pong(1.0, 3e-5, 5.1)
    assert (this._round_s, this._offset_s) == (pytest.approx(1e-5), pytest.approx(5.0))
    for second in range(LATEST):
        pong(10.0 + second, 2e-5 if second == 3 else 4e-5, 6.0 + second)
    assert (this._round_s, this._offset_s) == (pytest.approx(2e-5), pytest.approx(9.0))
