"""The JUBE benchmark, by its text: what it runs is valid, what it looks for is what is printed."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path
from string import Template

import pytest

from jaxbench.cli import run
from jaxbench.cli.command import read_command
from tests.report.test_figure_of_merit import GOLDEN, words

ROOT = Path(__file__).resolve().parent.parent
JUBE = ET.parse(ROOT / "scripts" / "jube" / "jaxbench.xml").getroot()

# Patterns that JUBE knows under these names: a word, a whole number, a floating-point number.
KNOWN = {
    "jube_pat_wrd": r"(\S+)",
    "jube_pat_int": r"([+-]?\d+)",
    "jube_pat_fp": r"([+-]?(?:\d+\.\d*|\.?\d+)(?:[eE][+-]?\d+)?)",
}
TYPES = {"string": str, "int": int, "float": float}


def named(tag: str) -> dict[str, ET.Element]:
    """Return the elements of a kind by their names, which are all different."""
    found = {element.attrib["name"]: element for element in JUBE.iter(tag)}
    assert found and len(found) == len([*JUBE.iter(tag)])
    return found


def text(element: ET.Element | None) -> str:
    assert element is not None and element.text
    return element.text


PARAMETERS = {name: text(element) for name, element in named("parameter").items()}


def test_what_is_used_is_there() -> None:
    assert JUBE.tag == "jube"
    sets = {**named("parameterset"), **named("patternset"), **named("analyser")}
    used = [text(element) for element in JUBE.iter("use")]
    assert sorted(used) == sorted(sets)
    assert {element.attrib["step"] for element in JUBE.iter("analyse")} == {*named("step")}
    assert [text(element) for element in JUBE.iter("file")] == ["stdout"]
    columns = [text(element) for element in JUBE.iter("column")]
    assert {*columns} <= {*PARAMETERS, *named("pattern")}


@pytest.mark.parametrize("strategy", PARAMETERS["strategy"].split(","))
def test_the_command(strategy: str) -> None:
    values = {**PARAMETERS, "strategy": strategy}
    command = text(JUBE.find(".//do"))
    while "$" in command:  # a parameter may hold others; KeyError if one isn't there
        command = Template(command).substitute(values)
    launcher, tasks, name, subcommand, *flags = shlex.split(command)
    assert [launcher, tasks, name, subcommand] == ["srun", "--ntasks=8", "jaxbench", "run"]
    read = read_command("run", flags, run.FLAGS)
    assert read.faults == [] and read.values["fom"] == "true"
    ((_, experiment),) = read.experiments
    assert experiment.strategy == strategy and experiment.devices == 8


@pytest.mark.parametrize("name", named("pattern"))
def test_patterns_find_what_is_printed(name: str) -> None:
    pattern = named("pattern")[name]
    regex = Template(text(pattern)).substitute(KNOWN)
    of = TYPES[pattern.get("type", "string")]
    printed = words(GOLDEN)[name]
    expected = [] if printed == "null" else [of(printed)]
    output = f"a table\nno {GOLDEN}\n{GOLDEN}\nFOM\n"
    assert [of(value) for value in re.findall(regex, output, re.MULTILINE)] == expected
