"""The page about what placement does to a step: docs/placement_experiment.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.cluster.keeper import burst_bytes
from tests.cluster.layout import Layout

BASE = "intra-group"  # the placement that the others are compared with
STEP, EXPOSED = "step_s", "transfer_exposed_s"


class Row(NamedTuple):
    """A workload on a placement: metrics as measured (with intervals) and as predicted."""

    workload: str
    placement: str
    measured: Mapping[str, Mapping[str, Any]]
    predicted: Mapping[str, float]

    def error(self, metric: str) -> float:
        """Return how far the prediction is from what was measured, as a share of that."""
        return self.predicted[metric] / self.measured[metric]["value"] - 1

    def ratios(self, base: Row, metric: str) -> tuple[float, float]:
        """Return a metric relative to that of another placement, measured and predicted."""
        measured = self.measured[metric]["value"] / base.measured[metric]["value"]
        return measured, self.predicted[metric] / base.predicted[metric]


def pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return each row of another placement than BASE, with that of BASE."""
    base = {row.workload: row for row in rows if row.placement == BASE}
    return [(row, base[row.workload]) for row in rows if row.placement != BASE]


def page(
    rows: Sequence[Row],
    layout: Layout,
    placements: Mapping[str, Sequence[str]],
    latencies_s: Mapping[str, float],
    environments: Sequence[Mapping[str, Any]],
) -> str:
    """Return the page; `environments` are those of the records."""
    worst = {
        metric: max((abs(after / before - 1) for before, after in ratios), default=0.0)
        for metric in (STEP, EXPOSED)
        for ratios in [[row.ratios(base, metric) for row, base in pairs(rows)]]
    }
    return _PAGE.format(
        node=_rate(layout.node_Bps),
        leaf=_rate(layout.leaf_Bps),
        group=_rate(layout.group_Bps),
        placements="\n".join(f"- *{name}*: {', '.join(p)}" for name, p in placements.items()),
        latencies=", ".join(f"{_ms(latencies_s[tier])} ms {word}" for tier, word in _TIERS.items()),
        machine=_machine(environments),
        ratios=_ratio_table(rows),
        times=_time_table(rows),
        bursts=", ".join(
            f"{_ms(burst_bytes(rate) / rate)} ms of {what}"
            for what, rate in (
                ("a node's link", layout.node_Bps),
                ("a leaf's uplink", layout.leaf_Bps),
                ("a group's", layout.group_Bps),
            )
            if rate
        ),
        worst_exposed=f"{worst[EXPOSED]:.0%}",
        worst_step=f"{worst[STEP]:.0%}",
        worst_time=f"{max((abs(row.error(EXPOSED)) for row in rows), default=0.0):.0%}",
    )


_TIERS = {"leaf": "in a leaf", "group": "between leaves", "global": "between groups"}


_HEADER = tuple(
    f"{name}{what}"
    for name in ("transfer exposed", "step")
    for what in (" measured", " predicted", ": error")
)


def _machine(environments: Sequence[Mapping[str, Any]]) -> str:
    """Say on what it ran, and how busy that was."""
    one = environments[0]
    loads = [environment["load_1min"] for environment in environments]
    return (
        f"On {one['cores']} cores with jax {one['versions']['jax']}; "
        f"load averages when runs ended were {min(loads):.1f} to {max(loads):.1f}."
    )


def _ratio_table(rows: Sequence[Row]) -> str:
    lines = []
    for row, base in pairs(rows):
        cells = [row.workload, row.placement]
        for metric in (EXPOSED, STEP):
            measured, predicted = row.ratios(base, metric)
            cells += [f"{measured:.2f}", f"{predicted:.2f}", f"{predicted / measured - 1:+.1%}"]
        lines.append(cells)
    return _table(("strategy", "placement", *_HEADER), lines)


def _time_table(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        cells = [row.workload, row.placement]
        for metric in (EXPOSED, STEP):
            found = row.measured[metric]
            low, high = _ms(found["ci_low"]), _ms(found["ci_high"])
            cells.append(f"{_ms(found['value'])} ({low}-{high})")
            cells += [_ms(row.predicted[metric]), f"{row.error(metric):+.1%}"]
        lines.append(cells)
    return _table(("strategy", "placement", *_HEADER), lines)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _rate(rate_Bps: float | None) -> str:
    return "no limit" if rate_Bps is None else f"{rate_Bps * 8 / 1e6:g} Mbit/s"


_PAGE = """\
# What placement does to a step: measured and predicted

Written by `python scripts/placement_experiment.py --page=docs/placement_experiment.md`. It needs
root and Slurm, and takes a quarter of an hour; `scripts/full_check placement` runs it too.
{machine}

## What was measured

A private Slurm of one machine, with eight nodes: each is a network namespace with a host name and
daemons of its own, two nodes to a leaf switch, two leaves to a group, two groups. Every link
between them is a pair of virtual Ethernet devices whose rate `tc` limits, in either direction:

- the link of a node: {node},
- the uplink of a leaf switch, for its two nodes: {leaf},
- the uplink of a group, for its four nodes: {group}.

`srun` starts `jaxbench run` with one process on each of four nodes:

{placements}

The ranks' switches and groups in the records, which are those that Slurm tells each task, were
compared with these. Collectives are XLA's for CPUs over gloo, compute is a payload that sleeps
(30 ms a step), messages are of a model of 2 M parameters scaled by 0.5. *Transfer exposed* is the
step less the same program with one element in place of every message (see the README).

## What was predicted, from what

The same programs were simulated on a system file with the rates given to `tc`, the topology that
`scontrol show topology` printed, the nodes above, and `--algorithm=ring`. Nothing in it is from
the runs that it is compared with. What is measured in it are the latencies, with a permute of a
few bytes between two nodes: {latencies}.
The efficiency of the links, .956, is what Ethernet and TCP leave of a frame. Each prediction was
made before its run.

## What came out

Times the same strategy within a group:

{ratios}

In milliseconds, with 95 % intervals of the median over steps:

{times}

The ratios of transfer exposed are predicted within {worst_exposed}, those of steps within
{worst_step}, the times of transfer exposed within {worst_time}.

## Where it is wrong

- All processes share the cores of one machine, with whatever else it does. What they need to wake
  up, copy and add isn't in the prediction, but for the latencies.
- A link that rested lets some bytes pass at once, however slow it is: a collective is spared up to
  {bursts}. The
  simulator doesn't know that.
- gloo's all-reduce and all-gather are rings. Its reduce-scatter halves and doubles, and then sends
  on the parts that came to the wrong rank: by the rates alone, one of four ranks takes 33 % longer
  than the ring that is predicted within a group, 8 % longer over two groups of two ranks, 17 % over
  four leaves. So fsdp should be slower than predicted, most of all within a group; what bursts
  spare its many collectives is as much.
- XLA for CPUs may order collectives so that they overlap less compute than the simulator has it.
- That there is one path between two nodes makes this network simpler than a real one: no adaptive
  routing, no other jobs, no loss of efficiency with scale.
"""
