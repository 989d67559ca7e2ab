"""Which processes make up this run, and which of them this one is: decided in one place.

In this order, the first that says something is taken:

1. --coordinator, --num_processes and --process_id, all three;
2. --processes=N: this process starts N others on this host and waits for them;
3. mpirun (Open MPI), before srun, since mpirun may have been started in a job step, or starts
   its own daemons as one;
4. srun, in a job step of more than one task;
5. otherwise there is one process, which needs neither jax.distributed nor a port.

Other launchers tell how many processes they start, but not where process 0 is: under these, 1 is
needed. Everything is read from the flags and the environment; nothing is started here.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass

from jaxbench.errors import InputError

# Ports are taken from here: below Linux's ephemeral ones (32768 on) and what Slurm and JAX use.
FIRST_PORT, PORTS = 23_000, 7_000
TRIES = 4  # ports of a job step, one after the other, if others are in use

# Rank and size, as launchers set them.
OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
JOB_STEP = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
OTHERS = (
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, and srun for their sake
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH
    ("PALS_RANKID", "PALS_SIZE"),  # HPE Cray's mpiexec
)


@dataclass(frozen=True)
class World:
    """The processes of a run and this one's place among them.

    `key` names the job step: who has another one is a stranger. `hosts` are names or addresses of
    process 0's host, to be tried in turn, each with all `ports`; `nodes` the names of all hosts,
    as far as they are known. `starts` is how many processes this one is to start. `notes` says
    what of the environment was not understood.
    """

    source: str
    index: int = 0
    count: int = 1
    key: str = ""
    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    host: str = ""  # this one's, by the scheduler's name
    nodes: tuple[str, ...] = ()
    local: bool = True  # whether all processes are known to be on one host
    switches: tuple[str, ...] = ()
    group: str | None = None
    starts: int = 0
    reserved: bool = False  # whether who started us keeps the port for us
    notes: tuple[str, ...] = ()


def find_world(flags: Mapping[str, str], env: Mapping[str, str]) -> World:
    """Return the world; InputError with all that is wrong with flags and environment."""
    from jaxbench.launch.given_world import given, local_child, to_start
    from jaxbench.launch.mpi_world import mpi
    from jaxbench.launch.slurm_world import slurm

    if (child := local_child(env)) is not None:
        return child
    by_mpi = mpi(env, flags)
    found = by_mpi or slurm(env, flags)
    launched = found if found and found.count > 1 else None
    others = 0 if by_mpi or launched else _started_by_others(env)
    explicit, started = given(flags, env), to_start(flags)
    _, faults = read_port(flags)
    if explicit and started:
        faults.append(
            "--processes starts processes on this host, --coordinator joins some that are "
            "started otherwise: give one of them"
        )
    if explicit and launched and explicit.count != launched.count:
        faults.append(
            f"--num_processes is {explicit.count}, and {launched.source} has started "
            f"{launched.count}: leave out --coordinator, --num_processes and --process_id"
        )
    if started and launched:
        faults.append(
            f"--processes={started} starts processes itself, and {launched.source} has "
            f"started {launched.count} already: leave it out"
        )
    if others > 1 and not explicit:
        faults.append(
            f"{others} processes have been started, by neither srun nor Open MPI's mpirun, so "
            "process 0 can't be found: give --coordinator, --num_processes and --process_id, or "
            "start with srun or Open MPI's mpirun"
        )
    if faults:
        raise InputError(faults)
    if started > 1:
        return World("--processes", starts=started)
    return explicit or found or World("one process", host=platform.node())


def first_of_launched(env: Mapping[str, str]) -> bool:
    """Tell whether a message that all processes have is for this one to print.

    Where there is nothing to tell them apart by, it is: so with a rank that makes no sense, which
    process 0 may not have.
    """
    if "JAXBENCH_LOCAL_PROCESS" in env:
        return env["JAXBENCH_LOCAL_PROCESS"].partition("/")[0] == "0"
    step = (JOB_STEP,) if "SLURM_STEP_ID" in env else ()
    for rank, size in (OPEN_MPI, *step, *OTHERS):
        count, index = _number(env, size), _number(env, rank)
        if count > 1:
            return index == 0 or index >= count
    return True


def _started_by_others(env: Mapping[str, str]) -> int:
    """Return how many processes a launcher has started that doesn't tell where process 0 is."""
    return max(_number(env, size) for _, size in OTHERS)


def _number(env: Mapping[str, str], name: str) -> int:
    """Return the whole number of a variable, 0 if it has none."""
    text = env.get(name, "")
    return int(text) if text.isdecimal() else 0


def ports_of(*key: str) -> tuple[int, ...]:
    """Return the ports of what has this key: a hash, so that all processes know them.

    The user is part of it: job ids are unique on one cluster only.
    """
    name = "/".join((*key, user()))
    digests = (hashlib.sha256(f"{name}/{k}".encode()).digest() for k in range(TRIES))
    return tuple(FIRST_PORT + int.from_bytes(d[:4]) % PORTS for d in digests)


def user() -> str:
    """Return the user's name, or number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def read_port(flags: Mapping[str, str]) -> tuple[tuple[int, ...], list[str]]:
    """Return the ports that --coordinator_port names, none if it isn't given, and what is wrong."""
    text = flags.get("coordinator_port", "").strip()
    if not text:
        return (), []
    if text.isdecimal() and 0 < int(text) < 65536:
        return (int(text),), []
    return (), [f"--coordinator_port is '{text}'; it must be a port from 1 to 65535"]
