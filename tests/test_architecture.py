"""Imports point down only, flags are defined in cli only, and no file is named for nothing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "jaxbench"

# Bottom first; what stands on one line may not import each other unless it is one package.
LAYERS: list[set[str]] = [
    {"__init__", "errors", "units", "table", "data"},
    {"dtypes"},
    {"axes"},
    {"catalog"},
    {"timing_model"},
    {"experiment_rules"},
    {"experiment"},
    {"jaxprs", "primitives", "fills"},
    {"rank"},
    {"program"},
    {"workload"},
    {"training_memory"},
    {"topology"},
    {"costs"},
    {"payload"},
    {"strategies"},
    {"readings"},
    {"measure"},
    {"launch"},
    {"tenancy"},
    {"report"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Return the parts of jaxbench that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in found if name.startswith("jaxbench.")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    here = part_of(path)
    assert here in LEVEL, f"give '{here}' a layer"
    for there in imports(path) & set(LEVEL):
        assert there == here or LEVEL[there] < LEVEL[here], (
            f"{path} imports {there}, which is above"
        )


def test_the_imports_are_seen() -> None:
    """The test above would pass on files it can't read."""
    assert "strategies" in imports(PACKAGE / "readings" / "plan.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_flags_are_defined_in_cli_only(path: Path) -> None:
    if part_of(path) != "cli":
        assert not re.search(r"^\s*(import|from) absl", path.read_text(), re.MULTILINE)


def test_names_say_something() -> None:
    empty = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not {p for p in FILES if p.stem in empty}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 420, "could one idea move out?"


@pytest.mark.parametrize("name", ["dp", "fsdp", "dp_pp", "dp_pp_tp", "dp_pp_ep"])
def test_a_strategy_holds_no_set_up(name: str) -> None:
    """A strategy file is about ranks: no devices, no mesh, no jit, no flags, no clock."""
    text = (PACKAGE / "strategies" / f"{name}.py").read_text()
    for word in ("jax.devices", "Mesh", "jax.jit", "shard_map", "perf_counter", "os.environ"):
        assert word not in text
