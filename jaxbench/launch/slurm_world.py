"""The world of a job step of Slurm.

A shell of salloc, a batch script, an ssh session in a job have some of Slurm's variables, but are
no job step: there is one process, and a note says so where more may have been meant.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace

from jaxbench.errors import InputError
from jaxbench.launch.world import World, ports_of, read_port
from jaxbench.topology.hostlist import expand

STEP = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NODELIST",
)
NUMBERS = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")


def slurm(env: Mapping[str, str], flags: Mapping[str, str]) -> World | None:
    """Return the world of this job step; of one process, with a note, where it is none.

    None outside Slurm.
    """
    if not any(name in env for name in ("SLURM_JOB_ID", *STEP)):
        return None
    missing = [name for name in STEP if not env.get(name)]
    wrong = [name for name in NUMBERS if name not in missing and not env[name].isdecimal()]
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
    """Return the node of process 0: the first one, unless tasks are laid out by a list."""
    if env.get("SLURM_DISTRIBUTION", "").startswith("arbitrary"):
        listed = env.get("SLURM_ARBITRARY_NODELIST", "")
        first = expand(listed)[0] if listed else _first_line(env.get("SLURM_HOSTFILE", ""))
        if first in nodes:
            return first
    return nodes[0]


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
