"""What the README tells a person to type is right."""

from __future__ import annotations

import os
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from jaxbench.axes import STRATEGY_AXES
from jaxbench.cli.command import read_call, read_command
from jaxbench.cli.main import COMMANDS
from jaxbench.launch.watch import BAD_INPUT, FAILED, INTERRUPTED, TERMINATED

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


NO_EXPERIMENT = ("advise",)  # commands that find experiments themselves


@pytest.mark.parametrize("line", re.findall(r"^jaxbench (.+)$", README, re.MULTILINE))
def test_commands_are_valid(line: str) -> None:
    name, *words = shlex.split(line)
    module = import_module(COMMANDS[name])
    if hasattr(module, "read"):  # of a command that reads its words itself; raises InputError
        assert module.read(words)
    elif name in NO_EXPERIMENT:
        assert read_call(name, words, module.FLAGS).faults == []
    else:
        assert read_command(name, words, module.FLAGS).faults == []


def test_every_command_and_strategy_is_there() -> None:
    for name in COMMANDS:
        assert f"**`jaxbench {name}`**" in README
    for strategy, axes in STRATEGY_AXES.items():
        assert re.search(rf"^\| `{strategy}` \|.*\| {', '.join(axes)} \|", README, re.MULTILINE)


def test_exit_codes_are_all_named() -> None:
    said = README[README.index("Exit codes: ") :].partition("\n\n")[0]
    codes = {0, FAILED, BAD_INPUT, INTERRUPTED, TERMINATED}
    assert {int(code) for code in re.findall(r"\d+", said)} == codes


def test_the_two_scripts_can_be_run() -> None:
    for script in ("quickstart", "test"):
        assert f"\nscripts/{script} " in README
        assert os.access(ROOT / "scripts" / script, os.X_OK)
