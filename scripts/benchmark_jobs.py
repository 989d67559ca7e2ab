#!/usr/bin/env python3
"""How long it takes to simulate jobs that share Leonardo's network, over jobs, by routing.

The paper's workloads on 8 to 512 GPUs each, many of them small, on as few groups as hold them all,
their placements of several classes. Prints a table and exits 1 if a promise isn't kept: 100 jobs on
2,040 GPUs under one routing take less than 30 s, everything but imports included. `profiles` is
what it takes to simulate each job alone and cut its step into phases, `together` the rest, with 5
seeds; `median` and `worst` are over all jobs' median slowdowns.

    python scripts/benchmark_jobs.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from jaxbench.catalog.systems import System, find_system
from jaxbench.cli.flagfile import read_flagfile
from jaxbench.costs.routing import ROUTINGS
from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.readings.jobs import Job, simulate_jobs, traffic_profiles
from jaxbench.table import print_table
from jaxbench.topology.hierarchy import of_system
from jaxbench.topology.placement import Placement, place
from jaxbench.units import format_count, format_seconds

SYSTEM = "leonardo"
JOBS = (25, 50, 100, 200)
PROMISED_JOBS, PROMISED_S = 100, 30.0

# 100 jobs on 2,040 GPUs: how many of which size, and what they run in turn.
SIZES: dict[int, tuple[int, tuple[str, ...]]] = {
    512: (1, ("dp_pp_ep_mixtral_8x7b",)),
    224: (1, ("dp_pp_tp_llama3_70b",)),
    64: (4, ("dp_pp_llama3_8b", "fsdp_llama3_8b", "dp_vit_h14")),
    32: (10, ("dp_vit_h14", "fsdp_minerva_7b", "dp_pp_minerva_7b", "dp_pp_llama3_8b")),
    16: (7, ("fsdp_llama3_8b", "dp_pp_minerva_7b", "dp_vit_h14")),
    8: (77, ("dp_vit_h14", "fsdp_minerva_7b", "dp_pp_minerva_7b")),
}
CLASSES = ("inter-group", "inter-group-same-l1-2", "inter-group", "intra-group", "")


def main() -> int:
    """Measure every number of jobs under every routing; return the exit code."""
    system = find_system(SYSTEM)
    rows, missed = [], []
    for count in JOBS:
        jobs = make_jobs(system, count)
        gpus = sum(job.placement.ranks for job in jobs)
        start = time.perf_counter()
        traffic_profiles(jobs, system)
        profiles_s = time.perf_counter() - start
        for routing in ROUTINGS:
            start = time.perf_counter()
            outcome = simulate_jobs(jobs, system, routing=routing)
            taken = time.perf_counter() - start
            medians = [job.median for job in outcome.jobs]
            rows.append(
                (
                    str(count),
                    format_count(gpus),
                    routing,
                    format_seconds(profiles_s),
                    format_seconds(taken - profiles_s),
                    format_seconds(taken),
                    format_count(outcome.events),
                    f"{np.median(medians):.3f}",
                    f"{max(medians):.2f}",
                )
            )
            if count == PROMISED_JOBS and taken >= PROMISED_S:
                missed.append(f"{count} jobs, {routing}: {taken:.1f} s, promised {PROMISED_S:g} s")
    head = ("jobs", "GPUs", "routing", "profiles", "together", "all", "events", "median", "worst")
    print_table(head, rows, title=f"jobs at once on {SYSTEM}")
    for fault in missed:
        print(f"MISSED: {fault}")
    return 1 if missed else 0


def make_jobs(system: System, count: int) -> list[Job]:
    """Return jobs placed one after the other, each on nodes of its own."""
    work = [
        (size, names[number % len(names)])
        for size, (many, names) in SIZES.items()
        for number in range(many)
    ]
    # Of fewer jobs every so many of these, of more these over again.
    chosen = [work[number * max(len(work) // count, 1) % len(work)] for number in range(count)]
    topology = of_system(system)
    nodes = sum(-(-size // system.devices_per_node) for size, _ in chosen)
    groups = int(np.searchsorted(np.cumsum(topology.group_sizes), nodes)) + 1
    free = topology.group < groups
    jobs = []
    for number, (size, name) in enumerate(chosen):
        flags = {"devices": str(size), "hardware": system.hardware, "system": system.name}
        values = {**read_flagfile(f"flags/paper_{name}.flags").values, **flags}
        experiment = Experiment.from_flags(values)
        placement = somewhere(system, size, free, number)
        free[placement.node] = False
        jobs.append(Job(f"{number} {name} on {size}", experiment, placement))
    return jobs


def somewhere(system: System, size: int, free: np.ndarray, number: int) -> Placement:
    """Place a job in a class of its own turn, or the next one that the free nodes allow."""
    for offset in range(len(CLASSES)):
        name = CLASSES[(number + offset) % len(CLASSES)]
        try:
            return place(of_system(system), system, size, name, seed=number, free=free)
        except InputError:
            continue
    raise SystemExit(f"no place for {size} devices")


if __name__ == "__main__":
    sys.exit(main())
