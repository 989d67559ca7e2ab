"""The job of `jaxbench collectives`: measure all cells, record each, fit each series of sizes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import jax
from jax.sharding import AxisType, Mesh

from jaxbench.dtypes import find_dtype
from jaxbench.errors import InputError
from jaxbench.measure.collectives.bench import Measured, measure_cells, needed_bytes
from jaxbench.measure.collectives.cells import Cell, make_cells
from jaxbench.measure.collectives.fit import fit_fields, fit_line
from jaxbench.measure.collectives.fit_file import fits_document, write_fits
from jaxbench.measure.collectives.kinds import KINDS, ROOT
from jaxbench.measure.collectives.request import Request
from jaxbench.measure.host import environment
from jaxbench.measure.machine import memory_fault
from jaxbench.measure.metrics import metric
from jaxbench.measure.processes import devices_for, here, in_order, ranks_of
from jaxbench.measure.record import append_record, make_record
from jaxbench.measure.statistics import Median, percentile
from jaxbench.readings.plan import row_of


@dataclass
class Outcome:
    """What a call measured: the cells, a record for each, a fit for each series of sizes."""

    request: Request
    measured: list[Measured]
    records: list[dict[str, Any]]
    fits: list[dict[str, Any]]

    @property
    def complete(self) -> bool:
        """Whether every cell was measured to its end and no check failed."""
        return bool(self.measured) and all(m.complete for m in self.measured)


def run_collectives(
    request: Request,
    *,
    command: Sequence[str],
    report: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Measure the cells of a request, append a record for each and write the file of fits.

    The backend must have been started with enough devices. `report` gets the outcome on process 0,
    at an interruption too: what there is by then is recorded as partial.
    """
    mesh = make_mesh(request)
    cells = make_cells(
        request.kinds,
        {axis: dict(request.mesh)[axis] for axis in request.axes},
        request.dtypes,
        request.sizes,
        request.padding,
    )
    if fault := _memory_fault(cells, mesh, request.manner.messages):
        raise InputError(fault)
    measured: list[Measured] = []
    keeper = Keeper(request, mesh, measured, command)
    with here().keeping(lambda: None, keeper.keep):
        try:
            measure_cells(
                cells,
                mesh,
                steps=request.steps,
                warmup=request.warmup,
                seed=request.seed,
                manner=request.manner,
                measured=measured,
                say=_say,
            )
        finally:
            outcome = keeper.outcome()
            if here().index == 0:
                report(outcome)
    return outcome


class Keeper:
    """Records what there is, once: at the end, or when a job of many processes is ended."""

    def __init__(
        self, request: Request, mesh: Mesh, measured: list[Measured], command: Sequence[str]
    ):
        self._arguments = request, mesh, measured, command
        self._keeping = threading.Lock()
        self._outcome: Outcome | None = None

    def outcome(self) -> Outcome:
        """Return the outcome, its records written by process 0."""
        with self._keeping:
            if self._outcome is None:
                self._outcome = _keep(*self._arguments)
            return self._outcome

    def keep(self, _: Sequence[Any], why: str) -> None:
        """Write what this process has, since the job is ended."""
        self.outcome()


def make_mesh(request: Request) -> Mesh:
    """Return the mesh of a request over the first devices, or over the ranks it names."""
    names = tuple(name for name, _ in request.mesh)
    sizes = tuple(size for _, size in request.mesh)
    devices = in_order(jax.devices())
    if request.ranks is None:
        auto = (AxisType.Auto,) * len(names)
        first = devices_for(request.mesh_size, devices)
        return jax.make_mesh(sizes, names, axis_types=auto, devices=first)
    import numpy as np

    # In the order named: nothing may be moved to where the topology would like it better.
    chosen = np.array([devices[rank] for rank in request.ranks]).reshape(sizes)
    mesh = Mesh(chosen, names, axis_types=(AxisType.Auto,) * len(names))
    present = {device.process_index for device in mesh.devices.flat}
    if missing := sorted(set(range(here().count)) - present):
        listed = ", ".join(map(str, missing))
        raise InputError(
            f"--ranks has no device of process {listed}: start only the processes it needs"
        )
    return mesh


def describe_cell(cell: Cell, request: Request) -> dict[str, Any]:
    """Return the `experiment` of a cell's record: what was asked for, nothing measured."""
    kind = KINDS[cell.kind]
    return {
        "benchmark": "collectives",
        "kind": cell.kind,
        "executes": kind.executes,
        "root": ROOT if kind.rooted else None,
        "bytes": cell.bytes,
        "asked_bytes": list(cell.asked_bytes),
        "elements": cell.elements,
        "count": cell.count,
        "dtype": cell.dtype,
        "axis": cell.axis,
        "group_size": cell.group_size,
        "groups": request.mesh_size // cell.group_size,
        "mesh": dict(request.mesh),
        "devices": request.mesh_size,
        "ranks": list(request.ranks) if request.ranks else None,
        "padding": request.padding,
        **asdict(request.manner),
        "steps": request.steps,
        "warmup": request.warmup,
        "seed": request.seed,
    }


def cell_metrics(measured: Measured) -> dict[str, Any]:
    """Return the metrics of a cell; null where it wasn't measured or can't be told from noise."""
    cell, step, one = measured.cell, measured.step, measured.collective

    def whole(name: str, found: Median) -> dict[str, Any]:
        return metric(name, found.value, ci_low=found.ci_low, ci_high=found.ci_high, n=found.n)

    def rate(name: str, nbytes: float) -> dict[str, Any]:
        value, low, high = (
            nbytes / s if s is not None and s > 0 else None
            for s in (one.value, one.ci_high, one.ci_low)
        )
        return metric(name, value, ci_low=low, ci_high=high, n=one.n)

    def beyond(name: str, percent: float) -> dict[str, Any]:
        return metric(name, percentile(measured.steps_s, percent), n=step.n)

    return {
        "step_s": whole("step_s", step),
        "step_p95_s": beyond("step_p95_s", 95),
        "step_p99_s": beyond("step_p99_s", 99),
        "collective_s": whole("collective_s", one),
        "algorithmic_bandwidth_Bps": rate("algorithmic_bandwidth_Bps", cell.bytes),
        "bus_bandwidth_Bps": rate("bus_bandwidth_Bps", cell.bytes * cell.bus_factor),
    }


def fit_series(measured: Sequence[Measured], request: Request) -> list[dict[str, Any]]:
    """Return a fit (as in the file of fits) for every kind, axis, group size and dtype."""
    series: dict[tuple[Any, ...], list[Measured]] = {}
    for each in measured:
        if each.collective.value is not None:
            series.setdefault(each.cell.series, []).append(each)
    fits = []
    for (kind, axis, group_size, dtype), members in series.items():
        members.sort(key=lambda m: m.cell.bytes)
        sizes = [m.cell.bytes for m in members]
        times = [m.collective.value or 0.0 for m in members]
        fits.append(
            {
                "kind": kind,
                "axis": axis,
                "group_size": group_size,
                "dtype": dtype,
                "groups": request.mesh_size // group_size,
                "mesh": dict(request.mesh),
                "ranks": list(request.ranks) if request.ranks else None,
                **asdict(request.manner),
                "executes": KINDS[kind].executes,
                "wire_dtypes": sorted({t for m in members for t in m.wire_dtypes}),
                "bus_factor": members[0].cell.bus_factor,
                "bytes": sizes,
                "time_s": times,
                **fit_fields(fit_line(sizes, times)),
            }
        )
    return fits


def _keep(
    request: Request, mesh: Mesh, measured: list[Measured], command: Sequence[str]
) -> Outcome:
    """Record what there is; process 0 writes."""
    where = environment(list(mesh.devices.flat))
    told = [m for m in measured if m.failure or m.complete or m.steps_s]
    ranks = ranks_of(list(mesh.devices.flat))
    records = [_record(m, request, {"environment": where, "ranks": ranks}, command) for m in told]
    fits = fit_series(measured, request)
    if here().index == 0:
        for record in records:
            append_record(request.out, record)
        if request.fit and measured and all(m.complete or m.failure for m in measured):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            write_fits(request.fit, fits_document(fits, where, now))
    return Outcome(request, told, records, fits)


def _record(
    measured: Measured, request: Request, where: Mapping[str, Any], command: Sequence[str]
) -> dict[str, Any]:
    return make_record(
        command=list(command),
        seed=request.seed,
        scales={"time_scale": 1.0, "size_scale": 1.0},
        experiment=describe_cell(measured.cell, request),
        **where,
        plan=_plan(measured),
        checks={**measured.checks, "wrong": measured.wrong},
        calibration={"payload": measured.payload, "chained_executions": measured.executions},
        timing=measured.timing,
        samples=measured.samples_s,
        device_ready_s={},
        metrics=cell_metrics(measured),
        warnings=warnings(measured),
        partial=not measured.complete,
    )


def warnings(measured: Measured) -> list[str]:
    """Return what a reader of a cell's numbers must know."""
    told = []
    cell, wide = measured.cell, find_dtype(measured.cell.dtype)
    wider = [t for t in measured.wire_dtypes if _WIRE_BYTES.get(t, wide) > wide]
    if wider:
        told.append(f"{cell.dtype} travels as {', '.join(wider)} here, sizes count {cell.dtype}")
    if measured.failure:
        told.append(f"failed: {measured.failure}")
    return told


# Bytes of an element by XLA's name of its type, where that may replace a narrower one.
_WIRE_BYTES = {"f64": 8, "f32": 4, "s32": 4, "f16": 2, "bf16": 2, "s16": 2}


def _plan(measured: Measured) -> list[dict[str, Any]]:
    """Return the `plan` of a record: what a single execution communicates."""
    return [asdict(row_of(site)) for site in measured.sites]


def _memory_fault(cells: Sequence[Cell], mesh: Mesh, messages: int) -> str | None:
    """Return why the devices can't hold the cells, before anything is allocated."""
    remedy = "lower --max_bytes, or take fewer kinds, dtypes or sizes"
    return memory_fault(
        needed_bytes(cells, mesh, messages), list(mesh.devices.flat), "this grid of sizes", remedy
    )


def _say(line: str) -> None:
    if here().index == 0:
        print(line, file=sys.stderr, flush=True)
