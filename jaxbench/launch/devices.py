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

# What such a variable says to show no device, besides nothing; the last one is Slurm's.
NO_DEVICES = ("", "-1", "NoDevFiles")

# Slurm's own word that each task has devices of its own, even if all see them as number 0.
PER_TASK = ("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU")

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")


@dataclass(frozen=True)
class Visible:
    """The accelerators that a process may see: a variable's text, None if there is none.

    `count` is how many there are, None if that can't be told without starting the backend. `own`
    is whether the scheduler gave them to this task alone. A text that hides all has the count 0.
    """

    names: str | None = None
    count: int | None = None
    own: bool = False


def visible_devices(
    env: Mapping[str, str], devices: Path = Path("/dev"), kfd: Path = KFD_NODES
) -> Visible:
    """Return what this process may see of GPUs.

    Without a variable Slurm knows how many of the node's are the job's, and `devices` and `kfd`
    (of NVIDIA's and AMD's driver) how many there are.
    """
    said = [env[name].strip() for name in VARIABLES if name in env]
    said.sort(key=lambda names: names in NO_DEVICES)  # one for GPUs of another kind hides nothing
    own = _is_per_task(env)
    if said:
        names = said[0]
        count = len([n for n in names.split(",") if n.strip() not in NO_DEVICES])
        return Visible(names, count, own)
    of_job = env.get("SLURM_GPUS_ON_NODE", "")
    if of_job.isdecimal():
        return Visible(None, int(of_job) or None, own)
    return Visible(None, _nvidia_devices(devices) or _amd_devices(kfd) or None, own)


def uses_accelerators(platforms: str) -> bool:
    """Tell whether JAX would take accelerators if there are some; `platforms`: JAX_PLATFORMS."""
    return "cpu" not in platforms.split(",")[0] and _accelerator_plugins()


def own_share(index: int, seen: Sequence[Visible]) -> tuple[list[int] | None, str | None]:
    """Return the local device ids of the process that is number `index` of those on its host.

    None means all that it sees. The second result says why they can't be shared out.
    """
    if len(seen) == 1 or any(v.own for v in seen):
        return None, None
    if len({v.names for v in seen}) > 1:
        sets = [set((v.names or "").split(",")) if v.count != 0 else set() for v in seen]
        alike = any(a & b for k, a in enumerate(sets) for b in sets[k + 1 :])
        return None, (
            "processes on one host see overlapping devices "
            f"({' and '.join(sorted({v.names or 'all' for v in seen}))}): give all the same "
            f"{VARIABLES[0]}, or each its own"
            if alike
            else None
        )
    count = seen[index].count
    if not count or (count == 1 and seen[index].names is not None):
        return None, None  # no GPUs; or one each, which all see as the same number
    if count % len(seen):
        return None, (
            f"{len(seen)} processes on one host can't share its {count} devices evenly: start "
            f"one per host, or as many as divide {count}"
        )
    each = count // len(seen)
    return list(range(index * each, (index + 1) * each)), None


def _is_per_task(env: Mapping[str, str]) -> bool:
    """Tell whether Slurm gave this task devices of its own.

    The binding of the step (SLURMD_TRES_BIND) overrides that of the job (SLURM_GPU_BIND), and none
    shows all to all whatever was asked for per task.
    """
    step = re.search(r"\bgpu:([^+]*)", env.get("SLURMD_TRES_BIND", ""))
    binding = step[1] if step else env.get("SLURM_GPU_BIND", "")
    binding = re.sub(r"^(verbose|quiet),", "", binding)
    if binding.startswith("none"):
        return False
    return (
        binding.startswith("per_task")
        or any(env.get(name) for name in PER_TASK)
        or "gres/gpu" in env.get("SLURM_TRES_PER_TASK", "")
    )


def _nvidia_devices(devices: Path) -> int:
    return sum(bool(re.fullmatch(r"nvidia\d+", p.name)) for p in devices.glob("nvidia*"))


def _amd_devices(nodes: Path) -> int:
    """Return how many nodes of AMD's driver are GPUs: those of CPUs have the id 0."""
    found = 0
    for file in nodes.glob("*/gpu_id"):
        try:
            found += file.read_text().strip() not in ("", "0")
        except OSError:
            pass  # a GPU that a control group keeps from this process
    return found


def _accelerator_plugins() -> bool:
    """Tell whether JAX has plugins for accelerators, so that CPU need not be what it takes."""
    from importlib import metadata
    from importlib.util import find_spec

    return bool(metadata.entry_points(group="jax_plugins")) or find_spec("libtpu") is not None
