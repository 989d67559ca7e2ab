#!/usr/bin/env python3
"""Whether job steps that run at once are right and separate, on a private Slurm of this machine.

Three steps of one job at a time, first on nodes of their own, then all on the same nodes; exits 1
unless every record of every try is right. Needs root, and Slurm (see tests/cluster).

    python scripts/check_slurm_steps.py
    python scripts/check_slurm_steps.py --tries=2
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.cluster.cluster import Cluster, missing
from tests.cluster.layout import Layout
from tests.cluster.three_steps import run_tries


def main() -> int:
    """Make all tries, print a line for each way, and return the exit code."""
    parser = argparse.ArgumentParser(description="Concurrent job steps of jaxbench.")
    parser.add_argument("--tries", type=int, default=20)
    tries = parser.parse_args().tries
    if reason := missing(namespaces=True):
        print(reason, file=sys.stderr)
        return 1
    wrong = 0
    with Cluster(Layout(namespaces=True)) as cluster, tempfile.TemporaryDirectory() as folder:
        for shared in (False, True):
            start = time.monotonic()
            faults = run_tries(cluster, shared, tries, Path(folder) / str(shared))
            nodes = "the same nodes" if shared else "nodes of their own"
            seconds = time.monotonic() - start
            print(f"3 steps at once on {nodes}: {tries} tries, {seconds:.0f} s", flush=True)
            print(*faults, sep="\n", end="\n" if faults else "")
            wrong += len(faults)
    print(f"{wrong} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
