"""Where a measurement was taken: versions, devices, host, scheduler, revision.

Facts that are not to be had are None, so that records keep one form everywhere.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jaxbench

_CHECKOUT = Path(jaxbench.__file__).resolve().parent.parent

PACKAGES = ("jax", "jaxlib", "numpy")

# Variables that change what is measured.
STEERING = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "JAX_PLATFORMS",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "NPROC",
    "PJRT_NPROC",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
)

SLURM = (
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_NODEID",
    "SLURMD_NODENAME",
    "SLURM_TOPOLOGY_ADDR",
)


def environment(devices: Sequence[Any]) -> dict[str, Any]:
    """Return the facts of this process and of the jax.Devices that a run used."""
    first = devices[0]
    return {
        "versions": versions(),
        "platform": first.platform,
        "device_kind": first.device_kind,
        "devices": len(devices),
        "processes": len({device.process_index for device in devices}),
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": memory_bytes(),
        "load_1min": os.getloadavg()[0],
        "variables": chosen(os.environ, STEERING),
        "slurm": chosen(os.environ, SLURM),
        "git_revision": git_revision(),
    }


def versions() -> dict[str, str | None]:
    """Return the versions of jaxbench, Python and the packages that run its programs."""
    found: dict[str, str | None] = {
        "jaxbench": jaxbench.__version__,
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def chosen(env: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return those of the named variables that are set."""
    return {name: env[name] for name in names if name in env}


def cpu_model(cpuinfo: str | os.PathLike[str] = "/proc/cpuinfo") -> str | None:
    """Return the processor's name, as Linux gives it, else as Python does."""
    try:
        for line in Path(cpuinfo).read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


def memory_bytes() -> int | None:
    """Return the machine's main memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def git_revision(folder: Path = _CHECKOUT) -> str | None:
    """Return the commit of the checkout this package runs from, with '+' if files differ."""
    if not (folder / ".git").exists():
        return None
    try:
        revision = _git(folder, "rev-parse", "HEAD")
        return revision + ("+" if _git(folder, "status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
