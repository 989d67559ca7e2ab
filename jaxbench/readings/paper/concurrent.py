"""Claims about jobs that run at once, and about what only real machines do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxbench.catalog.systems import find_system
from jaxbench.readings.jobs import Job, JobsOutcome, simulate_jobs
from jaxbench.readings.paper.campaign import Campaign
from jaxbench.readings.paper.evidence import OUT_OF_REACH, Evidence, ends, judge, span
from jaxbench.topology.hierarchy import of_system
from jaxbench.topology.placement import place

ROUTINGS = ("minimal", "adaptive", "static")
LOADS = (0.0, 0.3, 0.6)  # of every link outside of nodes, taken by others
RESERVED_GROUPS = 3
SEEDS = range(3)

DP, PIPELINE = "dp_vit_h14", "dp_pp_llama3_8b"
TENSOR, EXPERT, FSDP = "dp_pp_tp_llama3_70b", "dp_pp_ep_mixtral_8x7b", "fsdp_llama3_8b"


class Asked(NamedTuple):
    """A job of a mix: a configuration, its GPUs, and its placement class."""

    name: str
    devices: int
    placement: str = ""


# Half of a large reservation for hybrids, the rest for small jobs, placed as the campaign does.
MIX = (
    Asked(TENSOR, 512, "inter-group"),
    Asked(TENSOR, 256, "inter-group"),
    Asked(PIPELINE, 64, "inter-group"),
    Asked(PIPELINE, 64, "inter-group"),
    *(Asked(FSDP, 64, "inter-group") for _ in range(2)),
    *(Asked(DP, 64, "inter-group") for _ in range(4)),
    *(Asked(DP, 8, "inter-group") for _ in range(4)),
)


def together(
    c: Campaign,
    system_name: str,
    asked: Sequence[Asked],
    routing: str = "minimal",
    foreign_load: float = 0.0,
    groups: int | None = None,
) -> JobsOutcome:
    """Place the jobs one after the other on free nodes (of the first `groups`) and run them."""
    system = find_system(system_name)
    topology = of_system(system)
    free = np.ones(topology.nodes, bool) if groups is None else topology.group < groups
    jobs = []
    for number, job in enumerate(asked):
        alone = job.devices <= system.devices_per_node  # a node is in one group
        placement = "intra-l1" if alone and job.placement else job.placement
        where = place(topology, system, job.devices, placement, seed=number, free=free)
        free = free.copy()
        free[where.node] = False
        experiment = c.experiment(job.name, system_name, job.devices)
        jobs.append(Job(f"{number} {job.name}", experiment, where))
    return simulate_jobs(
        jobs, system, routing=routing, foreign_load=foreign_load, seeds=tuple(SEEDS)
    )


def slowdowns(outcome: JobsOutcome, name: str = "") -> list[float]:
    """Return the mean slowdown of each job whose configuration is `name` ('': of all)."""
    return [float(np.mean(job.slowdowns)) for job in outcome.jobs if name in job.name]


def in_a_node(c: Campaign) -> Evidence:
    """11: two jobs on the halves of a node; a switch that doesn't block shares no link."""
    system = find_system("dgx_a100")
    half = place(of_system(system), system, 4)
    other = replace(half, local=half.local + 4)
    jobs = [
        Job(name, c.experiment(name, "dgx_a100", 4), where)
        for name, where in ((DP, half), (PIPELINE, other))
    ]
    found = slowdowns(simulate_jobs(jobs, system, seeds=tuple(SEEDS)))
    said = f"{span([f - 1 for f in found])}: no shared link; outliers to 21x need a stall"
    return Evidence(OUT_OF_REACH, said, ends("slowdown", found), "the outliers")


def in_a_rack(c: Campaign) -> Evidence:
    """12: jobs of 32, 16 and 16 GPUs on one NVLink domain."""
    asked = (Asked(DP, 32), Asked(PIPELINE, 16), Asked(FSDP, 16))
    found = slowdowns(together(c, "gb300_nvl72", asked))
    said = f"{span([f - 1 for f in found])}: no shared link"
    return judge(max(found) <= 1.015, said, ends("slowdown", found))


def nodes_per_switch(c: Campaign) -> Evidence:
    """13: ten such jobs on a reservation of three groups, under each routing."""

    def mean(placement: str, routing: str, load: float) -> float:
        asked = [Asked(TENSOR, 224, placement)] * 10
        outcome = together(c, "jupiter", asked, routing, load, RESERVED_GROUPS)
        return float(np.mean(slowdowns(outcome))) - 1

    scattered = {r: mean("inter-group", r, 0.0) for r in ROUTINGS}
    blocked = {r: mean("inter-group-same-l1-4", r, 0.0) for r in ROUTINGS}
    said = "; ".join(
        f"{r}: {100 * scattered[r]:.1f} % -> {100 * blocked[r]:.1f} %" for r in ROUTINGS
    )
    values = {f"scattered_{r}": v for r, v in scattered.items()}
    values |= {f"blocked_{r}": v for r, v in blocked.items()}

    def falls(routing: str) -> bool:
        return scattered[routing] >= 0.08 and blocked[routing] <= scattered[routing] / 2

    others = [r for r in ROUTINGS if r != "adaptive" and falls(r)]
    effect = f"{' or '.join(others or ROUTINGS)} routing"
    return judge(falls("adaptive"), said, values, effect=effect, with_effect=bool(others))


def without_reservation(c: Campaign) -> Evidence:
    """14: one job over all groups, with other jobs and a foreign load beside it."""
    asked = (Asked(EXPERT, 1024, "inter-group"), *(Asked(DP, 64, "inter-group"),) * 4)
    found = {
        (routing, load): slowdowns(together(c, "leonardo", asked, routing, load), EXPERT)[0] - 1
        for routing in ROUTINGS
        for load in LOADS
    }
    by_load = {load: [found[r, load] for r in ROUTINGS] for load in LOADS}
    said = "; ".join(f"foreign load {load:.0%}: {span(by_load[load])}" for load in LOADS)
    values = {f"{r}_{load:g}": value for (r, load), value in found.items()}
    reached = [load for load in LOADS if max(by_load[load]) >= 0.5]
    holds = bool(reached) and reached[0] == 0.0
    effect = f"a foreign load of {(reached or LOADS[-1:])[0]:.0%}"
    return judge(holds, said, values, effect=effect, with_effect=bool(reached))


def worst_outlier(c: Campaign) -> Evidence:
    """15: the worst step of dp jobs of 8 GPUs in a mix."""
    outcome = together(c, "leonardo", MIX, "static")
    worst = max(job.max for job in outcome.jobs if DP in job.name and job.ranks == 8)
    said = f"worst step of 8-GPU dp in a mix {worst:.2f}x; 106x needs a stall"
    return Evidence(OUT_OF_REACH, said, {"worst": worst}, "the outliers")


def isolated_variance(c: Campaign) -> Evidence:
    """16: a model without noise has none, and says so."""
    p = c.predict(FSDP, "alps", 64)
    said = (
        f"{100 * p.communication_relevance:.1f} % communication; a job alone always takes the same "
        "time in a fluid"
    )
    return Evidence(OUT_OF_REACH, said, {"relevance": p.communication_relevance}, "the variance")


def hybrids_undisturbed(c: Campaign) -> Evidence:
    """17: hybrids in a mix, under each routing; the variance of dp is out of reach."""
    found = [s - 1 for r in ROUTINGS for s in slowdowns(together(c, "lumi_g", MIX, r), "dp_pp")]
    said = f"hybrids {span(found)} slower; dp's variance is out of a fluid's reach"
    return judge(max(found) <= 0.05, said, ends("hybrids", found), effect="")


def production_varies(c: Campaign) -> Evidence:
    """18: what a foreign load does; how much of it there was isn't known."""
    spread = [slowdowns(together(c, "jupiter", MIX, "adaptive", load)) for load in LOADS]
    means = [float(np.mean(s)) - 1 for s in spread]
    said = "mean slowdown at foreign loads of 0, 30 and 60 %: " + ", ".join(
        f"{100 * m:.1f} %" for m in means
    )
    values = {f"load_{load:g}": m for load, m in zip(LOADS, means, strict=True)}
    return Evidence(OUT_OF_REACH, said, values, "the load of the production runs")


def slower_devices_congest_less(c: Campaign) -> Evidence:
    """19: one mix on both systems, in a reservation, under each routing."""
    means = {
        (system, routing): float(np.mean(slowdowns(together(c, system, MIX, routing)))) - 1
        for system in ("leonardo", "jupiter")
        for routing in ROUTINGS
    }
    shown = {key: f"{100 * mean:.1f} %" for key, mean in means.items()}
    said = "; ".join(
        f"{r}: Leonardo {shown['leonardo', r]}, JUPITER {shown['jupiter', r]}" for r in ROUTINGS
    )
    less = [r for r in ROUTINGS if means["leonardo", r] < means["jupiter", r]]
    values = {f"{system}_{routing}": value for (system, routing), value in means.items()}
    effect = f"{' or '.join(less or ROUTINGS)} routing"
    everywhere = len(less) == len(ROUTINGS)
    return judge(everywhere, said, values, effect=effect, with_effect=bool(less))
