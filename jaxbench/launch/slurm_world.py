"""The world of a job step of Slurm.

A shell of salloc, a batch script, an ssh session in a job have some of Slurm's variables, but are
no job step: there is one process, and a note says so where more may have been meant.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import replace

from jaxbench.errors import InputError
from jaxbench.launch.world import JOB_STEP, World, ports_of, read_port
from jaxbench.topology.hostlist import expand

STEP = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NODELIST",
)
# Of a heterogeneous job: how many components, and the nodes of one. The older names come last;
# srun of Slurm 22.05 sets both sizes, but nodes by their older names only.
SIZES = ("SLURM_HET_SIZE", "SLURM_PACK_SIZE")
GROUPS = ("SLURM_JOB_NODELIST_HET_GROUP_", "SLURM_JOB_NODELIST_PACK_GROUP_")


def slurm(env: Mapping[str, str], flags: Mapping[str, str]) -> World | None:
    """Return the world of this job step; of one process, with a note, where it is none.

    None outside Slurm.
    """
    if not any(name in env for name in ("SLURM_JOB_ID", *STEP)):
        return None
    missing = [name for name in STEP if not env.get(name)]
    wrong = [name for name in JOB_STEP if name not in missing and not env[name].isdecimal()]
    switches, group = nearness(env)
    host = env.get("SLURMD_NODENAME") or platform.node()
    alone = World("one process", host=host, switches=switches, group=group)
    if missing or wrong:
        return replace(alone, notes=tuple(_notes(env, missing, wrong)))
    index, count = int(env["SLURM_PROCID"]), int(env["SLURM_STEP_NUM_TASKS"])
    if count == 1:
        return alone
    nodes = nodes_of(env)
    port, faults = read_port(flags)
    if index >= count:
        faults.append(f"SLURM_PROCID is {index} of {count} tasks: unset Slurm's variables")
    if faults:
        raise InputError(faults)
    job, step = env["SLURM_JOB_ID"], env["SLURM_STEP_ID"]
    return World(
        "srun",
        index=index,
        count=count,
        key=f"slurm {env.get('SLURM_CLUSTER_NAME', '')} job {job} step {step}",
        hosts=(_first_node(env, nodes),),
        ports=port or ports_of("slurm", job, step),
        host=host,
        nodes=nodes,
        local=len(nodes) == 1,
        switches=switches,
        group=group,
    )


def nearness(env: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    """Return the switches above this node, outermost first, and the group of its leaf.

    From SLURM_TOPOLOGY_ADDR, such as core.g0.g0s1.n3 by the pattern switch.switch.switch.node. The
    group is what is directly above the leaf switch, or the leaf if nothing is.
    """
    pattern = env.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    # A node's name may have dots itself.
    parts = env.get("SLURM_TOPOLOGY_ADDR", "").split(".", len(pattern) - 1)
    if len(pattern) != len(parts) or pattern[-1] != "node":
        return (), None
    switches = tuple(parts[:-1])
    return switches, (switches[-2:][0] if switches else None)


def nodes_of(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the nodes of the job step; none outside of one."""
    listed = env.get("SLURM_STEP_NODELIST", "")
    return tuple(expand(listed)) if listed else ()


def _first_node(env: Mapping[str, str], nodes: tuple[str, ...]) -> str:
    """Return the node of process 0: the first one, unless tasks are laid out by a list.

    The nodes of a heterogeneous job are listed in order of their names, but its processes are
    numbered component by component: the first one that takes part in the step has process 0.
    """
    if env.get("SLURM_DISTRIBUTION", "").startswith("arbitrary"):
        listed = env.get("SLURM_ARBITRARY_NODELIST", "")
        first = expand(listed)[0] if listed else _first_line(env.get("SLURM_HOSTFILE", ""))
        if first in nodes:
            return first
    return next((node for node in _by_component(env) if node in nodes), nodes[0])


def _by_component(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the nodes of a heterogeneous job, component by component; none of another job."""
    if not any(size in env for size in SIZES):
        return
    for group in GROUPS:
        number = 0
        while listed := env.get(f"{group}{number}"):
            yield from expand(listed)
            number += 1


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as lines:
            return expand(lines.readline())[0]
    except (OSError, UnicodeDecodeError, InputError, IndexError):
        return ""


def _notes(env: Mapping[str, str], missing: list[str], wrong: list[str]) -> list[str]:
    """Say why this is one process, where the job or the step has more."""
    tasks = env.get("SLURM_NTASKS", "") or env.get("SLURM_STEP_NUM_TASKS", "")
    if "SLURM_STEP_ID" in env and (missing or wrong):
        what = ", ".join(missing + [f"{name}='{env[name]}'" for name in wrong])
        return [f"this is one process, no job step of Slurm: its variables are incomplete ({what})"]
    if tasks.isdecimal() and int(tasks) > 1:
        return [
            f"this is one process, though the job has {tasks} tasks: srun starts them, as in "
            "srun jaxbench ..."
        ]
    return []
