"""The contract's compiled check for GPUs and TPUs, by compiling ahead of time without devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jaxbench.readings.targets import missing_packages, target_environment, target_platform
from tests.cases import CASES, case

pytestmark = pytest.mark.xdist_group("targets")  # one process compiles each target once

ROOT = Path(__file__).parents[2]
TARGETS = ("a100", "h100", "v5e", "v6e")
LIMIT_S = 240

# Cases that say nothing new about a compiler: they differ in numbers or in the timing model only.
ALIKE = {"dp-1", "fsdp-1", "dp-3", "fsdp-one-unit", "fsdp-1x6", "pp-1", "pp-6", "ep-1", "ep-top1"}


# What a second device of a kind is compiled for: one case of each strategy.
FEW: tuple[str, ...] = ("dp-8", "fsdp-2x4", "pp-2x4", "tp-2x2x2", "tp-sequence-1f1b", "ep-2x2x2")


def names_for(target: str) -> list[str]:
    """Return the cases a target has a slice for: TPU slices have 4 or 8 chips here."""
    names = [name for name in CASES if name not in ALIKE]
    if target in ("a100", "v6e"):
        names = list(FEW)
    if target_platform(target) == "tpu":
        names = [name for name in names if case(name).devices in (4, 8)]
    return names


@cache
def compiled_for(target: str) -> dict[str, dict[str, Any]]:
    """Compile all cases of a target in one process and return what it printed for each."""
    environment = {**os.environ, **target_environment(target), "PYTHONPATH": str(ROOT)}
    script = Path(__file__).with_name("compile_for_target.py")
    done = subprocess.run(
        [sys.executable, str(script), target, *names_for(target)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {row["case"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize(
    ("target", "name"),
    [
        pytest.param(target, name, marks=pytest.mark.slow) if target == "v6e" else (target, name)
        for target in TARGETS
        for name in names_for(target)
    ],
)
def test_the_target_compiler_keeps_what_is_written(target: str, name: str) -> None:
    if missing := missing_packages(target):
        text = f"compiling for {target} needs {', '.join(missing)}: pip install '.[aot]'"
        assert not os.environ.get("CI"), text
        pytest.skip(text)
    row = compiled_for(target)[name]
    assert row["collectives"] > 0
    assert row["comparison"] == "plan = compiled"
    assert row["buffer_bytes"] > 0 and row["temporary_bytes"] is not None


def test_bf16_travels_as_bf16_on_accelerators() -> None:
    for target in ("h100", "v5e"):
        if not missing_packages(target):
            assert "bf16" in compiled_for(target)["fsdp-f32-grads"]["wire_dtypes"]
