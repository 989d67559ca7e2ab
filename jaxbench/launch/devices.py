"""Which of a host's accelerators a process takes, so that each is used once.

One process per host takes all that it sees. Processes that see different ones (--gpus-per-task, GPU
binding) take what they see. Processes that see the same ones share them out evenly. JAX would give
each process of a job step the device of its local number, and leave the others unused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

# Slurm's own word that each task has devices of its own, even if all see them as number 0.
PER_TASK = ("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU")


@dataclass(frozen=True)
class Visible:
    """The accelerators that a process may see: a variable's text, None if there is none.

    `count` is how many there are, None if that can't be told without starting the backend. `own`
    is whether the scheduler gave them to this task alone.
    """

    names: str | None = None
    count: int | None = None
    own: bool = False


def visible_devices(env: Mapping[str, str], devices: Path = Path("/dev")) -> Visible:
    """Return what this process may see of GPUs."""
    names = next((env[name] for name in VARIABLES if env.get(name)), None)
    per_task = any(env.get(name) for name in PER_TASK)
    per_task |= "gres/gpu" in env.get("SLURM_TRES_PER_TASK", "")
    per_task |= env.get("SLURM_GPU_BIND", "").removeprefix("verbose,").startswith("per_task")
    if names is not None:
        return Visible(names, len([n for n in names.split(",") if n.strip()]), per_task)
    found = [p for p in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", p.name)]
    return Visible(None, len(found) or None, per_task)


def own_share(index: int, seen: Sequence[Visible]) -> tuple[list[int] | None, str | None]:
    """Return the local device ids of the process that is number `index` of those on its host.

    None means all that it sees. The second result says why they can't be shared out.
    """
    if len(seen) == 1 or any(v.own for v in seen):
        return None, None
    if len({v.names for v in seen}) > 1:
        sets = [set((v.names or "").split(",")) for v in seen]
        alike = any(a & b for k, a in enumerate(sets) for b in sets[k + 1 :])
        return None, (
            "processes on one host see overlapping devices "
            f"({' and '.join(sorted({v.names or 'all' for v in seen}))}): give all the same "
            f"{VARIABLES[0]}, or each its own"
            if alike
            else None
        )
    count = seen[index].count
    if count is None or (count == 1 and seen[index].names is not None):
        return None, None  # no GPUs; or one each, which all see as the same number
    if count % len(seen):
        return None, (
            f"{len(seen)} processes on one host can't share its {count} devices evenly: start "
            f"one per host, or as many as divide {count}"
        )
    each = count // len(seen)
    return list(range(index * each, (index + 1) * each)), None
