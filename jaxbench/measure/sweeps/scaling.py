"""What a sweep's runs say together: a level per cell, and how well a cell scales."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxbench.measure.ratio import Ratio, ratio_of_medians, scaling_efficiency
from jaxbench.measure.statistics import max_over_ranks
from jaxbench.measure.sweeps.grid import experiment_key
from jaxbench.measure.sweeps.results import Result

ONE_SECOND = [[1.0] * 6]


@dataclass(frozen=True)
class CellSummary:
    """The runs of a cell: their steps, [runs][steps] seconds, slowest process each.

    `step_s` is the geometric mean over runs of a run's median step; its interval comes from
    resampling runs, then steps. With one run it is that run's own, of its steps alone.
    `batch` is the samples of a step, `communication_share` the median over runs.
    """

    key: str
    experiment: Mapping[str, Any]
    runs: list[list[float]]
    step_s: Ratio
    batch: float
    communication_share: float | None

    @property
    def throughput(self) -> float | None:
        """Samples per second."""
        return self.batch / self.step_s.value if self.step_s.value else None


@dataclass(frozen=True)
class Efficiency:
    """T(N)/T(N0) * N0/N against the cell with the fewest devices, `base_devices`."""

    base_devices: int
    ratio: Ratio


def summarise(results: Iterable[Result], *, seed: int = 0) -> list[CellSummary]:
    """Return a summary for each cell that has whole runs, in the order of their first ones."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        if result.status == "done" and result.record is not None:
            groups.setdefault(result.key, []).append(result.record)
    return [_summary(key, records, seed) for key, records in groups.items()]


def scaling_group(experiment: Mapping[str, Any]) -> str:
    """Return what cells have in common that differ in devices and the data axis only."""
    mesh = {axis: size for axis, size in experiment["mesh"].items() if axis != "data"}
    rest = {
        name: value
        for name, value in experiment.items()
        if name not in ("mesh", "devices", "expect_devices")
    }
    return experiment_key({**rest, "mesh": mesh})


def efficiencies(cells: Sequence[CellSummary], *, seed: int = 0) -> dict[str, Efficiency]:
    """Return the scaling efficiency by cell key, for cells of a group beyond its smallest.

    The interval is None where either side has one run only: how much runs vary is then unknown.
    """
    smallest: dict[str, CellSummary] = {}
    for cell in sorted(cells, key=_devices):
        smallest.setdefault(scaling_group(cell.experiment), cell)
    found = {}
    for cell in cells:
        base = smallest[scaling_group(cell.experiment)]
        if _devices(cell) > _devices(base):
            ratio = scaling_efficiency(
                base.runs,
                cell.runs,
                devices=(_devices(base), _devices(cell)),
                batches=(base.batch, cell.batch),
                seed=seed,
            )
            if min(len(base.runs), len(cell.runs)) < 2:
                ratio = Ratio(ratio.value, None, None, ratio.n, "none", ratio.runs)
            found[cell.key] = Efficiency(_devices(base), ratio)
    return found


def _summary(key: str, records: Sequence[Mapping[str, Any]], seed: int) -> CellSummary:
    runs = [
        [seconds for seconds in max_over_ranks(record["samples"]["full"]) if seconds is not None]
        for record in records
    ]
    first = records[0]["metrics"]
    if len(records) == 1:
        step = first["step_s"]
        n = (step["n"], 0)
        level = Ratio(step["value"], step["ci_low"], step["ci_high"], n, "order", (1, 0))
    else:  # a level is a ratio to what is exactly one second
        level = ratio_of_medians(runs, ONE_SECOND, seed=seed)
    shares = [record["metrics"].get("communication_share") for record in records]
    known = [share["value"] for share in shares if share and share["value"] is not None]
    return CellSummary(
        key=key,
        experiment=records[0]["experiment"],
        runs=runs,
        step_s=level,
        batch=first["throughput"]["value"] * first["step_s"]["value"],
        communication_share=statistics.median(known) if known else None,
    )


def _devices(cell: CellSummary) -> int:
    return cell.experiment["devices"]
