"""Process 0's side of the channel, spoken to by hand: who may come in, what all are answered."""

from __future__ import annotations

import json
import queue
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from jaxbench.launch.arrangement import this_member
from jaxbench.launch.hub import KEEP_S, Hub, answers
from jaxbench.launch.rendezvous import bound
from jaxbench.launch.watch import BAD_INPUT, FAILED, Limits, Verdict
from jaxbench.launch.wire import Broken, Wire
from jaxbench.launch.world import World

KEY = "the job"
STAGES = {"start": 20.0, "step": 20.0}


class Job:
    """A hub of three processes, and the wires of those who have said hello."""

    def __init__(self, **limits: float) -> None:
        self.listener = bound("127.0.0.1", 0, listening=True, shared=False)
        self.port = self.listener.getsockname()[1]
        ours, theirs = socket.socketpair()
        self.ends: queue.Queue[tuple[Verdict, Sequence[Any]]] = queue.Queue()
        self.wires: dict[int, Wire] = {0: Wire(ours)}
        chosen = Limits(limits.pop("silence_s", 20.0), {**STAGES, **limits})
        self.hub = Hub(
            self.listener, theirs, KEY, 3, chosen, lambda v, kept: self.ends.put((v, kept))
        )
        self.hub.start()
        self.hello(self.wires[0], 0)

    def connect(self) -> Wire:
        return Wire(socket.create_connection(("127.0.0.1", self.port)))

    def hello(self, wire: Wire, index: int, key: str = KEY, count: int = 3) -> None:
        member = this_member(World("test", host=f"n{index}"), {}).to_message()
        wire.send("hello", key=key, index=index, count=count, member=member)

    def come(self, *indices: int) -> None:
        for index in indices:
            self.wires[index] = self.connect()
            self.hello(self.wires[index], index)

    def hear(self, index: int, kind: str) -> dict[str, Any]:
        """Return the next message of this kind to a process."""
        return hear(self.wires[index], kind)

    def end(self, limit_s: float = 10.0) -> tuple[Verdict, Sequence[Any]]:
        return self.ends.get(timeout=limit_s)


def hear(wire: Wire, kind: str) -> dict[str, Any]:
    wire.sock.settimeout(10)
    while True:
        while wire.early:
            message = wire.early.pop(0)
            if message["kind"] == kind:
                return message
        wire.early += wire.receive()


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job()
    made.come(1, 2)
    for index in range(3):
        assert made.hear(index, "known") and made.hear(index, "welcome")["order"] == [0, 1, 2]
    yield made
    for wire in made.wires.values():
        wire.close()


def share(job: Job, how: str, values: Sequence[Any], n: int = 1) -> list[Any]:
    """Let each process share a value, the last one first; return what each is answered."""
    for index in reversed(range(3)):
        job.wires[index].send("share", n=n, how=how, value=values[index])
    return [job.hear(index, "shared")["value"] for index in range(3)]


def test_what_is_shared_comes_back(job: Job) -> None:
    assert share(job, "first", [2**62 + 1, 0, 0]) == [2**62 + 1] * 3
    assert share(job, "every", [True, True, False], n=2) == [False] * 3
    assert share(job, "gather", [[0.1], [0.2], [1e-300]], n=3) == [
        [[0.1], [0.2], [1e-300]],
        [[0.2]],
        [[1e-300]],
    ]
    assert share(job, "settle", [None, None, None], n=4) == [None] * 3
    assert share(job, "settle", [None, "a", "a"], n=5) == ["a"] * 3
    assert share(job, "leave", [0, 1, 0], n=6) == [1] * 3
    job.hub.join(10)
    assert not job.hub.is_alive() and job.ends.empty()


def test_a_failure_that_all_have_settled_is_no_end(job: Job) -> None:
    assert share(job, "settle", ["x", "x", "x"]) == ["x"] * 3
    time.sleep(KEEP_S + 0.5)
    assert job.ends.empty()


def test_what_comes_together_with_the_hello_is_heard() -> None:
    job = Job()
    job.come(1)
    wire = job.connect()
    share = b'{"kind": "share", "n": 1, "how": "every", "value": false}\n'
    member = this_member(World("test", host="n2"), {}).to_message()
    hello = {"kind": "hello", "key": KEY, "index": 2, "count": 3, "member": member}
    wire.sock.sendall(json.dumps(hello).encode() + b"\n" + share)
    for index in (0, 1):
        job.wires[index].send("share", n=1, how="every", value=True)
    assert hear(wire, "shared")["value"] is False


def test_those_who_have_shared_other_things_run_other_programs(job: Job) -> None:
    for index, how in enumerate(["first", "first", "every"]):
        job.wires[index].send("share", n=1, how=how, value=1)
    verdict, _ = job.end()
    assert "process 2 asked for 'every' where process 0 asked for 'first'" in verdict.text


def test_one_who_fails_while_the_others_wait_elsewhere(job: Job) -> None:
    job.wires[1].send("share", n=1, how="settle", value="ValueError: no")
    for index in (0, 2):
        job.wires[index].send("share", n=1, how="align", value=None)
    began = time.monotonic()
    verdict, _ = job.end()
    assert time.monotonic() - began < 3
    assert verdict.text == "stage start: process 1 (n1): ValueError: no"


def test_the_end_is_told_and_what_they_have_is_kept(job: Job) -> None:
    job.wires[1].send("signal", code=143, text="terminated")
    for index in (0, 2):
        down = job.hear(index, "down")
        assert (down["code"], down["text"]) == (143, "terminated")
        job.wires[index].send("kept", value={"steps": index})
    job.wires[1].close()
    verdict, kept = job.end()
    assert verdict == Verdict(143, "terminated")
    assert kept == [{"steps": 0}, None, {"steps": 2}]


def test_a_connection_that_ends_is_a_death(job: Job) -> None:
    job.wires[2].send("beat", stage="step", number=4, place=9)
    job.wires[2].close()
    verdict, kept = job.end()
    assert verdict.code == FAILED
    assert "stage step 4: process 2 (n2), pid" in verdict.text


def test_garbage_after_the_hello_is_a_death(job: Job) -> None:
    job.wires[2].sock.sendall(b"no json\n")
    assert "process 2 (n2)" in job.end()[0].text


def test_strangers_are_sent_away_and_harm_nobody() -> None:
    job = Job()
    other = job.connect()
    job.hello(other, 1, key="another job")
    assert hear(other, "stranger")
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"[1]\n",
        b"[" * 60_000 + b"\n",
        b'{"kind": "hello"}\n',
        b"x" * 70_000,
    ):
        sock = socket.create_connection(("127.0.0.1", job.port))
        sock.sendall(garbage)
        sock.settimeout(10)
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass
    job.come(1, 2)
    assert job.hear(1, "welcome") and job.ends.empty()


@pytest.mark.parametrize(
    ("index", "count", "text"),
    [
        (1, 3, "two processes are process 1: n1, pid"),
        (0, 3, "two processes are process 0: n0, pid"),
        (2, 5, "process 2 (n2, pid {}) was told of 5 processes, process 0 of 3"),
    ],
)
def test_who_can_t_be_one_of_them(index: int, count: int, text: str) -> None:
    job = Job()
    job.come(1)
    assert job.hear(1, "known")
    late = job.connect()
    job.hello(late, index, count=count)
    assert hear(late, "down")["code"] == BAD_INPUT  # it ends, too
    verdict, _ = job.end()
    assert text.partition("{}")[0] in verdict.text and verdict.code == BAD_INPUT


def test_those_who_do_not_come_are_named() -> None:
    job = Job(start=0.5)
    job.come(2)
    verdict, _ = job.end()
    assert "process 1 of 3 did not arrive within 0.5 s" in verdict.text


def test_silence_is_heard() -> None:
    job = Job(silence_s=1.0)
    job.come(1, 2)
    try:
        for _ in range(20):
            for index in (0, 1):
                job.wires[index].send("beat", stage="step", number=1, place=2)
            time.sleep(0.2)
    except Broken:
        pass  # the hub has gone
    verdict, _ = job.end()
    assert "nothing heard from process 2 (n2)" in verdict.text and verdict.stuck == (2,)


def test_an_aligned_start_lies_ahead() -> None:
    found = answers("align", [None] * 100)
    assert len(set(found.values())) == 1
    assert 0 < found[0] - time.perf_counter() < 0.01


def test_a_wire_that_is_broken_says_so() -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours)
    theirs.sendall(b'{"kind": "a"}\n{"kind"')
    assert wire.receive() == [{"kind": "a"}]
    theirs.sendall(b': "b"}\n')
    assert wire.receive() == [{"kind": "b"}]
    theirs.close()
    with pytest.raises(Broken):
        wire.receive()
    with pytest.raises(Broken):
        for _ in range(10):
            wire.send("beat")
