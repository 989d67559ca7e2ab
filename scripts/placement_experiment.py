#!/usr/bin/env python3
"""What placement does to a step, measured under a real Slurm and predicted by the simulator.

A private cluster of this machine has links that are slower the farther they go. Each workload runs
on four of its nodes, in one group of switches and over two, and is simulated with the rates that
the links were given. Exits 1 unless, for every workload and inter-group placement,

- the ranks were where they should be,
- the slower links show: more transfer is exposed than within a group,
- its ratio to that within a group is predicted within 30 %.

Needs root, and Slurm (see tests/cluster).

    python scripts/placement_experiment.py
    python scripts/placement_experiment.py dp --steps=6
    python scripts/placement_experiment.py --page=docs/placement_experiment.md
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from placement_page import BASE, EXPOSED, STEP, Row, page, pairs

from tests.cluster.cluster import Cluster, missing
from tests.cluster.placed_runs import (
    PAIRS,
    PLACEMENTS,
    SHAPED,
    latency_s,
    place_faults,
    run,
    system_file,
)

RATIO = 0.30

COMMON = (
    *("--model=tiny", "--dtype=float32", "--batch=16", "--size_scale=0.5"),
    *("--forward_s=0.010", "--backward_s=0.020"),
)
WORKLOADS = {
    "dp": ("--strategy=dp", "--buckets=4"),
    "fsdp": ("--strategy=fsdp", "--mesh=fsdp=4", "--units=4"),
    "fsdp, 2 replicas": ("--strategy=fsdp", "--mesh=fsdp=2", "--units=4"),
    "dp_pp": ("--strategy=dp_pp", "--mesh=pipeline=2", "--microbatches=4"),
}


class Found(NamedTuple):
    """Rows, latencies by tier, environments of the records, and what wasn't as it must be."""

    rows: list[Row]
    latencies_s: dict[str, float]
    environments: list[dict[str, Any]]
    faults: list[str]


def main() -> int:
    """Measure and predict, print a line per run and the verdict, and return the exit code."""
    parser = argparse.ArgumentParser(description="Placement, measured and predicted.")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--page", help="a file to write the page about it to")
    given = parser.parse_args()
    if strange := {*given.workloads} - {*WORKLOADS}:
        parser.error(f"unknown workloads {sorted(strange)}; known: {', '.join(WORKLOADS)}")
    if given.steps < 6:
        parser.error(f"--steps={given.steps}; an interval at 95 % needs at least 6")
    if reason := missing(namespaces=True):
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        found = experiment(given.workloads or [*WORKLOADS], given.steps, Path(folder))
    faults = [*found.faults, *verdicts(found.rows)]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{len(faults)} faults")
    if given.page:
        text = page(found.rows, SHAPED, PLACEMENTS, found.latencies_s, found.environments)
        Path(given.page).write_text(text, encoding="utf-8")
    return 1 if faults else 0


def experiment(workloads: Sequence[str], steps: int, folder: Path) -> Found:
    """Measure the latencies, then run and predict every workload on every placement."""
    system, topology = folder / "shaped.toml", folder / "topology.txt"
    found = Found([], {}, [], [])
    with Cluster(SHAPED) as cluster:
        topology.write_text(cluster.ask("scontrol", "show", "topology"))
        for tier, nodes in PAIRS.items():
            found.latencies_s[tier] = latency_s(cluster, nodes, folder / f"latency.{tier}")
        system.write_text(system_file(SHAPED, found.latencies_s))
        where = (f"--system={system}", f"--topology={topology}")
        for workload in workloads:
            flags = (*WORKLOADS[workload], *COMMON)
            for placement, nodes in PLACEMENTS.items():
                predicted = predict((*flags, *where, f"--placement=nodes:{','.join(nodes)}"))
                out = folder / f"{len(found.rows)}"
                record = run(cluster, nodes, (*flags, "--payload=sleep", f"--steps={steps}"), out)
                found.faults.extend(place_faults(record, SHAPED, nodes))
                found.environments.append(record["environment"])
                found.rows.append(Row(workload, placement, record["metrics"], predicted))
                print(line(found.rows[-1]), flush=True)
    return found


def predict(flags: Sequence[str]) -> dict[str, float]:
    """Return the metrics of a simulated step; collectives are rings, as they are in gloo."""
    command = [sys.executable, "-m", "jaxbench", "simulate", *flags, "--algorithm=ring"]
    done = subprocess.run(
        [*command, "--devices=4", "--format=json"],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["metrics"]


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Return what isn't as promised."""
    faults = []
    for row, base in pairs(rows):
        measured, predicted = row.ratios(base, EXPOSED)
        times = f"{row.workload}, {row.placement}: {measured:.2f} times the transfer of {BASE}"
        if row.measured[EXPOSED]["ci_low"] <= base.measured[EXPOSED]["ci_high"]:
            faults.append(f"{times}, but their intervals overlap")
        if abs(predicted / measured - 1) > RATIO:
            faults.append(f"{times} is exposed, but {predicted:.2f} times is predicted")
    return faults


def line(row: Row) -> str:
    """Return a row as a line of text."""
    parts = [f"{row.workload:17} {row.placement:22}"]
    for name, metric in (("step", STEP), ("transfer exposed", EXPOSED)):
        measured, predicted = row.measured[metric]["value"], row.predicted[metric]
        parts.append(f"{name} {measured * 1e3:7.1f} ms, {predicted * 1e3:7.1f} predicted")
        parts.append(f"({row.error(metric):+.1%})")
    return " ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
