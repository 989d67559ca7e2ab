"""What `jaxbench collectives` prints: a table for people, nccl-tests' layout, or JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.axes import mesh_text
from jaxbench.measure.collectives.kinds import KINDS, bus_factor
from jaxbench.table import print_table
from jaxbench.units import format_bytes, format_seconds

FORMATS = ("text", "nccl", "json")

# nccl-tests' names of the types.
NCCL_TYPES = {
    "float32": "float",
    "float16": "half",
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}

HEADER = (
    "kind",
    "dtype",
    "over",
    "size",
    "time",
    "95 % CI",
    "step p50",
    "p95",
    "p99",
    "algbw",
    "busbw",
    "#wrong",
)

FIT_HEADER = ("kind", "dtype", "over", "latency", "bandwidth", "bus bandwidth", "R2", "residuals")

Record = Mapping[str, Any]
Fits = Sequence[Mapping[str, Any]]


def print_collectives(records: Sequence[Record], fits: Fits, form: str) -> None:
    """Print the records of cells and the fits in one of FORMATS."""
    if form == "json":
        print(to_json(records, fits))
    elif form == "nccl":
        print(nccl_text(records, fits))
    else:
        _print_text(records, fits)


def to_json(records: Sequence[Record], fits: Fits) -> str:
    """Return one JSON document: the cells with their metrics, the fits, the average bus bandwidth.

    Raw samples are in the results file, under the cell's `id`.
    """
    taken = ("id", "experiment", "metrics", "checks", "warnings", "partial")
    cells = [{name: record[name] for name in taken} for record in records]
    for cell in cells:
        cell["bus_factor"] = _bus_factor(cell)
    document = {"cells": cells, "fits": list(fits), "average_bus_bandwidth_Bps": average(records)}
    return json.dumps(document, allow_nan=False)


def nccl_text(records: Sequence[Record], fits: Fits) -> str:
    """Return nccl-tests' table (out of place), a block for every kind, dtype and axis.

    Lines that aren't a row start with #, so that programs which read nccl-tests' output can read
    it; `time` is that of one among many in a row, as there.
    """
    lines: list[str] = []
    for members in _blocks(records):
        first = members[0]["experiment"]
        kind = KINDS[first["kind"]]
        lines += [
            f"# {first['kind']} over {_over(first)} of mesh {_mesh(first)}{_ranks(first)}: "
            f"{kind.executes}",
            f"# size: {kind.size}; bus factor: {_factor(members[0])}; "
            f"iters: {first['steps']}, warmup iters: {first['warmup']}"
            + (f"; each {manner(first)}" if manner(first) else ""),
            "#",
            f"# {'':10}  {'':12}  {'':8}  {'':6}  {'':6}  {'out-of-place':^32}",
            f"# {'size':>10}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}  "
            f"{'time':>7}  {'algbw':>6}  {'busbw':>6} {'#wrong':>6}",
            f"# {'(B)':>10}  {'(elements)':>12}  {'':8}  {'':6}  {'':6}  "
            f"{'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6} {'':6}",
        ]
        lines += [_nccl_row(record) for record in members]
        lines += _notes(members, "# ")
        wrong = [record["checks"]["wrong"] or 0 for record in members]
        mean = average(members)
        lines += [
            f"# Out of bounds values : {sum(wrong)} {'FAILED' if sum(wrong) else 'OK'}",
            f"# Avg bus bandwidth    : {'N/A' if mean is None else f'{mean / 1e9:.6g}'}",
            "#",
        ]
    lines += [f"# {line}" for line in fit_lines(fits)]
    return "\n".join(line.rstrip() for line in lines)


def manner(experiment: Mapping[str, Any]) -> str:
    """Return what is between two executions, as a remark; empty if they are in a row."""
    turns, pause_s = experiment.get("messages", 1), experiment.get("pause_s", 0.0)
    parts = [f"after {format_seconds(pause_s)} of compute"] if pause_s else []
    parts += [f"{turns} buffers in turn"] if turns > 1 else []
    return ", ".join(parts)


def average(records: Sequence[Record]) -> float | None:
    """Return the mean bus bandwidth of the cells, in bytes per second, as nccl-tests' footer."""
    known = [b for r in records if (b := r["metrics"]["bus_bandwidth_Bps"]["value"]) is not None]
    return statistics.fmean(known) if known else None


def fit_lines(fits: Fits) -> list[str]:
    """Return a sentence for each fit."""
    return [
        f"fit {f['kind']} {f['dtype']} over {f['axis']}={f['group_size']}: "
        f"{_line(f)}{_residuals(f)}{_note(f)}"
        for f in fits
    ]


def _line(fit: Mapping[str, Any]) -> str:
    """Return 'time = 20 us + size / (10 GB/s); ', of what is known."""
    terms = [format_seconds(fit["latency_s"])] if fit["latency_s"] else []
    terms += [f"size / ({_rate(fit['bandwidth_Bps'])})"] if fit["bandwidth_Bps"] else []
    return f"time = {' + '.join(terms)}; " if terms else ""


def _print_text(records: Sequence[Record], fits: Fits) -> None:
    between = manner(records[0]["experiment"]) or "in a row"
    title = (
        f"time: one of many {between}; step: one dispatched alone; algbw = size / time; "
        "busbw = algbw * bus factor"
    )
    print_table(HEADER, [_text_row(record) for record in records], title=title)
    print(*_legend(records), *_notes(records, ""), sep="\n")
    if fits:
        print()
        rows = [
            (
                f["kind"],
                f["dtype"],
                f"{f['axis']}={f['group_size']}",
                format_seconds(f["latency_s"]),
                _rate(f["bandwidth_Bps"]),
                _rate(f["bandwidth_Bps"] and f["bandwidth_Bps"] * f["bus_factor"]),
                "-" if f["r_squared"] is None else f"{f['r_squared']:.3f}",
                _residuals(f) + _note(f),
            )
            for f in fits
        ]
        print_table(FIT_HEADER, rows, title="fit: time = latency + size / bandwidth")
    mean = average(records)
    print(f"average bus bandwidth: {_rate(mean)}")


def _legend(records: Sequence[Record]) -> list[str]:
    """Return a line for each kind: what runs, what its size counts, its bus factors."""
    factors: dict[str, list[str]] = {}
    for record in records:
        e = record["experiment"]
        known = factors.setdefault(e["kind"], [])
        if (factor := f"{_bus_factor(record):.4g} over {_over(e)}") not in known:
            known.append(factor)
    return [
        f"{name}: {KINDS[name].executes}; size: {KINDS[name].size}; "
        f"bus factor {KINDS[name].bus_factor}: {', '.join(found)}"
        for name, found in factors.items()
    ]


def _text_row(record: Record) -> tuple[str, ...]:
    e, m = record["experiment"], record["metrics"]
    time = m["collective_s"]
    low, high = time["ci_low"], time["ci_high"]
    wrong = record["checks"]["wrong"]
    return (
        e["kind"],
        e["dtype"],
        f"{e['axis']}={e['group_size']}",
        _exact(e["bytes"]),
        format_seconds(time["value"]),
        "-" if low is None else f"{format_seconds(low)} .. {format_seconds(high)}",
        *(format_seconds(m[name]["value"]) for name in ("step_s", "step_p95_s", "step_p99_s")),
        _rate(m["algorithmic_bandwidth_Bps"]["value"]),
        _rate(m["bus_bandwidth_Bps"]["value"]),
        "-" if wrong is None else str(wrong),
    )


def _nccl_row(record: Record) -> str:
    e, m = record["experiment"], record["metrics"]
    root = -1 if e["root"] is None else e["root"]
    wrong = record["checks"]["wrong"]
    time_s = m["collective_s"]["value"]
    rates = [m[f"{which}_bandwidth_Bps"]["value"] for which in ("algorithmic", "bus")]
    algorithmic, bus = ("N/A" if rate is None else f"{rate / 1e9:.2f}" for rate in rates)
    return (
        f"{e['bytes']:>12}  {e['count']:>12}  {NCCL_TYPES[e['dtype']]:>8}  "
        f"{KINDS[e['kind']].redop:>6}  {root:>6}  {_microseconds(time_s):>7}  "
        f"{algorithmic:>6}  {bus:>6} {'N/A' if wrong is None else wrong:>6}"
    )


def _microseconds(seconds: float | None) -> str:
    """Return microseconds with four significant digits or more, as nccl-tests shows them."""
    if seconds is None:
        return "N/A"
    us = seconds * 1e6
    digits = 2 if us < 100 else 1 if us < 10_000 else 0
    return f"{us:.{digits}f}"


def _blocks(records: Sequence[Record]) -> list[list[Record]]:
    """Return the records by kind, dtype and axis, in their order."""
    blocks: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        e = record["experiment"]
        blocks.setdefault((e["kind"], e["dtype"], e["axis"]), []).append(record)
    return list(blocks.values())


def _notes(records: Sequence[Record], indent: str) -> list[str]:
    """Return what to say below a table: rounded sizes, and the warnings, each once."""
    rounded: dict[str, list[str]] = {}
    warned: list[str] = []
    for record in records:
        e = record["experiment"]
        if asked := [_exact(b) for b in e["asked_bytes"] if b != e["bytes"]]:
            where = f"{e['kind']} of {e['dtype']} over {e['axis']}={e['group_size']}"
            rounded.setdefault(where, []).append(f"{', '.join(asked)} -> {_exact(e['bytes'])}")
        for warning in record["warnings"]:
            failed = warning.startswith("failed")
            who = f"{e['kind']} of {_exact(e['bytes'])} of {e['dtype']}: " if failed else ""
            warned.append(f"warning: {who}{warning}")
    lines = [
        f"rounded up to whole, equal parts: {where}: {'; '.join(sizes)}"
        for where, sizes in rounded.items()
    ]
    return [indent + line for line in dict.fromkeys([*lines, *warned])]


def _factor(record: Record) -> str:
    """Return '2(n-1)/n = 1.5': the formula and its value, the value alone where it is one."""
    formula, value = KINDS[record["experiment"]["kind"]].bus_factor, f"{_bus_factor(record):.4g}"
    return formula if formula == value else f"{formula} = {value}"


def _bus_factor(record: Record) -> float:
    return bus_factor(record["experiment"]["kind"], record["experiment"]["group_size"])


def _exact(nbytes: int) -> str:
    """Return a size that loses nothing: in the largest binary unit that divides it."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes % size == 0:
            return f"{nbytes // size} {unit}"
    return f"{nbytes} B"


def _rate(rate_Bps: float | None) -> str:
    return "-" if rate_Bps is None else f"{format_bytes(rate_Bps)}/s"


def _residuals(fit: Mapping[str, Any]) -> str:
    if not fit["residuals"]:
        return "-"
    low, high = min(fit["residuals"]), max(fit["residuals"])
    return f"{low:+.0%} to {high:+.0%} at {len(fit['residuals'])} sizes"


def _note(fit: Mapping[str, Any]) -> str:
    return f"; {fit['note']}" if fit["note"] else ""


def _over(experiment: Mapping[str, Any]) -> str:
    groups = experiment["groups"]
    at_once = f" ({groups} groups at once)" if groups > 1 else ""
    return f"{experiment['axis']}={experiment['group_size']}{at_once}"


def _mesh(experiment: Mapping[str, Any]) -> str:
    return mesh_text(experiment["mesh"].items())


def _ranks(experiment: Mapping[str, Any]) -> str:
    ranks = experiment["ranks"]
    return f", ranks {','.join(map(str, ranks))}" if ranks else ""
