#!/usr/bin/env python3
"""How often `jaxbench compare` sees a difference where there is none (A/A), on this machine.

Each comparison has five runs a side, every run in a process of its own and the sides in turn, so
that a machine that drifts does so for both. At a confidence of 95 % one comparison in twenty says
'slower' or 'faster' by chance; exits 1 if more than three do.

    python scripts/benchmark_same.py
    python scripts/benchmark_same.py --comparisons=2
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jaxbench.measure.comparison import NO_DIFFERENCE, compare, read_side

RUNS = 5
MOST_ALARMS = 3
COMMAND = ("run", "--flagfile=flags/tiny_dp.flags", "--nodecompose", "--steps=10")


def main() -> int:
    """Make all comparisons, print one line each, and return the exit code."""
    parser = argparse.ArgumentParser(description="False alarms of jaxbench compare.")
    parser.add_argument("--comparisons", type=int, default=20)
    comparisons = parser.parse_args().comparisons
    alarms = 0
    for number in range(comparisons):
        with tempfile.TemporaryDirectory() as folder:
            for run in range(RUNS):
                for side in "ab" if run % 2 else "ba":
                    measure(f"{folder}/{side}")
            (compared,) = compare(read_side(f"{folder}/a"), read_side(f"{folder}/b")).rows
        alarms += compared.verdict != NO_DIFFERENCE
        low, high = compared.ratio.ci_low, compared.ratio.ci_high
        print(
            f"{number + 1:3}: ratio {compared.ratio.value:.4f} [{low:.4f}, {high:.4f}] "
            f"{compared.verdict}",
            flush=True,
        )
    print(f"{alarms} alarms in {comparisons} comparisons")
    return 1 if alarms > MOST_ALARMS else 0


def measure(out: str) -> None:
    """Make one run in a process of its own."""
    subprocess.run(
        [sys.executable, "-m", "jaxbench", *COMMAND, f"--out={out}"],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )


if __name__ == "__main__":
    sys.exit(main())
