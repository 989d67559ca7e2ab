"""Checks of what surrounds a run: environment variables, scheduler, memory and cores.

All are functions of what they look at, so that any surroundings can be tested anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from jaxbench.launch.environment import GUARD, MALLOC, XLA_FLAGS, additions
from jaxbench.launch.findings import Finding, worst
from jaxbench.units import format_bytes

# What each platform of JAX_PLATFORMS needs: the start of a package's name, and how to get one.
PLUGINS: dict[str, tuple[tuple[str, ...], str]] = {
    "cpu": ((), ""),
    "cuda": (("jax-cuda",), "pip install 'jax[cuda12]'"),
    "rocm": (("jax-rocm",), "pip install 'jax[rocm7-local]'"),
    "gpu": (("jax-cuda", "jax-rocm"), "pip install 'jax[cuda12]'"),
    "tpu": (("libtpu",), "pip install 'jax[tpu]'"),
}

COUNT_FLAG = "--xla_force_host_platform_device_count"

# Settings of JAX that change what is measured, those that are on by a true value.
DISTORTING = {
    "JAX_DISABLE_JIT": "programs can't be compiled ahead of time, so that every run fails",
    "JAX_ENABLE_X64": "host values become 64 bits wide, which programs here are not made for",
    "JAX_DEBUG_NANS": "every result is looked at on the host",
    "JAX_DEBUG_INFS": "every result is looked at on the host",
    "JAX_CHECK_TRACER_LEAKS": "tracing becomes slow",
}
FATAL = ("JAX_DISABLE_JIT",)

# Of a task of a job step, as JAX's own detection of Slurm needs them.
SLURM_STEP = (
    "SLURM_JOB_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
)

LITTLE_MEMORY_BYTES = 2e9
BUSY = 0.5  # load per core from which on other programs are noticed


def check_settings(env: Mapping[str, str], packages: Iterable[str]) -> list[Finding]:
    """Return the findings about all variables; `packages` are the names of installed ones."""
    return [
        *check_platforms(env, packages),
        *check_xla_flags(env),
        *check_jax_settings(env),
        *check_allocator(env),
        *check_slurm(env),
    ]


def check_platforms(env: Mapping[str, str], packages: Iterable[str]) -> list[Finding]:
    """Check that what JAX_PLATFORMS names is installed."""
    check, given = "JAX_PLATFORMS", env.get("JAX_PLATFORMS", "")
    packages, findings = list(packages), []
    for name in [part.strip() for part in given.split(",") if part.strip()]:
        if name not in PLUGINS:
            known = ", ".join(PLUGINS)
            remedy = f"use one of {known}, unless a plugin of that name is installed"
            findings.append(Finding(check, "warning", f"names '{name}'", remedy))
            continue
        prefixes, install = PLUGINS[name]
        if prefixes and not any(package.startswith(prefixes) for package in packages):
            found = f"names '{name}', for which no package is installed"
            findings.append(Finding(check, "wrong", found, f"unset JAX_PLATFORMS, or {install}"))
    return worst(check, findings, given or "not set: JAX takes the fastest it finds")


def check_xla_flags(env: Mapping[str, str]) -> list[Finding]:
    """Check XLA_FLAGS, and the number of CPU devices, which may be set in two places."""
    check, flags = "XLA_FLAGS", env.get("XLA_FLAGS", "").split()
    findings = []
    if flags and not flags[0].startswith("--"):
        found = f"starts with '{flags[0]}', so that XLA takes it for a file's name"
        if not Path(flags[0]).is_file():
            findings.append(Finding(check, "wrong", found, "write flags as --name=value"))
        return findings or [Finding(check, "ok", f"in the file {flags[0]}")]
    values: dict[str, set[str]] = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        values.setdefault(name, set()).add(value)
    for name, several in values.items():
        if len(several) > 1:
            found = f"{name} is given as {' and as '.join(sorted(several))}"
            findings.append(Finding(check, "warning", found, "give it once"))
    if "--xla_disable_hlo_passes" in values:
        found = "switches passes of XLA off"
        remedy = "unset it: jaxbench does so where its programs need it"
        findings.append(Finding(check, "warning", found, remedy))
    counts = values.get(COUNT_FLAG, set()) | {env.get("JAX_NUM_CPU_DEVICES", "")} - {""}
    if len(counts) > 1:
        found = f"{COUNT_FLAG} and JAX_NUM_CPU_DEVICES disagree: {', '.join(sorted(counts))}"
        findings.append(Finding(check, "wrong", found, "unset both: a run sets what it needs"))
    elif counts:
        found = f"the number of CPU devices is set, to {min(counts)}"
        remedy = f"unset JAX_NUM_CPU_DEVICES and {COUNT_FLAG} for runs on more"
        findings.append(Finding(check, "warning", found, remedy))
    own = [flag for flag in flags if flag.partition("=")[0] not in XLA_FLAGS]
    return worst(check, findings, " ".join(own) or "none of yours")


def check_jax_settings(env: Mapping[str, str]) -> list[Finding]:
    """Check for settings of JAX that change what is measured."""
    findings = [
        Finding(name, "wrong" if name in FATAL else "warning", f"on: {effect}", f"unset {name}")
        for name, effect in DISTORTING.items()
        if env.get(name, "").lower() in ("1", "true", "t", "yes", "y", "on")
    ]
    return worst("JAX settings", findings, "none that distorts")


def check_allocator(env: Mapping[str, str]) -> list[Finding]:
    """Check that freed memory stays with the process, without which steps fault pages in again."""
    check, findings = "allocator", []
    missing = additions(env)
    if GUARD in env and missing:
        found = f"{GUARD} is set, so that {', '.join(missing)} will not be"
        findings.append(Finding(check, "warning", found, f"unset {GUARD}"))
    preload = env.get("LD_PRELOAD", "")
    if "malloc" in preload:
        found = f"LD_PRELOAD={preload} replaces it, and MALLOC_* say nothing to that"
        remedy = "unset LD_PRELOAD, or compare steps with and without"
        findings.append(Finding(check, "warning", found, remedy))
    own = {name: env[name] for name, value in MALLOC.items() if env.get(name, value) != value}
    for name, value in own.items():
        remedy = f"unset it, unless it is on purpose: jaxbench would set {MALLOC[name]}"
        findings.append(Finding(check, "warning", f"{name}={value} is set", remedy))
    return worst(check, findings, "glibc's, set by jaxbench when a run starts")


def check_slurm(env: Mapping[str, str]) -> list[Finding]:
    """Check that Slurm's variables are those of a whole task, or that there are none."""
    check = "Slurm"
    present = [name for name in SLURM_STEP if name in env]
    missing = [name for name in SLURM_STEP if name not in env]
    if not present:
        return [Finding(check, "ok", "not in a job")]
    if not missing:
        task = f"task {env['SLURM_PROCID']} of {env['SLURM_NTASKS']}"
        return [Finding(check, "ok", f"{task} in job {env['SLURM_JOB_ID']}")]
    lacks = f"{', '.join(missing)} not set"
    if "SLURM_JOB_ID" not in env:
        found = f"{', '.join(present)} set, but {lacks}"
        return [Finding(check, "warning", found, "unset what is left over from another job")]
    tasks = env.get("SLURM_NTASKS", "1")
    found = f"in job {env['SLURM_JOB_ID']}, but not as a task of a step: {lacks}"
    if tasks != "1":
        remedy = f"start with srun, or there will not be {tasks} processes that know each other"
        return [Finding(check, "wrong", found, remedy)]
    return [Finding(check, "warning", found, "start with srun for more than one process")]


def check_memory(root: Path = Path("/")) -> list[Finding]:
    """Check how much memory is free, and whether the container may use it; Linux only."""
    check, known = "memory", _meminfo(root / "proc/meminfo")
    total, free = known.get("MemTotal"), known.get("MemAvailable")
    if total is None or free is None:
        return [Finding(check, "warning", "unknown on this system", "runs aren't refused for it")]
    limit = _number(_text(root / "sys/fs/cgroup/memory.max"))
    findings = []
    if limit is not None and limit < total:
        used = _number(_text(root / "sys/fs/cgroup/memory.current")) or 0
        if limit - used < free:
            found = (
                f"{format_bytes(free)} free, of which this container may take "
                f"{format_bytes(max(0, limit - used))}"
            )
            remedy = "keep runs below that: beyond it they are killed without a word"
            findings.append(Finding(check, "warning", found, remedy))
            free = min(free, max(0, limit - used))
    if free < LITTLE_MEMORY_BYTES:
        found = f"{format_bytes(free)} free"
        findings.append(Finding(check, "warning", found, "end other programs, or --size_scale"))
    return worst(check, findings, f"{format_bytes(free)} free of {format_bytes(total)}")


def check_cores(
    root: Path = Path("/"), load: float | None = None, cores: int | None = None
) -> list[Finding]:
    """Check how many cores this process may use, and whether others use them.

    `load` and `cores` are the system's if not given.
    """
    check = "cores"
    may = cores or (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    load = os.getloadavg()[0] if load is None else load
    findings = []
    quota, _, period = _text(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if (allowed := _number(quota)) is not None and (length := _number(period)):
        share = allowed / length
        if share < may:
            found = f"{may}, but the container is stopped after the time of {share:.3g}"
            findings.append(
                Finding(check, "warning", found, "raise the CPU quota: times will jump with it")
            )
    if load > BUSY * may:
        found = f"{may}, with a load of {load:.1f}"
        findings.append(Finding(check, "warning", found, "end other programs: times will vary"))
    return worst(check, findings, f"{may}, with a load of {load:.1f}")


def _meminfo(path: Path) -> dict[str, int]:
    """Return the sizes of Linux's /proc/meminfo in bytes."""
    found = {}
    for line in _text(path).splitlines():
        name, _, rest = line.partition(":")
        if (size := _number(rest.split()[0] if rest.split() else "")) is not None:
            found[name] = size * 1024
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    """Return a whole number, None for anything else, such as a limit that is 'max'."""
    return int(text) if text.strip().isdecimal() else None
