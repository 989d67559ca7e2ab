"""Building, caching and loading the native sleep handler (sleep.cc) on the machine that runs it.

The handler is compiled once per machine with the compiler found there, against the headers that
jaxlib ships. An entry of the cache is named `sleep-<key>-<content>.so`: `key` hashes what the
binary was built from and for, `content` is the hash of the file itself, so that one rename
publishes a finished entry and a damaged one is noticed before it is loaded. Two processes that
build at once publish the same or two equal entries; neither sees half of one.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import jax

from jaxbench.data import cache_folder

TARGET = "jaxbench_sleep"
SOURCE = Path(__file__).with_name("sleep.cc")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-pthread")
BUILD_LIMIT_S = 120


@dataclass(frozen=True)
class Native:
    """What came of loading the handler: the library, or the reason why there is none."""

    library: ctypes.CDLL | None
    reason: str = ""

    @property
    def available(self) -> bool:
        """Whether the handler can be called."""
        return self.library is not None

    def __str__(self) -> str:
        return "native" if self.available else self.reason


@functools.cache
def load() -> Native:
    """Load (and build, where the cache has none) the handler and register it with XLA, once.

    Never raises for what a machine may lack: the outcome says why there is no handler.
    """
    try:
        library = load_library(cache_folder())
    except _Unavailable as failure:
        return Native(None, str(failure))
    for counter in ("calls", "most_at_once", "stop"):
        getattr(library, f"jaxbench_sleep_{counter}").restype = ctypes.c_int64
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(getattr(library, TARGET)), platform="cpu")
    # Registered after JAX's own, so it runs before XLA is taken down.
    atexit.register(library.jaxbench_sleep_stop)
    return Native(library)


def load_library(cache: Path) -> ctypes.CDLL:
    """Return the loaded library from `cache`, built first if need be.

    A cache that can't be written (a read-only home) is replaced by a folder that lasts as long as
    the loading. Raises _Unavailable with the reason.
    """
    compiler = find_compiler()
    key = _key(compiler)
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _open(_cached(cache, key) or _build(compiler, cache, key))
    except OSError:
        with tempfile.TemporaryDirectory(prefix="jaxbench-") as folder:
            try:
                return _open(_build(compiler, Path(folder), key))
            except OSError as failure:
                raise _Unavailable(f"the native sleep can't be loaded: {failure}") from failure


def find_compiler() -> list[str]:
    """Return the command of the C++ compiler: CXX (with its arguments) if set, else a usual one."""
    if wanted := shlex.split(os.environ.get("CXX", "")):
        if shutil.which(wanted[0]) is None:
            raise _Unavailable(f"no native sleep: the compiler CXX='{wanted[0]}' isn't found")
        return wanted
    for name in COMPILERS:
        if shutil.which(name) is not None:
            return [name]
    raise _Unavailable(f"no native sleep: no C++ compiler found ({', '.join(COMPILERS)}, or CXX)")


class _Unavailable(Exception):
    """The handler can't be had here; the message is for the person who runs the program."""


def _key(compiler: list[str]) -> str:
    """Hash everything that a binary is made from and for."""
    version = _run([*compiler, "--version"], limit_s=30).stdout
    parts = (
        SOURCE.read_text(),
        metadata.version("jaxlib"),
        " ".join((*compiler, *FLAGS)),
        version,
        platform.system(),
        _cpu(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _cpu() -> str:
    """Name the processor: a home folder is often shared by machines of several kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line for line in lines if line.startswith(("model name", "CPU part", "cpu\t"))]
    return platform.machine() + (models[0] if models else platform.processor())


def _cached(cache: Path, key: str) -> Path | None:
    """Return the sound entry for `key`, deleting damaged ones."""
    for entry in sorted(cache.glob(f"sleep-{key}-*.so")):
        if entry.name == _entry_name(key, entry):
            return entry
        entry.unlink(missing_ok=True)
    return None


def _entry_name(key: str, library: Path) -> str:
    content = hashlib.sha256(library.read_bytes()).hexdigest()[:16]
    return f"sleep-{key}-{content}.so"


def _build(compiler: list[str], folder: Path, key: str) -> Path:
    """Compile into a file of this process alone and publish it by a rename."""
    handle, name = tempfile.mkstemp(prefix="building-", suffix=".so", dir=folder)
    os.close(handle)
    built = Path(name)
    try:
        include = ("-isystem", jax.ffi.include_dir())
        done = _run([*compiler, *FLAGS, *include, str(SOURCE), "-o", name], BUILD_LIMIT_S)
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
            error = next((line for line in last if "error" in line), last[-1])
            raise _Unavailable(f"no native sleep: {compiler[0]} failed: {error.strip()}")
        entry = folder / _entry_name(key, built)
        built.replace(entry)
        return entry
    finally:
        built.unlink(missing_ok=True)


def _run(command: list[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise _Unavailable(f"no native sleep: {command[0]} failed: {failure}") from failure


def _open(library: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(library))
