"""Several processes of the same command on this host: --processes=N."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

from jaxbench.launch.given_world import LOCAL
from jaxbench.launch.rendezvous import bound

LOOK_S = 0.05
LINGER_S = 5.0  # for the others to end by themselves, after one has failed
STOPPED_S = 1.0  # for one that is stopped, and can't
TAIL_LINES = 20
TAIL_BYTES = 20_000
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
NOISE = ("[Gloo]",)


def run_local(count: int, env: Mapping[str, str]) -> int:
    """Run this very command in `count` processes; return the exit code of the worst.

    Process 0 has our stdout and stderr. What the others said is shown, each line with the number
    of its process, only if one of them failed. Signals are passed on; if we are killed, so are
    they.
    """
    command = [sys.executable, *sys.orig_argv[1:]]
    with_us = partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
    token = secrets.token_hex(16)
    processes: list[subprocess.Popen[bytes]] = []
    outputs: list[IO[bytes] | None] = []
    previous = {}
    with bound("127.0.0.1", 0) as reserved:
        port = reserved.getsockname()[1]

        def forward(number: int, _frame: object) -> None:
            for process in processes:
                if process.poll() is None:
                    process.send_signal(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            previous[number] = signal.signal(number, forward)
        try:
            for index in range(count):
                output = tempfile.TemporaryFile() if index else None
                outputs.append(output)
                processes.append(
                    subprocess.Popen(
                        command,
                        env={**env, LOCAL: f"{index}/{count}/{port}/{token}"},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT if output else None,
                        preexec_fn=with_us,
                    )
                )
            code = wait_for(processes)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            for number, handler in previous.items():
                signal.signal(number, handler)
    if code:
        show(outputs)
    return code


def wait_for(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all have ended, and return the worst code (128 + n if killed by signal n).

    When one has failed, the others are given time to notice, and then killed, which is no code of
    theirs.
    """
    failed_at = None
    killed = set()
    while any(process.poll() is None for process in processes):
        now = time.monotonic()
        if failed_at is None and any(process.returncode for process in processes):
            failed_at = now
        running = [process for process in processes if process.poll() is None]
        for process in running if failed_at is not None else []:
            allowed_s = STOPPED_S if is_stopped(process.pid) else LINGER_S
            if failed_at is not None and now - failed_at > allowed_s:
                process.kill()
                killed.add(process.pid)
        time.sleep(LOOK_S)
    codes = [
        process.returncode
        for process in processes
        if not (process.pid in killed and process.returncode == -signal.SIGKILL)
    ]
    return max(code if code >= 0 else 128 - code for code in codes)


def is_stopped(pid: int) -> bool:
    """Tell whether a process has been stopped by a signal."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def show(outputs: Sequence[IO[bytes] | None]) -> None:
    """Print what the processes have said at last, each line with the process's number."""
    for index, output in enumerate(outputs):
        if output is None:
            continue
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - TAIL_BYTES))
        lines = output.read().decode(errors="replace").strip().splitlines()
        told = [line for line in lines if line.strip() and not line.startswith(NOISE)]
        for line in told[-TAIL_LINES:]:
            print(f"[{index}] {line}", file=sys.stderr)
        output.close()
