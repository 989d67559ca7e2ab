"""`jaxbench` with a fault in one of its processes, for tests: it strikes in a timed step.

    python tests/launch/faulty.py killed@1 run --flagfile=flags/tiny_dp.flags --processes=2

The fault is written as what@process, or what@process:stage for another stage than 'step'; 'none'
is no fault. The command 'bare' does what `run` does with its processes, but without JAX: it starts
them, compares --steps and --seed as the experiment, and 'measures' steps of 10 ms.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from jaxbench.cli.command import read_call
from jaxbench.cli.flags import PROCESS_FLAGS
from jaxbench.cli.main import guarded
from jaxbench.cli.main import main as jaxbench
from jaxbench.cli.processes import meet, same_experiments
from jaxbench.launch import channel
from jaxbench.measure.processes import here

STAMP = "FAULTY_STAMP"  # names a file that is to tell when the fault struck


def strike(what: str) -> None:
    """Let this process come to grief."""
    if path := os.environ.get(STAMP):
        Path(path).write_text(repr(time.time()))
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "exited":
        os._exit(7)
    elif what == "left":
        sys.exit(7)
    elif what == "raised":
        raise ValueError("a fault on purpose")
    elif what == "terminated":
        os.kill(os.getpid(), signal.SIGTERM)
    elif what == "hung":
        time.sleep(3600)
    else:
        raise ValueError(f"unknown fault '{what}'")


def plan(fault: str) -> None:
    """Let it strike when the process enters the stage for the first, or a step for the 4th time."""
    what, _, where = fault.partition("@")
    process, _, stage = where.partition(":")
    usual = channel.Channel.stage
    entered = []

    def enter(self: channel.Channel, name: str, number: int | None = None) -> None:
        usual(self, name, number)
        if self.index == int(process) and name == (stage or "step"):
            entered.append(number)
            if len(entered) == (1 if stage else 4):
                strike(what)

    channel.Channel.stage = enter


def bare(words: Sequence[str]) -> int:
    """Be the command 'bare'."""
    call = read_call("bare", words, (*PROCESS_FLAGS, "steps", "seed", "out"))
    if (code := meet(call.values, "jaxbench bare", call.faults)) is not None:
        return code
    same_experiments([{name: call.values[name] for name in ("steps", "seed")}])
    taken: list[float] = []
    out = Path(call.values["out"])

    def keep(parts: Sequence[Any], why: str) -> None:
        out.write_text(json.dumps({"why": why, "steps": parts, "partial": bool(why)}))

    failure = None
    with here().keeping(lambda: len(taken), keep):
        try:
            for number in range(int(call.values["steps"] or "3")):
                here().stage("step", number)
                here().align()
                time.sleep(0.01)
                taken.append(0.01)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        failure = here().settle(failure)
        here().stage("gather")
        told = here().to_first(len(taken))
        clocks = here().clocks()
    if here().index == 0:
        keep(told, failure or "")
        print(json.dumps({"order": list(here().order), "clocks": clocks}))
    return 1 if failure else 0


def main() -> int:
    """Run the command with the fault."""
    fault = sys.argv.pop(1)
    if fault != "none":
        plan(fault)
    if sys.argv[1] == "bare":
        module = ModuleType("bare")
        module.main = bare  # type: ignore[attr-defined]
        return guarded("bare", module, sys.argv[2:])
    return jaxbench()


if __name__ == "__main__":
    raise SystemExit(main())
