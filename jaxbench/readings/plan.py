"""What a program will communicate, compute and hold, before anything runs.

plan = plan_experiment(experiment)      # no devices, no compiler; any number of ranks
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from jaxbench.dtypes import find_dtype
from jaxbench.experiment import STRATEGY_AXES, Experiment
from jaxbench.program import Program, Size, Traced, abstract_mesh, delayed, trace
from jaxbench.readings.counting import Counting
from jaxbench.readings.memory import Memory, program_memory
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import Site, find_sites
from jaxbench.strategies import STRATEGIES
from jaxbench.workload import Workload, build_workload


@dataclass(frozen=True)
class Row:
    """One kind, axis and size of collective: per rank and step.

    `count` is what every rank executes and `useful` what carries a microbatch (only permutes in
    idle slots carry none); both are the maximum over ranks, `count_min` the minimum. `elements`
    are those of the model after scaling (`full_elements` before it), `padded_elements` those that
    are sent, rounded up to the group; `shard_elements` is one member's part of them.
    `bytes_wire` = `wire_factor` * `bytes_logical` is what a rank sends with a ring algorithm.
    """

    id: str
    kind: str
    axis: str
    group_size: int
    groups: int
    count: int
    count_min: int
    useful: int
    full_elements: int
    elements: int
    shard_elements: int
    padded_elements: int
    dtype: str
    bytes_logical: int
    bytes_wire: float
    wire_factor: float
    labels: dict[str, int]


@dataclass(frozen=True)
class Plan:
    """A traced experiment with everything that could be said beforehand.

    `compute_s` are each rank's seconds of compute in a step; `trace_s` is what tracing took and
    `count_s` what counting took.
    """

    experiment: Experiment
    workload: Workload
    traced: Traced
    sites: tuple[Site, ...]
    rows: tuple[Row, ...]
    compute_s: np.ndarray
    compute_by_label: dict[str, float]
    memory: Memory
    trace_s: float
    count_s: float

    @property
    def schedule(self) -> str | None:
        """How the pipeline schedule is built, and its price; None without a pipeline."""
        e, w = self.experiment, self.workload
        if "pipeline" not in STRATEGY_AXES[e.strategy]:
            return None
        bubble = (w.p - 1) / (w.bubble_slots + w.p - 1)
        if e.schedule == "gpipe":
            return f"gpipe; {w.microbatches} microbatches in flight; bubble {bubble:.1%}"
        units = "chunk activations" if w.v > 1 else "microbatches"
        built = min(w.v * w.p + w.p - 1, w.bubble_slots)
        published = (w.p - 1) * 2 + (w.v - 1) * w.p + 1 if w.v > 1 else w.p
        return (
            f"{e.schedule} as combined slots (a forward and a backward of different microbatches "
            f"per slot); up to {built} {units} in flight at the first stage, where the published "
            f"order has {min(published, w.bubble_slots)}; bubble {bubble:.1%}"
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Return the plan as the `plan` of a record: what a rank needs for a step, a row each.

        First the collectives (the fields of `Row`), then one row each of kind `compute` (seconds),
        `memory` (bytes on a device) and, with a pipeline, `schedule` (as it is built); what such a
        row doesn't have is null.
        """
        rows: list[dict[str, Any]] = [asdict(row) for row in self.rows]
        none = dict.fromkeys(f.name for f in fields(Row))
        rows.append(
            {
                **none,
                "id": "compute",
                "kind": "compute",
                "seconds": float(self.compute_s.max()),
                "seconds_min": float(self.compute_s.min()),
                "labels": self.compute_by_label,
            }
        )
        rows.append({**none, "id": "memory", "kind": "memory", **asdict(self.memory)})
        rows[-1]["total_bytes"] = self.memory.total_bytes
        if self.schedule:
            schedule = {"id": "schedule", "kind": "schedule", "as_built": self.schedule}
            rows.append({**none, **schedule})
        return rows


def wire_factor(kind: str, group_size: int) -> float:
    """Return bytes sent per rank over logical bytes, for ring algorithms.

    all_reduce 2(n-1)/n; all_gather, reduce_scatter, all_to_all (n-1)/n; permute 1
    (github NVIDIA/nccl-tests doc/PERFORMANCE.md).
    """
    if kind == "permute":
        return 1.0
    share = (group_size - 1) / group_size
    return 2 * share if kind == "all_reduce" else share


def build_program(experiment: Experiment) -> tuple[Workload, Program]:
    """Return the workload and the program of an experiment."""
    workload = build_workload(experiment)
    program = STRATEGIES[experiment.strategy](workload)
    return workload, delayed(program, experiment.mesh, experiment.inject_delay)


def plan_experiment(experiment: Experiment, platform: str = "cpu") -> Plan:
    """Trace an experiment on an abstract mesh and read its plan."""
    start = time.perf_counter()
    workload, program = build_program(experiment)
    traced = trace(program, abstract_mesh(experiment.mesh))
    return plan_traced(experiment, workload, traced, time.perf_counter() - start, platform)


def plan_traced(
    experiment: Experiment,
    workload: Workload,
    traced: Traced,
    trace_s: float,
    platform: str = "cpu",
) -> Plan:
    """Read the plan of a program that has been traced already."""
    start = time.perf_counter()
    ranks = Ranks(experiment.mesh)
    sites = find_sites(traced.closed, ranks)
    counting = Counting(ranks).count(traced.closed)
    compute = sum(counting.compute_s.values(), np.zeros(ranks.count))
    return Plan(
        experiment=experiment,
        workload=workload,
        traced=traced,
        sites=tuple(sites),
        rows=tuple(plan_rows(sites, counting, traced.program)),
        compute_s=compute,
        compute_by_label={k: float(v.max()) for k, v in counting.compute_s.items()},
        memory=program_memory(traced, platform),
        trace_s=trace_s,
        count_s=time.perf_counter() - start,
    )


def plan_rows(sites: Sequence[Site], counting: Counting, program: Program) -> list[Row]:
    """Merge the sites of one kind, axis, size and dtype into a row, in program order."""
    merged: dict[tuple[Any, ...], list[Site]] = {}
    for site in sites:
        key = (site.kind, site.axes, site.elements, site.dtype)
        merged.setdefault(key, []).append(site)
    return [_row(members, counting, program) for members in merged.values()]


def _row(sites: list[Site], counting: Counting, program: Program) -> Row:
    never = np.zeros(counting.ranks.count, np.int64)
    sizes = [size for s in sites if (size := program.size_of(s.label))]
    counts = [counting.counts.get(s.path, never) for s in sites]
    count, useful = (
        sum(counts, never),
        sum((counting.useful.get(s.path, never) for s in sites), never),
    )
    labels: dict[str, int] = {}
    for member, executed in zip(sites, counts, strict=True):
        labels[member.label] = labels.get(member.label, 0) + int(executed.max())
    row = row_of(sites[0], max(sizes, key=lambda size: size.full, default=None))
    return replace(
        row,
        count=int(count.max()),
        count_min=int(count.min()),
        useful=int(useful.max()),
        labels=labels,
    )


def row_of(site: Site, size: Size | None = None) -> Row:
    """Return the row of a site that is executed once; `size` is what a strategy said of it."""
    nbytes = site.elements * find_dtype(site.dtype)
    factor = wire_factor(site.kind, site.group_size)
    axis = "+".join(site.axes)
    whole = site.kind in ("all_reduce", "permute")
    return Row(
        id=f"{site.kind}/{axis}/{site.elements}/{site.dtype}",
        kind=site.kind,
        axis=axis,
        group_size=site.group_size,
        groups=len(site.groups),
        count=1,
        count_min=1,
        useful=1,
        full_elements=size.full if size else site.elements,
        elements=size.scaled if size else site.elements,
        shard_elements=site.elements if whole else site.elements // site.group_size,
        padded_elements=site.elements,
        dtype=site.dtype,
        bytes_logical=nbytes,
        bytes_wire=nbytes * factor,
        wire_factor=factor,
        labels={site.label: 1},
    )
