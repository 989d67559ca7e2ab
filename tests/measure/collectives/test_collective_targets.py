"""GPU and TPU compilers keep the benchmarked collectives, found by compiling without devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxbench.measure.collectives.kinds import KINDS
from jaxbench.readings.targets import missing_packages, target_environment

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("target", ["h100", pytest.param("v5e", marks=pytest.mark.slow)])
@pytest.mark.xdist_group("targets")
def test_the_target_compiler_keeps_what_is_timed(target: str) -> None:
    if missing := missing_packages(target):
        text = f"compiling for {target} needs {', '.join(missing)}: pip install '.[aot]'"
        assert not os.environ.get("CI"), text
        pytest.skip(text)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compile_collectives.py")), target],
        env={**os.environ, **target_environment(target), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 4 * len(KINDS)
    assert {row["comparison"] for row in rows} == {"plan = compiled"}
    # A branch would make a GPU wait for the host.
    assert {row["branches"] for row in rows} == {0}
