"""The environment before the start: completed once, and a user's own values win."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jaxbench.launch.environment import (
    CACHE,
    CACHE_DIR,
    GUARD,
    MALLOC,
    XLA_FLAGS,
    additions,
    merge_xla_flags,
)

PROGRAM = """
import os, sys
from jaxbench.launch.environment import ensure_environment
print("start", *sys.argv[1:], flush=True)
ensure_environment()
print(os.environ["MALLOC_ARENA_MAX"], os.environ.get("XLA_FLAGS"))
"""


def test_nothing_set_gets_everything(tmp_path: Path) -> None:
    added = additions({"JAXBENCH_CACHE": str(tmp_path)})
    flags = {"TF_CPP_MIN_LOG_LEVEL": "2", "XLA_FLAGS": added["XLA_FLAGS"]}
    assert added == {**MALLOC, **flags, **CACHE, CACHE_DIR: str(tmp_path / "xla")}
    assert added["XLA_FLAGS"].split() == [f"{name}={value}" for name, value in XLA_FLAGS.items()]


def test_it_is_complete_the_second_time() -> None:
    env = {"XLA_FLAGS": "--xla_dump_to=/tmp/x"}
    assert additions({**env, **additions(env)}) == {}


def test_a_user_s_values_win() -> None:
    own = "--xla_cpu_collective_timeout_seconds=5 --xla_dump_to=/tmp/x"
    added = additions({"XLA_FLAGS": own, "MALLOC_ARENA_MAX": "4"})
    assert "MALLOC_ARENA_MAX" not in added
    flags = added["XLA_FLAGS"].split()
    assert flags[-2:] == own.split()
    assert len(flags) == 2 + len(XLA_FLAGS) - 1
    assert len({flag.partition("=")[0] for flag in flags}) == len(flags)


def test_without_a_folder_for_it_there_is_no_compilation_cache(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    added = additions({"JAXBENCH_CACHE": str(tmp_path / "file")})
    assert added and not {CACHE_DIR, *CACHE} & set(added)


def test_the_user_s_compilation_cache_wins(tmp_path: Path) -> None:
    own = {"JAXBENCH_CACHE": str(tmp_path), CACHE_DIR: "/theirs"}
    assert CACHE_DIR not in additions(own)


def test_flags_that_are_all_there_are_left_as_written() -> None:
    assert merge_xla_flags("  --a=1   --b", {"--a": "2", "--b": "3"}) == "  --a=1   --b"


def run(**env: str) -> list[str]:
    """Run a program that completes its environment; return what it printed."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in (*MALLOC, *CACHE, CACHE_DIR, GUARD, "XLA_FLAGS", "TF_CPP_MIN_LOG_LEVEL")
    }
    command = [sys.executable, "-c", PROGRAM, "a word"]
    done = subprocess.run(command, env={**clean, **env}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_one_restart_with_the_same_words() -> None:
    lines = run(XLA_FLAGS="--xla_x=1")
    assert lines[:2] == ["start a word", "start a word"]
    assert lines[2].startswith("1 --xla_cpu_") and lines[2].endswith("--xla_x=1")
    assert len(lines) == 3


def test_no_restart_where_nothing_is_missing() -> None:
    assert len(run(**additions({}))) == 2


def test_never_a_second_restart() -> None:
    lines = run(**{**additions({}), "XLA_FLAGS": "", GUARD: "1"})
    assert lines == ["start a word", "1 "]
