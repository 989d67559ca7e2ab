#!/usr/bin/env python3
"""How long a simulation takes, over ranks: prints a table, exits 1 if a promise isn't kept.

- a dp_pp_tp step of llama3_70b on 4,096 ranks in under .5 s, on 131,072 in under 20 s and 8 GiB
- an all-reduce of 1 MB over 1,024 ranks in under .1 s
- the paper's isolated configurations (arXiv 2609.00817) on every system of meshes/ in under 60 s

Ranks are placed on nodes in order, and on nodes drawn at random, where no two replicas have the
same links. `trace` is what JAX takes to write the program down, `price` the placement on 131,072
H100s, `simulate` the walk with costs of all groups, `predict` all of that with the four walks in
one that take a step apart. Nothing is kept between rows but imports.

    python scripts/benchmark_simulate.py
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jaxbench.catalog.systems import system_names
from jaxbench.cli.flagfile import read_flagfile
from jaxbench.cli.reproduce_paper import experiment
from jaxbench.experiment import Experiment
from jaxbench.program import abstract_mesh, trace
from jaxbench.readings.paper.campaign import COUNTS, Campaign
from jaxbench.readings.plan import build_program
from jaxbench.readings.predict import predict_system
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.simulate import simulate
from jaxbench.readings.simulate.system import price
from jaxbench.table import print_table
from jaxbench.units import format_bytes, format_count, format_seconds

SYSTEM = "h100_pods"
FLAGFILE = "flags/paper_dp_pp_tp_llama3_70b.flags"
RANKS = (256, 1024, 4096, 16384, 65536, 131072)
PLACEMENTS = ("", "intra-group")
STEP_S = {4096: 0.5, 131072: 20.0}
MEMORY_BYTES = 8 * 2**30
REDUCE_S = 0.1
CAMPAIGN_S = 60.0

Made = TypeVar("Made")


def main() -> int:
    """Measure steps, the all-reduce and the paper's runs; return the exit code."""
    missed = [row for row in (*steps(), all_reduce(), campaign()) if row]
    for fault in missed:
        print(f"MISSED: {fault}")
    return 1 if missed else 0


def steps() -> list[str]:
    """Print the table of steps; return which promises aren't kept."""
    rows, missed = [], []
    for ranks in RANKS:
        for placement in PLACEMENTS:
            flags = {"devices": str(ranks), "system": SYSTEM, "hardware": "h100"}
            e = Experiment.from_flags({**read_flagfile(FLAGFILE).values, **flags})
            program = build_program(e)[1]
            traced, trace_s = timed(lambda p=program, e=e: trace(p, abstract_mesh(e.mesh)))
            priced, price_s = timed(lambda e=e, p=placement: price(e, SYSTEM, placement=p))
            found, simulate_s = timed(
                lambda t=traced, e=e, p=priced: simulate(
                    t.closed, Ranks(e.mesh), p.costs, p.semantics
                )
            )
            _, predict_s = timed(lambda e=e, p=placement: predict_system(e, SYSTEM, placement=p))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            times = (trace_s, price_s, simulate_s, predict_s, found.step_s)
            place = placement or "in order"
            rows.append((format_count(ranks), place, *map(format_seconds, times)))
            rows[-1] = (*rows[-1], format_bytes(peak))
            if simulate_s > STEP_S.get(ranks, float("inf")):
                missed.append(f"{ranks} ranks took {simulate_s:.3g} s, not {STEP_S[ranks]} s")
            if peak > MEMORY_BYTES:
                missed.append(f"{ranks} ranks took {format_bytes(peak)}, not 8 GiB")
    header = ("ranks", "nodes", "trace", "price", "simulate", "predict", "step", "peak memory")
    print_table(header, rows, title="dp_pp_tp llama3_70b")
    return missed


def all_reduce() -> str:
    """Print how long one all-reduce over 1,024 ranks takes; return the promise if it isn't kept."""
    axes = (("data", 1024),)
    step = jax.shard_map(
        lambda x: jax.lax.psum(x, "data"),
        mesh=abstract_mesh(axes),
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec("data"),
        check_vma=False,
    )
    argument = jax.ShapeDtypeStruct((1024 * 250_000,), jnp.float32)  # 1 MB a rank
    e = Experiment.from_flags({"strategy": "dp", "model": "tiny", "devices": "1024"})
    priced = price(e, SYSTEM)
    closed = jax.jit(step).trace(argument).jaxpr
    found, seconds = timed(lambda: simulate(closed, Ranks(axes), priced.costs, priced.semantics))
    print(f"all-reduce of 1 MB over 1,024 ranks: {format_seconds(seconds)}")
    print(f"  ({format_seconds(found.step_s)} on the system, {found.uses[0].cost.algorithm})")
    return "" if seconds < REDUCE_S else f"the all-reduce took {seconds:.3g} s, not {REDUCE_S} s"


def campaign() -> str:
    """Print how long the paper's isolated runs take on all systems; return what was missed."""
    campaign, count = Campaign(experiment, "true"), 0

    def all_of_them() -> None:
        nonlocal count
        for system in system_names():
            for name in COUNTS:
                for small in (True, False):
                    for devices in campaign.feasible(name, system, small):
                        campaign.predict(name, system, devices)
                        count += 1

    _, seconds = timed(all_of_them)
    print(f"{count} isolated runs on {len(system_names())} systems: {format_seconds(seconds)}")
    return "" if seconds < CAMPAIGN_S else f"the paper's runs took {seconds:.3g} s"


def timed(action: Callable[[], Made]) -> tuple[Made, float]:
    """Return what an action returns and the seconds it took."""
    start = time.perf_counter()
    made = action()
    return made, time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
