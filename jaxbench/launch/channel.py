"""A process's end of the control channel: `Processes` of a run with many.

A thread answers process 0 and keeps telling it that this process lives, also while the main thread
waits for devices. If the job is over, or process 0 is gone, that thread ends the process: nothing
else can, with the main thread in a collective whose other ranks will never come.
"""

from __future__ import annotations

import os
import selectors
import signal
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from jaxbench.launch.arrangement import Member
from jaxbench.launch.hub import BEAT_S, KEEP_S
from jaxbench.launch.local_processes import is_stopped
from jaxbench.launch.watch import (
    FAILED,
    GRACE_S,
    INTERRUPTED,
    TERMINATED,
    Limits,
    Verdict,
)
from jaxbench.launch.wire import MOST_BYTES, Broken, Wire
from jaxbench.launch.world import World
from jaxbench.measure.processes import Place

Value = TypeVar("Value")

SIGNALS = {
    signal.SIGTERM: (TERMINATED, "terminated; what is recorded is kept"),
    signal.SIGINT: (INTERRUPTED, "interrupted; what is recorded is kept"),
}
PINGS = 10  # round trips by which the clock is compared at the start
PING_S = 1.0  # between those that follow, since clocks drift
LATEST = 30  # round trips of which the quickest tells the clock
SPIN_S = 2e-4  # before an aligned start


class Channel(threading.Thread):
    """This process among the others; see `Processes` for what each call means."""

    def __init__(self, world: World, wire: Wire, member: Member, limits: Limits, who: str):
        super().__init__(name="jaxbench channel", daemon=True)
        self.index, self.count = world.index, world.count
        self.who, self.limits, self.world = who, limits, world
        self.places: Sequence[Place] = (member.place,)
        self.order: Sequence[int] = range(world.count)
        self.host_cores, self.host_processes = len(member.cores), 1
        self.arranged: dict[str, Any] = {}
        self.aligned = True
        self.speaks = world.index == 1  # if process 0 is lost before it says who is to
        self.start_s: dict[str, float] = {}
        self._wire, self._member = wire, member
        self._stage, self._number, self._place, self._told = "start", None, 0, 0.0
        self._shares = 0
        self._answers: dict[int, Any] = {}
        self._answered = threading.Condition()
        self._welcome = threading.Event()
        self._mine: Callable[[], Any] | None = None
        self._keep: Callable[[Sequence[Any], str], None] | None = None
        self._left = False
        self._offset_s, self._round_s = 0.0, float("inf")
        self._rounds: deque[tuple[float, float]] = deque(maxlen=LATEST)  # each with its offset
        self._starts: list[float] = []
        self._heard = time.monotonic()
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        wire.limit = MOST_BYTES

    # What the main thread calls

    def arrive(self) -> dict[str, Any]:
        """Wait until all are there; return how they are arranged."""
        self.start()
        for number in SIGNALS:  # the thread hears them, since the main thread may never wake up
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._welcome.wait()
        self.order = self.arranged["order"]
        self.host_cores = self.arranged["host_cores"]
        self.host_processes = self.arranged["host_processes"]
        self.places = [
            Place(p["host"], tuple(p["switches"]), p["group"]) for p in self.arranged["places"]
        ]
        return self.arranged

    def stage(self, name: str, number: int | None = None) -> None:
        """Enter a stage; steps are told now and then only."""
        changed = name != self._stage
        self._stage, self._number, self._place = name, number, self._place + 1
        if changed or time.monotonic() - self._told > BEAT_S / 2:
            self._send("beat")

    def from_first(self, value: Value) -> Value:
        """Return process 0's value."""
        return self._share("first", value if self.index == 0 else None)

    def everywhere(self, ok: bool) -> bool:
        """Return whether it holds on every process."""
        return bool(self._share("every", bool(ok)))

    def to_first(self, value: Value) -> list[Value]:
        """Return the values of all on process 0, its own alone elsewhere."""
        return self._share("gather", value)

    def settle(self, failure: str | None) -> str | None:
        """Return why a run failed on any process."""
        return self._share("settle", failure)

    def align(self) -> None:
        """Return at about the same moment on every process, and note when."""
        if self.aligned:
            start = self._share("align", None) - self._offset_s
            if (left := start - time.perf_counter()) > SPIN_S:
                time.sleep(left - SPIN_S)
            while time.perf_counter() < start:
                pass
        self._starts.append(time.perf_counter() + self._offset_s)

    def clocks(self) -> dict[str, Any] | None:
        """Return, on process 0, the clocks and the skew of the steps since the last call."""
        starts, self._starts = self._starts, []
        error_s = self._round_s / 2
        told = self.to_first([self._offset_s, error_s, *starts])
        if self.index:
            return None
        steps = list(zip(*(row[2:] for row in told), strict=False))
        skews = [max(step) - min(step) for step in steps]
        return {
            "aligned": self.aligned,
            "offset_s": [row[0] for row in told],
            "error_s": [row[1] for row in told],
            "start_skew_s": {
                "median": statistics.median(skews) if skews else None,
                "max": max(skews, default=None),
                "steps": len(skews),
            },
        }

    @contextmanager
    def keeping(
        self, mine: Callable[[], Any], keep: Callable[[Sequence[Any], str], None]
    ) -> Iterator[None]:
        """Within it, process 0 keeps what all have, if the job is ended."""
        self._mine, self._keep = mine, keep
        try:
            yield
        finally:
            self._mine = self._keep = None

    def fail(self, code: int, text: str) -> None:
        """Tell why this process can't go on, and wait for the end."""
        if self._left:
            return
        self._send("failed", code=code, text=text)
        time.sleep(self.limits.stages["start"] + GRACE_S + 60)
        leave_now(FAILED)  # the thread should have done so long ago

    def leave(self, code: int) -> int:
        """Wait until all are done; return the worst of all codes."""
        self.stage("end")
        code = self._share("leave", code)
        signal.set_wakeup_fd(-1)
        return code

    def _share(self, how: str, value: Any) -> Any:
        self._shares += 1
        number = self._shares
        self._send("share", n=number, how=how, value=value)
        with self._answered:
            while number not in self._answers:
                self._answered.wait()
            return self._answers.pop(number)

    def _send(self, kind: str, **fields: Any) -> None:
        """Send with the stage; a broken wire is for the thread to find."""
        self._told = time.monotonic()
        where = {"stage": self._stage, "number": self._number, "place": self._place}
        try:
            self._wire.send(kind, **where, **fields)
        except Broken:
            pass

    # What the thread does

    def run(self) -> None:
        """Answer process 0 until this process leaves."""
        selector = selectors.DefaultSelector()
        selector.register(self._wire.sock, selectors.EVENT_READ)
        selector.register(self._woken, selectors.EVENT_READ)
        pings, pinged = PINGS, 0.0
        self._handle(self._wire.early)
        while not self._left:
            events = {event.fileobj for event, _ in selector.select(BEAT_S / 4)}
            if self._woken in events:
                self._on_wakeup()
            if self._wire.sock in events:
                self._listen()
            now = time.monotonic()
            if now - self._told >= BEAT_S:
                self._send("beat")
            if self._welcome.is_set() and (pings or now - pinged >= PING_S):
                pings, pinged = max(0, pings - 1), now
                self._send("ping", sent=time.perf_counter())
            if not self._left and now - self._heard > self.limits.silence_s + BEAT_S:
                self._lost(f"nothing heard from it for {self.limits.silence_s:g} s")

    def _listen(self) -> None:
        try:
            messages = self._wire.receive()
        except Broken:
            if not self._left:
                self._lost("its connection has ended")
            return
        self._heard = time.monotonic()
        self._handle(messages)

    def _handle(self, messages: Sequence[dict[str, Any]]) -> None:
        for message in messages:
            handle = getattr(self, f"_on_{message['kind']}", None)
            if handle:
                handle(message)

    def _on_welcome(self, message: dict[str, Any]) -> None:
        self.arranged = message
        self._welcome.set()

    def _on_shared(self, message: Mapping[str, Any]) -> None:
        self._left = message["last"]  # from now on process 0 may go
        with self._answered:
            self._answers[message["n"]] = message["value"]
            self._answered.notify_all()

    def _on_pong(self, message: Mapping[str, Any]) -> None:
        """Compare clocks: of the latest round trips the quickest tells best (Cristian 1989)."""
        now, sent = time.perf_counter(), message["sent"]
        if self.arranged["machine"] == self._member.machine:
            self._round_s = 0.0  # one clock
            return
        self._rounds.append((now - sent, message["at"] - (now + sent) / 2))
        self._round_s, self._offset_s = min(self._rounds)

    def _on_down(self, message: Mapping[str, Any]) -> None:
        value = None
        try:
            value = self._mine() if self._mine else None
        except Exception:
            pass  # what there is was being changed
        self._send("kept", value=value)
        for pids, pid in message["stuck"]:
            if pids == self._member.pids:
                kill_stopped(pid)
        if self.index:
            time.sleep(0.05)
            leave_now(int(message["code"]))
        # On process 0 the hub keeps what there is, says why, and ends the process.

    def _on_wakeup(self) -> None:
        for number in os.read(self._woken, 64):
            if number in SIGNALS:
                code, text = SIGNALS[signal.Signals(number)]
                self._send("signal", code=code, text=text)

    def _lost(self, why: str) -> None:
        """End, since process 0 is gone; one of the others says so (see `arrange`)."""
        if self.index == self.arranged["deputy"] if self.arranged else self.speaks:
            stage = self._stage if self._number is None else f"{self._stage} {self._number}"
            host = self.world.hosts[0]
            say(f"{self.who}: stage {stage}: process 0 (on {host}) is gone: {why}")
        os._exit(FAILED)  # at once: JAX's client has noticed too, and is about to abort

    def finish(self, verdict: Verdict, kept: Sequence[Any]) -> None:
        """End the job on process 0: keep what was measured, and say why."""
        fault = None
        try:
            if (keep := self._keep) is not None:
                keep(kept, verdict.text)
        except Exception as error:
            fault = error
        finally:
            say(f"{self.who}: {verdict.text}")
            if fault is not None:
                say(f"{self.who}: what was measured could not be kept: {fault}")
            leave_now(verdict.code)


def kill_stopped(pid: int) -> None:
    """Kill a process of this job that is stopped: its launcher would wait for it for ever."""
    if is_stopped(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def say(text: str) -> None:
    """Print a message in one piece, whatever the main thread is doing to stderr.

    Nobody may read it any more: Ctrl-C also ends the `tee` of a pipeline.
    """
    with suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))


def leave_now(code: int) -> None:
    """End this process, without JAX's barrier of 300 s and without a core dump."""

    def flush() -> None:
        with suppress(OSError, ValueError):  # nobody reads it any more
            sys.stdout.flush()

    try:
        flusher = threading.Thread(target=flush, daemon=True)
        flusher.start()
        flusher.join(KEEP_S / 3)  # the main thread may hold its lock for ever
    finally:
        os._exit(code)
