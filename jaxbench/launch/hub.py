"""Process 0's side of the control channel: who is there, what they agree on, when it is over.

One thread serves all connections. Process 0 itself is connected like the others, by a socket pair,
so that there is one way of doing things. The channel is there before JAX is: JAX aborts a process
that waits in vain for another one, and names neither.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxbench.launch.arrangement import Member, arrange
from jaxbench.launch.watch import (
    BAD_INPUT,
    FAILED,
    Failure,
    Limits,
    State,
    Verdict,
    failed,
    judge,
    missing,
    named,
)
from jaxbench.launch.wire import MOST_BYTES, Broken, Wire

TICK_S = 0.05
BEAT_S = 1.0
KEEP_S = 1.5  # for the samples of the others, when a job ends early
STRANGER_S = 10.0  # for a connection to say who it is

# Seconds until aligned processes start, for the word to reach all of them: fixed, and for each.
ALIGN_S, ALIGN_EACH_S = 1e-3, 20e-6

End = Callable[[Verdict, Sequence[Any]], None]


class Hub(threading.Thread):
    """Serves `count` processes with this `key` until all have left, or until the job is ended.

    Then `end` is called with the verdict and what each process has kept (None if unknown); it is
    not expected to return.
    """

    def __init__(
        self,
        listener: socket.socket,
        own: socket.socket,
        key: str,
        count: int,
        limits: Limits,
        end: End,
    ):
        super().__init__(name="jaxbench hub", daemon=True)
        self.key, self.count, self.limits, self.end = key, count, limits, end
        self.states: dict[int, State] = {}
        self.members: dict[int, Member] = {}
        self.began = time.monotonic()
        self._wires: dict[int, Wire] = {}
        self._strangers: dict[Wire, float] = {}
        self._shares: dict[int, dict[int, dict[str, Any]]] = {}
        self._kept: dict[int, Any] = {}
        self._welcomed = False
        self._verdict: Verdict | None = None
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._greet(own)

    def run(self) -> None:
        """Serve."""
        beaten = self.began
        while not (self.states and all(s.left for s in self.states.values())):
            for event, _ in self._selector.select(TICK_S):
                event.data()
            now = time.monotonic()
            if now - beaten >= BEAT_S:
                beaten = now
                self._tell_all("beat")
            self._drop_strangers(now)
            if verdict := self._verdict or self._judge(now):
                self._finish(verdict)
                return
        self._listener.close()

    def _judge(self, now: float) -> Verdict | None:
        limit = self.limits.stages["start"]
        if not self._welcomed and now - self.began > limit:
            return missing(self.states, self.count, limit)
        return judge(self.states, now, self.limits)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        self._greet(sock)

    def _greet(self, sock: socket.socket) -> None:
        wire = Wire(sock)
        self._strangers[wire] = time.monotonic()
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._meet(wire))

    def _meet(self, wire: Wire) -> None:
        """Hear from a connection who it is."""
        try:
            if messages := wire.receive():
                index = self._hello(wire, messages[0])
                if index is not None:
                    self._handle(index, messages[1:])
        except (Broken, KeyError, TypeError, ValueError):
            self._forget(wire)

    def _hello(self, wire: Wire, message: Mapping[str, Any]) -> int | None:
        """Let a process in, and return its number; None if it can't be one of them."""
        if message["kind"] != "hello" or message["key"] != self.key:
            wire.send("stranger")
            raise Broken("it belongs to another job")
        index, count = int(message["index"]), int(message["count"])
        member = Member.from_message(message["member"])
        where = f"{member.place.host}, pid {member.pid}"
        if count != self.count:
            self._verdict = Verdict(
                BAD_INPUT,
                f"process {index} ({where}) was told of {count} processes, process 0 of "
                f"{self.count}: give all the same --num_processes",
            )
        elif index in self.members:
            first = self.members[index]
            self._verdict = Verdict(
                BAD_INPUT,
                f"two processes are process {index}: {first.place.host}, pid {first.pid}, and "
                f"{where}; give each its own --process_id",
            )
        wire.send("known")
        del self._strangers[wire]
        wire.limit = MOST_BYTES
        now = time.monotonic()
        if self._verdict:
            self._wires[-1 - len(self._wires)] = wire  # to hear the verdict
            return None
        self._wires[index] = wire
        self.members[index] = member
        self.states[index] = State(member.place.host, member.pid, heard=now, since=now)
        self._selector.modify(wire.sock, selectors.EVENT_READ, lambda: self._hear(index))
        if len(self.states) == self.count:
            self._welcome()
        return index

    def _welcome(self) -> None:
        """Tell each, now that all are there, how they are arranged."""
        self._welcomed = True
        arranged = arrange(self.members)
        for index, wire in self._wires.items():
            self._tell(index, wire, "welcome", **arranged[index])
        now = time.monotonic()
        for state in self.states.values():
            state.since = now

    def _hear(self, index: int) -> None:
        """Hear from a process of the job."""
        state, wire = self.states[index], self._wires[index]
        try:
            messages = wire.receive()
        except Broken:
            state.ended = time.monotonic()
            self._selector.unregister(wire.sock)
            return
        self._handle(index, messages)

    def _handle(self, index: int, messages: Sequence[Mapping[str, Any]]) -> None:
        state, now = self.states[index], time.monotonic()
        state.heard = now
        for message in messages:
            if "stage" in message and message["place"] != state.place:
                state.stage, state.number = message["stage"], message["number"]
                state.place, state.since = message["place"], now
            handle = getattr(self, f"_on_{message['kind']}", None)
            if handle:
                handle(index, message)

    def _on_ping(self, index: int, message: Mapping[str, Any]) -> None:
        wire = self._wires[index]
        self._tell(index, wire, "pong", sent=message["sent"], at=time.perf_counter())

    def _on_failed(self, index: int, message: Mapping[str, Any]) -> None:
        failure = Failure(int(message["code"]), str(message["text"]), time.monotonic())
        self.states[index].failure = failure

    def _on_signal(self, index: int, message: Mapping[str, Any]) -> None:
        if self._verdict is None:
            self._verdict = Verdict(int(message["code"]), str(message["text"]))

    def _on_kept(self, index: int, message: Mapping[str, Any]) -> None:
        self._kept[index] = message["value"]

    def _on_share(self, index: int, message: Mapping[str, Any]) -> None:
        number, state = int(message["n"]), self.states[index]
        told = self._shares.setdefault(number, {})
        told[index] = dict(message)
        state.waiting = True
        if message["how"] == "settle" and message["value"] is not None:
            state.failure = Failure(FAILED, str(message["value"]), time.monotonic())
        if len(told) < self.count:
            return
        del self._shares[number]
        hows = {k: str(m["how"]) for k, m in told.items()}
        if len(set(hows.values())) > 1 and any(s.failure for s in self.states.values()):
            self._verdict = failed(self.states)  # the others are waiting elsewhere: not all failed
            return
        if len(set(hows.values())) > 1:
            odd = [k for k, how in hows.items() if how != hows[0]]
            self._verdict = Verdict(
                FAILED,
                f"stage {state.where()}: {named(odd)} asked for '{hows[odd[0]]}' where process 0 "
                f"asked for '{hows[0]}': they don't run the same program",
            )
            return
        now = time.monotonic()
        for each in self.states.values():
            each.waiting, each.since = False, now
            if hows[0] == "settle":
                each.failure = None
        leaving = hows[0] == "leave"
        for each in self.states.values():
            each.left = leaving
        answered = answers(hows[0], [told[k]["value"] for k in range(self.count)])
        for k in reversed(range(self.count)):  # process 0 last: it may take this thread with it
            self._tell(k, self._wires[k], "shared", n=number, value=answered[k], last=leaving)

    def _finish(self, verdict: Verdict) -> None:
        """Tell all that it is over, and let process 0 keep what they have."""
        self._kept = {}
        stuck = [[self.members[k].pids, self.members[k].pid] for k in verdict.stuck]
        self._tell_all("down", code=verdict.code, text=verdict.text, stuck=stuck)
        alive = {k for k, s in self.states.items() if s.ended is None}
        deadline = time.monotonic() + KEEP_S
        while alive - set(verdict.stuck) - set(self._kept) and time.monotonic() < deadline:
            for event, _ in self._selector.select(TICK_S):
                event.data()
            alive = {k for k in alive if self.states[k].ended is None}
        self.end(verdict, [self._kept.get(k) for k in range(self.count)])

    def _tell_all(self, kind: str, **fields: Any) -> None:
        for index, wire in list(self._wires.items()):
            self._tell(index, wire, kind, **fields)

    def _tell(self, index: int, wire: Wire, kind: str, **fields: Any) -> None:
        try:
            wire.send(kind, **fields)
        except Broken:
            state = self.states.get(index)
            if state and state.ended is None:
                state.ended = time.monotonic()

    def _forget(self, wire: Wire) -> None:
        self._strangers.pop(wire, None)
        self._selector.unregister(wire.sock)
        wire.close()

    def _drop_strangers(self, now: float) -> None:
        for wire in [w for w, since in self._strangers.items() if now - since > STRANGER_S]:
            self._forget(wire)


def answers(how: str, values: Sequence[Any]) -> dict[int, Any]:
    """Return the answer for each process to values that all have shared."""
    count = range(len(values))
    if how == "first":
        return dict.fromkeys(count, values[0])
    if how == "every":
        return dict.fromkeys(count, all(values))
    if how == "gather":
        return {0: list(values), **{k: [values[k]] for k in count if k}}
    if how == "settle":
        told = [text for text in values if text is not None]
        return dict.fromkeys(count, "; ".join(dict.fromkeys(told)) or None)
    if how == "align":
        return dict.fromkeys(count, time.perf_counter() + ALIGN_S + ALIGN_EACH_S * len(values))
    if how == "leave":
        return dict.fromkeys(count, max(values))
    raise ValueError(how)
