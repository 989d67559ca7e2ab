"""Starting several processes of one command for tests, and what came of each.

    told = local("bare", processes=3, fault="killed@1", out=tmp_path / "out")
    told.code, told.seconds, told.messages

`local` uses --processes; `explicit` starts each by itself with --coordinator, some with other
words.
Tests that start them otherwise (srun) can use `command` and `Told` too.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAULTY = Path(__file__).with_name("faulty.py")
STAMP = "FAULTY_STAMP"
LIMIT_S = 120.0  # for a test machine that does much else
OURS = (
    "JAX_NUM_CPU_DEVICES",
    "XLA_FLAGS",
    "JAXBENCH_ENVIRONMENT_SET",
    "JAXBENCH_LOCAL_PROCESS",
    STAMP,
)
LAUNCHERS = ("SLURM_", "OMPI_", "PMIX_", "PMI_")

# What befalls a process, and the most seconds after which all others must have ended.
DEATHS: dict[str, float] = {
    "killed": 15.0,
    "exited": 15.0,
    "left": 3.0,
    "raised": 3.0,
    "stopped": 15.0,
}


@dataclass(frozen=True)
class Told:
    """How processes ended: their codes, all that was printed, seconds since the fault struck."""

    codes: tuple[int, ...]
    output: str
    seconds: float | None

    @property
    def code(self) -> int:
        """The worst code."""
        return max(code if code >= 0 else 128 - code for code in self.codes)

    @property
    def messages(self) -> list[str]:
        """The lines in which jaxbench says why it ends, without the number of their process."""
        lines = self.output.splitlines()
        told = [line.partition("] ")[2] if line.startswith("[") else line for line in lines]
        return [line for line in told if line.startswith("jaxbench ")]


def environment(**env: str) -> dict[str, str]:
    """Return an environment for CPU devices, with nothing of the tests' own or of a launcher."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in OURS and not name.startswith(LAUNCHERS)
    }
    return {**clean, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), **env}


def command(*words: str, fault: str = "none") -> list[str]:
    """Return the command line of a command with a fault."""
    return [sys.executable, str(FAULTY), fault, *words]


def local(
    *words: str,
    processes: int,
    fault: str = "none",
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Told:
    """Run a command with --processes."""
    line = command(*words, f"--processes={processes}", fault=fault)
    return run([line], env=environment(**(env or {})), folder=folder)


def explicit(
    *words: str,
    processes: int,
    fault: str = "none",
    changed: Mapping[int, Sequence[str] | None] | None = None,
    port: int | None = None,
) -> Told:
    """Run a command in processes of their own; `changed` ones get more words, or aren't started."""
    port = port or free_port()
    lines = []
    for number in range(processes):
        more = (changed or {}).get(number, ())
        if more is None:
            continue
        where = (f"--coordinator=127.0.0.1:{port}", f"--num_processes={processes}")
        ours = (*where, f"--process_id={number}", *words, *more)
        lines.append(command(words[0], *ours[:3], *words[1:], *more, fault=fault))
    return run(lines, env=environment())


def run(
    lines: Sequence[Sequence[str]], *, env: Mapping[str, str], folder: Path | None = None
) -> Told:
    """Run the commands at once and wait for them; any that is left after LIMIT_S is killed."""
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as output:
        stamp = Path(scratch) / "stamp"
        running = [
            subprocess.Popen(
                line,
                env={**env, STAMP: str(stamp)},
                cwd=folder or scratch,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            for line in lines
        ]
        deadline = time.monotonic() + LIMIT_S
        ended_at: dict[int, float] = {}
        while len(ended_at) < len(running) and time.monotonic() < deadline:
            for index, process in enumerate(running):
                if index not in ended_at and process.poll() is not None:
                    ended_at[index] = time.time()
            time.sleep(0.02)
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        struck = float(stamp.read_text()) if stamp.exists() else None
        output.seek(0)
        text = output.read().decode(errors="replace")
        codes = tuple(process.returncode for process in running)
    seconds = time.time() if len(ended_at) < len(running) else max(ended_at.values())
    return Told(codes, text, None if struck is None else seconds - struck)


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
