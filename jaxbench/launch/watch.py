"""When the watchdog ends a job, and what it says then: pure decisions over what is known of each.

Nothing here touches a clock or a socket; times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jaxbench.measure.processes import STAGES

SETTLE_S = 0.3  # between the first death and the verdict: others may have died with it
GRACE_S = 1.0  # for the others to fail in the same way, before one's failure is the job's,
INPUT_GRACE_S = 5.0  # and for bad input, which all have most often, but not at the same moment

QUIET_S = 3.0  # of silence: the process can't be counted on to hear that it is over

BAD_INPUT, FAILED, INTERRUPTED, TERMINATED = 2, 1, 130, 143


@dataclass(frozen=True)
class Limits:
    """Seconds: of silence until a process counts as dead, and of each stage."""

    silence_s: float = 10.0
    stages: Mapping[str, float] = field(default_factory=lambda: dict(STAGES))


class Failure(NamedTuple):
    """What a process says why it can't go on."""

    code: int
    text: str
    at: float


@dataclass
class State:
    """What process 0 knows of a process."""

    host: str
    pid: int
    heard: float  # when something came from it
    stage: str = "start"
    number: int | None = None  # of a step
    place: int = 0  # how many stages and steps it has entered
    since: float = 0.0  # when it did so last
    waiting: bool = False  # for the others, in an exchange
    ended: float | None = None  # when its connection did
    failure: Failure | None = None
    left: bool = False  # has done all, and said so

    def where(self) -> str:
        """Return the stage in words."""
        return self.stage if self.number is None else f"{self.stage} {self.number}"


class Verdict(NamedTuple):
    """The end of a job: the code to exit with, the one message, and who can't end by himself."""

    code: int
    text: str
    stuck: tuple[int, ...] = ()


def judge(states: Mapping[int, State], now: float, limits: Limits) -> Verdict | None:
    """Return why the job is to end now; None if it isn't."""
    gone = {k: s for k, s in states.items() if s.ended is not None and not s.left}
    failures = [s.failure for s in states.values() if s.failure is not None]
    grace_s = GRACE_S if any(f.code != BAD_INPUT for f in failures) else INPUT_GRACE_S
    if gone and now - min(s.ended or now for s in gone.values()) >= SETTLE_S:
        return Verdict(FAILED, _died(states, gone))
    if failures and (len(failures) == len(states) or now - min(f.at for f in failures) >= grace_s):
        return failed(states)
    silent = {k: s for k, s in states.items() if now - s.heard > limits.silence_s and not s.left}
    if silent and not gone:
        return Verdict(FAILED, _silent(states, silent, limits.silence_s), tuple(silent))
    late = {
        k: s
        for k, s in states.items()
        if not (s.waiting or s.left) and now - s.since > limits.stages.get(s.stage, float("inf"))
    }
    if not late or gone:
        return None
    quiet = tuple(k for k, s in states.items() if now - s.heard > QUIET_S)
    return Verdict(FAILED, _stalled(states, late, limits), quiet)


def failed(states: Mapping[int, State]) -> Verdict:
    """Return the verdict on failures that processes have told of.

    What all have told alike is told as it is, once; else with who and where.
    """
    by_text: dict[str, list[int]] = {}
    codes = set()
    for number, state in sorted(states.items()):
        if state.failure is not None:
            by_text.setdefault(state.failure.text, []).append(number)
            codes.add(state.failure.code)
    code = codes.pop() if len(codes) == 1 else FAILED
    if list(map(len, by_text.values())) == [len(states)]:
        return Verdict(code, next(iter(by_text)))
    told = [
        f"stage {states[who[0]].where()}: {placed(states, who)}: {text}"
        for text, who in by_text.items()
    ]
    return Verdict(code, "\n".join(told[:8] + ([f"... {len(told) - 8} more"] * (len(told) > 8))))


def missing(states: Mapping[int, State], count: int, seconds: float) -> Verdict:
    """Return the verdict on a start for which not all have come."""
    absent = sorted(set(range(count)) - set(states))
    return Verdict(
        FAILED,
        f"stage start: {named(absent)} of {count} did not arrive within {seconds:g} s; "
        f"{_there(states)}. Were all started, with the same --coordinator? Can their hosts reach "
        "process 0's? (--stage_limits=start=SECONDS waits longer)",
    )


def named(numbers: Sequence[int]) -> str:
    """Return 'process 3' or 'processes 1, 2, 5-8'."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    texts = [f"{a}" if a == b else f"{a}, {b}" if b == a + 1 else f"{a}-{b}" for a, b in runs]
    return ("process " if len(numbers) == 1 else "processes ") + ", ".join(texts)


def placed(states: Mapping[int, State], numbers: Sequence[int]) -> str:
    """Return processes with their hosts: 'process 3 (n2)', 'processes 4, 5 (n3)'."""
    by_host: dict[str, list[int]] = {}
    for number in sorted(numbers):
        by_host.setdefault(states[number].host, []).append(number)
    told = [f"{named(group)} ({host})" for host, group in by_host.items()]
    return " and ".join(told[:8]) + (f" and {len(told) - 8} more hosts" if len(told) > 8 else "")


def _died(states: Mapping[int, State], gone: Mapping[int, State]) -> str:
    who = placed(states, list(gone))
    pid = f", pid {next(iter(gone.values())).pid}" if len(gone) == 1 else ""
    return f"stage {_furthest(states)}: {who}{pid} ended without a word{_before(gone)}"


def _silent(states: Mapping[int, State], silent: Mapping[int, State], seconds: float) -> str:
    who = placed(states, list(silent))
    return (
        f"stage {_furthest(states)}: nothing heard from {who} for {seconds:g} s{_before(silent)}: "
        "stopped, or its host is lost (--silence_s=SECONDS waits longer)"
    )


def _stalled(states: Mapping[int, State], late: Mapping[int, State], limits: Limits) -> str:
    stage = next(iter(late.values())).stage
    behind = min(s.place for s in states.values())
    absent = {k: s for k, s in states.items() if s.place == behind}
    if any(s.waiting for s in states.values()):
        absent = dict(late)  # the others wait for them
    who = "all processes are in it"
    if len(absent) < len(states):
        who = f"{placed(states, list(absent))} did not get further{_before(absent)}"
    return (
        f"stage {_furthest(states)}: over its limit of {limits.stages[stage]:g} s; {who} "
        f"(--stage_limits={stage}=SECONDS allows more)"
    )


def _furthest(states: Mapping[int, State]) -> str:
    """Return the stage of whoever is ahead: it is there that the absent ones are missed."""
    return max(states.values(), key=lambda s: s.place).where()


def _before(behind: Mapping[int, State]) -> str:
    """Say where those who are missed were last."""
    places = sorted({s.where() for s in behind.values()})
    return f", last in {', '.join(places)}"


def _there(states: Mapping[int, State]) -> str:
    return f"{placed(states, list(states))} did" if states else "nobody did"
