"""A `jaxbench run` in a process of its own, that never outlives the one who started it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from typing import IO, NamedTuple

STOP_S = 5.0  # between asking a process to end and killing it: time to record what it has
TAIL_LINES = 8
TAIL_BYTES = 4000
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>


class Ended(NamedTuple):
    """How a process ended: its code (-signal if killed), wall seconds, last lines of stderr."""

    exit_code: int
    timed_out: bool
    seconds: float
    error: str


def run_child(words: Sequence[str], timeout_s: float | None) -> Ended:
    """Run `jaxbench run` with these words, in this environment, and wait for its end.

    After `timeout_s`, and where the wait is interrupted (KeyboardInterrupt goes on), it is asked
    to end and then killed with all that it started.
    """
    # By the kernel if we are killed ourselves: else it would go on and record a run of nobody.
    with_us = partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
    with tempfile.TemporaryFile() as errors:
        start = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "jaxbench", "run", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # a terminal's Ctrl-C reaches us alone
            preexec_fn=with_us,
        )
        timed_out = False
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            stop(process)
        return Ended(process.returncode, timed_out, time.monotonic() - start, tail(errors))


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session, and its children; nothing if it has ended."""
    if process.poll() is not None:
        return
    try:
        process.terminate()
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def tail(file: IO[bytes]) -> str:
    """Return the last lines of a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-TAIL_LINES:])
