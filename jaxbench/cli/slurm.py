"""write the job script that runs a benchmark on a Slurm cluster, or submit it.

Alternatives separated by '|', as in jaxbench sweep, make a whole sweep: one run after the other
in one job, or with --array a task each. Besides the machines of meshes/, --system takes
generic_gpu and generic_cpu.

examples:
  jaxbench slurm --system=leonardo --flagfile=flags/quickstart.flags --devices=256
  jaxbench slurm --system=generic_cpu --flagfile=flags/tiny_dp.flags --devices='8|16' --array
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxbench.cli.command import read_command, read_words
from jaxbench.cli.flagfile import override
from jaxbench.cli.flags import (
    EXPERIMENT_FLAGS,
    PROCESS_FLAGS,
    SLURM_FLAGS,
    read_boolean,
    split_flagfiles,
)
from jaxbench.cli.flags import FLAGS as ALL_FLAGS
from jaxbench.cli.sweep import read_cells
from jaxbench.errors import InputError, RunError
from jaxbench.launch.slurm_script import (
    ACCOUNT_PLACEHOLDER,
    Job,
    Step,
    choice_faults,
    job_script,
    size_faults,
)
from jaxbench.launch.slurm_systems import GENERIC, SlurmSystem, find_slurm_system
from jaxbench.launch.world import read_port
from jaxbench.measure.sweeps.grid import SEPARATOR
from jaxbench.measure.sweeps.sweep import tasks_in_order

SWEEP_FLAGS = ("repetitions", "skip_invalid")
FLAGS = (*EXPERIMENT_FLAGS, "runs", *PROCESS_FLAGS, *SWEEP_FLAGS, *SLURM_FLAGS, "out", "flagfile")
STARTS_BACKEND = False

NOT_SRUNS = ("processes", "coordinator", "num_processes", "process_id")
MOST_COUNT = 10_000
SBATCH_LIMIT_S = 120.0


class Asked(NamedTuple):
    """A call of the command: what is to be run, where the script goes, and what to say about it."""

    job: Job
    script: str
    submit: bool
    notes: list[str]


def main(words: Sequence[str]) -> int:
    """Write the script, to standard output unless told otherwise; return 0."""
    asked = read(words)
    text = job_script(asked.job)
    for note in asked.notes:
        print(note, file=sys.stderr)
    if asked.script:
        path = Path(asked.script).expanduser()
        path.write_text(text, encoding="utf-8")
        path.chmod(path.stat().st_mode | 0o100)
        print(f"script: {asked.script}")
    elif not asked.submit:
        print(text, end="")
    if asked.submit:
        print(submit(text, asked.script))
    return 0


def submit(text: str, script: str) -> str:
    """Give the script to sbatch; return what it says. Raises RunError if it refuses."""
    # A file is named, so that squeue shows it.
    command = ["sbatch", str(Path(script).expanduser())] if script else ["sbatch"]
    try:
        done = subprocess.run(
            command,
            input="" if script else text,
            capture_output=True,
            text=True,
            timeout=SBATCH_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"sbatch did not answer in {SBATCH_LIMIT_S:g} s") from None
    if done.returncode:
        raise RunError(f"sbatch refused: {' '.join(done.stderr.split())}")
    return done.stdout.strip()


def read(words: Sequence[str]) -> Asked:
    """Return what the words ask for. Raises InputError with everything that is wrong."""
    line, files, faults, complete = read_words("slurm", words, FLAGS)
    faults = list(faults)
    given = {name: text.strip() for name, text in override(files, line).items()}
    own = {
        name: given.get(name) or ALL_FLAGS[name].default or ""
        for name in (*SLURM_FLAGS, *SWEEP_FLAGS, "out")
    }
    wants = {
        name: read_boolean(name, own[name], faults) for name in ("submit", "array", "skip_invalid")
    }
    counts = {
        name: _count(name, own[name], faults)
        for name in ("per_node", "cpus_per_task", "repetitions")
    }
    system = _system(given.get("system", ""), faults)
    if system is None or system.name in GENERIC:  # no machine that a run would know
        if system and "system" in files:
            faults.append(f"--system={system.name} belongs on the command line: runs don't know it")
        line.pop("system", None)
        files.pop("system", None)

    if ours := [f"--{name}" for name in NOT_SRUNS if given.get(name)]:
        faults.append(
            f"a job script takes no {', '.join(ours)}: srun starts the processes, one per device"
        )
    faults += read_port(given)[1]

    steps: list[Step] = []
    if complete:
        try:
            steps = _steps(words, line, files, counts["repetitions"] or 1, wants, faults)
        except InputError as error:
            faults += error.faults
    faults += script_faults(own["script"]) if own["script"] else []
    notes: list[str] = []
    if system and not own["account"] and system.account:
        if wants["submit"]:
            faults.append(f"--submit needs --account on {system.name}")
        notes = [f"note: put your account in place of {ACCOUNT_PLACEHOLDER}, or give --account"]
    if wants["submit"] and not shutil.which("sbatch"):
        faults.append("--submit needs sbatch, which is not on the PATH: call it on a login node")
    job = Job(
        system=system or GENERIC["generic_gpu"],
        steps=tuple(steps),
        array=wants["array"],
        account=own["account"],
        partition=own["partition"],
        qos=own["qos"],
        time_limit=own["time_limit"],
        per_node=counts["per_node"],
        cpus_per_task=counts["cpus_per_task"],
        out=own["out"],
        written_by=shlex.join(["jaxbench", "slurm", *words]),
    )
    faults += choice_faults(job)
    if system:
        faults += size_faults(job)
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    idle = sorted({job.nodes(step) for step in steps})
    if len(idle) > 1:
        notes.append(
            f"note: runs take {idle[0]} to {idle[-1]} nodes and every one waits for {idle[-1]}; "
            "a script for each number of devices leaves none idle"
        )
    return Asked(job, own["script"], wants["submit"], notes)


def script_faults(name: str) -> list[str]:
    """Return why no script can be written to a file of this name; leaves no trace."""
    path = Path(name).expanduser()
    if path.is_dir():
        return [f"--script is '{name}', a folder; name a file in it"]
    probe = path.with_name(f".probe-{uuid.uuid4().hex}")
    try:
        if path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        return [f"can't write the script to '{name}': {error.strerror}"]
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return []


def _system(name: str, faults: list[str]) -> SlurmSystem | None:
    try:
        return find_slurm_system(name)
    except InputError as error:
        needs = "slurm needs --system, the cluster; " if not name else ""
        faults += [f"{needs}{fault}" for fault in error.faults]
        return None


def _steps(
    words: Sequence[str],
    line: Mapping[str, str],
    files: Mapping[str, str],
    repetitions: int,
    wants: Mapping[str, bool],
    faults: list[str],
) -> list[Step]:
    """Return the runs: those of a grid each by itself, otherwise one with the user's own flags."""
    ours = {*SLURM_FLAGS, *SWEEP_FLAGS, "out"}
    line = {name: text for name, text in line.items() if name not in ours}
    given = override({n: t for n, t in files.items() if n not in ours}, line)
    if wants["array"] or repetitions > 1 or any(SEPARATOR in text for text in given.values()):
        of_files = {name: text for name, text in files.items() if name not in ours}
        cells, skipped, _ = read_cells(of_files, line, wants["skip_invalid"])
        for reason in skipped:
            print(f"skipped: {reason}", file=sys.stderr)
        seed = cells[0].experiment.seed
        # After the words by which jaxbench sweep knows the records of a cell.
        more = [f"--{name}={given[name]}" for name in PROCESS_FLAGS if given.get(name)]
        return [
            Step((*task.cell.words, *more), task.cell.experiment.devices)
            for task in tasks_in_order(cells, repetitions, seed)
        ]
    kept = [f"--flagfile={name}" for name in split_flagfiles(words)[1]]
    kept += [f"--{name}={text}" for name, text in line.items()]
    command = read_command("slurm", kept, FLAGS)
    faults += command.faults
    devices = [experiment.devices for _, experiment in command.experiments]
    if not devices:
        return []
    if "expect_devices" not in given:
        kept.append(f"--expect_devices={max(devices)}")
    return [Step(tuple(kept), max(devices))]


def _count(name: str, text: str, faults: list[str]) -> int | None:
    """Return a flag's whole number, None where it isn't given."""
    if not text:
        return None
    if text.isdecimal() and 0 < int(text) <= MOST_COUNT:
        return int(text)
    faults.append(f"--{name} is '{text}'; it must be a whole number from 1 to {MOST_COUNT:,}")
    return None
