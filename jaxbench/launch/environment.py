"""Environment that must be there before the process starts, set by one re-exec.

glibc reads MALLOC_* and XLA reads XLA_FLAGS once, so they can't be set from inside. A
user's own values always win, in XLA_FLAGS flag by flag.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from jaxbench.data import cache_folder

# Freed buffers stay with the process: without this a step takes some 100,000 page faults,
# as glibc returns every large buffer to the kernel and fetches it again, zeroed.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_ARENA_MAX": "1",
}

# XLA's CPU collectives abort the process when a rank is late by 40 s, which hundreds of
# virtual devices on a few cores are.
XLA_FLAGS = {
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds": "600",
    "--xla_cpu_collective_call_terminate_timeout_seconds": "1200",
    "--xla_cpu_collective_timeout_seconds": "1800",
}

# 0 info, 1 warnings, 2 errors: what XLA's C++ prints from.
LOG = {"TF_CPP_MIN_LOG_LEVEL": "2"}

# What is compiled is kept from one process to the next, however short it took to compile.
CACHE_DIR = "JAX_COMPILATION_CACHE_DIR"
CACHE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

GUARD = "JAXBENCH_ENVIRONMENT_SET"


def additions(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set or to replace in `env`; nothing if all is there already."""
    wanted = {**MALLOC, **LOG, **_compilation_cache(env)}
    missing = {name: value for name, value in wanted.items() if name not in env}
    flags = env.get("XLA_FLAGS", "")
    merged = merge_xla_flags(flags, XLA_FLAGS)
    return {**missing, **({"XLA_FLAGS": merged} if merged != flags else {})}


def _compilation_cache(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of JAX's compilation cache; none where its folder can't be made."""
    try:
        folder = cache_folder(env) / "xla"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return {}
    return {CACHE_DIR: str(folder), **CACHE} if os.access(folder, os.W_OK) else {}


def merge_xla_flags(flags: str, wanted: Mapping[str, str]) -> str:
    """Return `flags` with each wanted one that it doesn't name yet, in front of the user's."""
    names = {flag.partition("=")[0] for flag in flags.split()}
    added = [f"{name}={value}" for name, value in wanted.items() if name not in names]
    return " ".join([*added, flags]).strip() if added else flags


def ensure_environment() -> None:
    """Replace this process by the same command with the environment complete; at most once."""
    missing = additions(os.environ)
    if not missing or GUARD in os.environ:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    env = {**os.environ, **missing, GUARD: "1"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], env)
