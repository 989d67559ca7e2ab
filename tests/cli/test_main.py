"""The command as a person calls it: help, suggestions, exit codes, one line per fault."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest

from jaxbench import __version__
from jaxbench.cli import main as cli
from jaxbench.cli.flags import FLAGS
from jaxbench.cli.main import COMMANDS, SUMMARIES, main
from jaxbench.errors import InputError, RunError


def test_help_needs_no_heavy_import() -> None:
    code = (
        "import sys; from jaxbench.cli.main import main\n"
        "assert main(['--help']) == 0 and main(['run', '--help']) == 0\n"
        "print(sorted({'jax', 'numpy', 'rich', 'scipy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)
    assert list(COMMANDS) == list(SUMMARIES)
    assert main([]) == 2
    assert capsys.readouterr().err == text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jaxbench {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_s_help_shows_its_flags_and_two_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--steps=x", "--help", "--nonesuch"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"jaxbench {name}: ")
    assert len(re.findall(rf"^  jaxbench {name}( .+)?$", text, re.MULTILINE)) == 2
    module = import_module(COMMANDS[name])
    for flag in FLAGS:
        spelled = f"\n  --[no]{flag} " if FLAGS[flag].boolean else f"\n  --{flag} "
        assert (spelled in text) == (flag in module.FLAGS)
    known = "samples per data-parallel rank and step [16]"
    assert (known in text) == ("batch" in module.FLAGS)


def test_an_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rnu", "--batch=4"]) == 2
    error = capsys.readouterr().err
    known = ", ".join(sorted(COMMANDS))
    assert error == f"jaxbench: unknown command 'rnu'; did you mean 'run'? known: {known}\n"
    assert main(["--batch=4", "run"]) == 2
    assert "the command comes first" in capsys.readouterr().err


def test_one_fault_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--strategy=dp", "--model=tiny", "--devices=8"]
    assert main([*words, "--format=yaml"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "jaxbench plan: unknown format 'yaml'; known: json, text\n"


def test_many_faults_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--stratgy=dp", "--strategy=dpp", "--model=tiny", "--devices=0"]
    assert main([*words, "--out=/proc/results"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "jaxbench run: 4 faults:"
    assert lines[1] == "  unknown flag '--stratgy'; did you mean '--strategy'?"
    assert len(lines) == 5
    assert lines[4].startswith("  can't write results to '/proc/results': ")


def module_that(action: Callable[[], int]) -> ModuleType:
    """Return a subcommand's module whose main does `action`."""
    module = ModuleType("subcommand")
    module.__dict__["main"] = lambda words: action()
    return module


def raising(error: BaseException) -> Callable[[], int]:
    """Return a function that raises `error`."""

    def fail() -> int:
        raise error

    return fail


@pytest.mark.parametrize(
    ("action", "code", "text"),
    [
        (lambda: 0, 0, ""),
        (lambda: 1, 1, ""),
        (raising(InputError("x is wrong")), 2, "jaxbench x: x is wrong\n"),
        (raising(RunError("rank 3 has 5, not 4")), 1, "jaxbench x: rank 3 has 5, not 4\n"),
        (
            raising(ValueError("first line\nsecond")),
            1,
            "jaxbench x: failed: ValueError: first line (JAXBENCH_TRACEBACK=1 shows more)\n",
        ),
        (
            raising(KeyboardInterrupt()),
            130,
            "jaxbench x: interrupted; what is recorded is kept\n",
        ),
        (
            lambda: signal.raise_signal(signal.SIGTERM) or 0,
            143,
            "jaxbench x: terminated; what is recorded is kept\n",
        ),
    ],
)
def test_how_it_ends(
    action: Callable[[], int], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert cli.guarded("x", module_that(action), []) == code
    assert capsys.readouterr().err == text
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_code_does_not_depend_on_who_reads_why() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([sys.executable, "-m", "jaxbench", "plan", "--x=1"], stderr=write)
    finally:
        os.close(write)
    assert done.returncode == 2


def test_a_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAXBENCH_TRACEBACK", "1")
    assert cli.guarded("x", module_that(raising(ValueError("why"))), []) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_signal_that_garbage_collection_swallows_comes_again() -> None:
    """An exception out of a callback of the collector is dropped, and with it the signal's."""

    def callback(phase: str, info: dict[str, int]) -> None:
        gc.callbacks.remove(callback)
        signal.raise_signal(signal.SIGTERM)

    def work(words: list[str]) -> int:
        gc.callbacks.append(callback)
        gc.collect()
        time.sleep(5)
        return 0

    module = ModuleType("swallowing")
    vars(module).update(main=work)
    assert cli.guarded("run", module, []) == 143
