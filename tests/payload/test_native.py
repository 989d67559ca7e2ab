"""Builds are tested with a stand-in for the compiler, which counts how often it is called."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jaxbench.payload import native

COMPILER = """#!{python}
import os, sys, time
if "--version" in sys.argv:
    print(os.environ["FAKE_VERSION"])
    sys.exit()
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write("built\\n")
time.sleep(float(os.environ.get("FAKE_BUILD_S", "0")))
if "FAKE_ERROR" in os.environ:
    print("sleep.cc:1: note: on the way")
    print(os.environ["FAKE_ERROR"], file=sys.stderr)
    sys.exit(1)
with open(sys.argv[sys.argv.index("-o") + 1], "wb") as out:
    out.write(b"library " * 1000)
"""


class Compiler:
    """The stand-in: a program that writes some bytes where the library should go."""

    def __init__(self, folder: Path):
        self.path = folder / "fake c++"
        self.path.write_text(COMPILER.format(python=sys.executable))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)
        self.log = folder / "log"
        self.log.touch()

    @property
    def builds(self) -> int:
        return len(self.log.read_text().splitlines())


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    made = Compiler(tmp_path)
    monkeypatch.setenv("CXX", f"'{made.path}' -O0")
    monkeypatch.setenv("FAKE_VERSION", "fake 1.0")
    monkeypatch.setenv("FAKE_LOG", str(made.log))
    # The stand-in's library can't be loaded: hand out its bytes instead.
    monkeypatch.setattr(native, "_open", lambda library: library.read_bytes())
    return made


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


def test_the_second_load_finds_the_first_build(compiler, tmp_path):
    cache = tmp_path / "new" / "cache"
    first, second = native.load_library(cache), native.load_library(cache)
    assert first == second == b"library " * 1000
    assert compiler.builds == 1
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("damage", [b"", b"library " * 999, b"Library " * 1000])
def test_a_damaged_entry_is_replaced(compiler, tmp_path, damage):
    native.load_library(tmp_path / "cache")
    (name,) = entries(tmp_path / "cache")
    (tmp_path / "cache" / name).write_bytes(damage)
    assert native.load_library(tmp_path / "cache") == b"library " * 1000
    assert compiler.builds == 2
    assert entries(tmp_path / "cache") == [name]


def test_another_compiler_version_is_another_entry(compiler, tmp_path, monkeypatch):
    native.load_library(tmp_path / "cache")
    monkeypatch.setenv("FAKE_VERSION", "fake 1.1")
    native.load_library(tmp_path / "cache")
    assert compiler.builds == 2
    assert len(entries(tmp_path / "cache")) == 2


@pytest.mark.parametrize("change", ["source", "jaxlib", "cpu"])
def test_what_the_build_depends_on_is_in_the_key(compiler, tmp_path, monkeypatch, change):
    native.load_library(tmp_path / "cache")
    if change == "source":
        other = tmp_path / "sleep.cc"
        other.write_text(native.SOURCE.read_text() + "\n")
        monkeypatch.setattr(native, "SOURCE", other)
    elif change == "jaxlib":
        monkeypatch.setattr(native.metadata, "version", lambda package: "0.99")
    else:
        monkeypatch.setattr(native, "_cpu", lambda: "another processor")
    native.load_library(tmp_path / "cache")
    assert compiler.builds == 2


def test_a_cache_that_cannot_be_written_is_done_without(compiler, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert native.load_library(tmp_path / "file" / "cache") == b"library " * 1000


def test_a_failed_build_leaves_nothing_and_tells_the_error(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ERROR", "sleep.cc:7: error: no such type\nmake: stop")
    monkeypatch.setenv("JAXBENCH_CACHE", str(tmp_path / "cache"))
    outcome = native.load.__wrapped__()
    assert not outcome.available
    assert str(outcome).endswith("failed: sleep.cc:7: error: no such type")
    assert entries(tmp_path / "cache") == []


def test_processes_that_build_at_once_all_get_a_whole_library(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_BUILD_S", "0.5")
    script = (
        "import pathlib, sys\n"
        "from jaxbench.payload import native\n"
        "native._open = lambda library: library.read_bytes()\n"
        "print(len(native.load_library(pathlib.Path(sys.argv[1]))))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "cache")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=100)[0].strip() for process in running] == ["8000"] * 3
    assert len(entries(tmp_path / "cache")) == 1
    assert compiler.builds >= 1


def test_without_compiler_the_reason_names_what_was_looked_for(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = native.load.__wrapped__()
    assert not outcome.available
    assert "no C++ compiler found (c++, g++, clang++, or CXX)" in str(outcome)


def test_a_wanted_compiler_that_is_missing_is_not_replaced_by_another(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++ -O3")
    assert "CXX='/nowhere/g++' isn't found" in str(native.load.__wrapped__())


@pytest.mark.skipif(
    not any(map(shutil.which, native.COMPILERS)) and "CXX" not in os.environ,
    reason="no C++ compiler on this machine",
)
def test_the_real_thing_builds_and_is_registered_once():
    outcome = native.load()
    assert outcome.available, str(outcome)
    assert str(outcome) == "native"
    assert native.load() is outcome
