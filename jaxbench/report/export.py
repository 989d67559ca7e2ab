"""Runs as a tidy table in a file: a row per run, a column per flag and metric; CSV or Parquet.

A metric has four columns: its value (in the unit of METRICS), `_ci_low`, `_ci_high` and `_n`.
What is not known is an empty cell in CSV, null in Parquet.
"""

from __future__ import annotations

import csv
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from jaxbench.axes import AXES, mesh_text
from jaxbench.errors import RunError
from jaxbench.experiment import Experiment
from jaxbench.measure.metrics import METRICS
from jaxbench.measure.sweeps.results import Result

SUFFIXES = (".csv", ".parquet")

# Of the run itself; then flags and metrics. The kinds are those of a typed file's columns.
RUN_COLUMNS = {
    "record": "str",
    "key": "str",
    "repetition": "int",
    "status": "str",
    "exit_code": "int",
    "time": "str",
    "wall_s": "float",
    "error": "str",
}


def columns() -> dict[str, str]:
    """Return the names of all columns with their kinds: str, int, float or bool."""
    found = dict(RUN_COLUMNS)
    for f in fields(Experiment):
        if f.name != "notes":
            kind = str(f.type).removesuffix(" | None")
            found[f.name] = kind if kind in ("int", "float", "bool") else "str"
            if f.name == "mesh":
                found |= {f"mesh_{axis}": "int" for axis in AXES}
    for name in METRICS:
        found |= {name: "float", f"{name}_ci_low": "float", f"{name}_ci_high": "float"}
        found[f"{name}_n"] = "int"
    return found


def row(result: Result) -> dict[str, Any]:
    """Return the row of a run: a value for each column, None where there is none."""
    note, record = result.note or {}, result.record or {}
    values: dict[str, Any] = {
        "record": record.get("id"),
        "key": result.key,
        "repetition": result.repetition,
        "status": result.status,
        "exit_code": note.get("exit_code"),
        "time": record.get("time") or note.get("time"),
        "wall_s": note.get("wall_s"),
        "error": note.get("error"),
    }
    for name, value in result.experiment.items():
        values[name] = _text(name, value)
    values |= {f"mesh_{axis}": size for axis, size in result.experiment["mesh"].items()}
    for name, metric in (record.get("metrics") or {}).items():
        values |= {name: metric["value"], f"{name}_n": metric["n"]}
        values |= {f"{name}_{end}": metric[end] for end in ("ci_low", "ci_high")}
    return {name: values.get(name) for name in columns()}


def export_faults(path: str | os.PathLike[str]) -> list[str]:
    """Return why no table can be written to `path`, or nothing."""
    path = Path(path)
    faults = []
    if path.suffix not in SUFFIXES:
        faults.append(f"--export is '{path}'; it must end in {' or '.join(SUFFIXES)}")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        faults.append(
            "--export to Parquet needs pyarrow: pip install 'jaxbench[parquet]', or use .csv"
        )
    folder = path.parent
    if path.is_dir():
        faults.append(f"--export is '{path}', which is a folder")
    elif not folder.is_dir():
        faults.append(f"--export is '{path}', but there is no folder '{folder}'")
    elif not os.access(path if path.exists() else folder, os.W_OK):
        faults.append(f"--export is '{path}', which can't be written")
    return faults


def write_rows(results: Sequence[Result], path: str | os.PathLike[str]) -> None:
    """Write a row per run to a .csv or .parquet file, replacing it. Raises RunError."""
    rows = [row(result) for result in results]
    new = Path(f"{path}.new")  # a reader sees the old table or the whole new one
    try:
        (_write_csv if Path(path).suffix == ".csv" else _write_parquet)(rows, new)
        new.replace(path)
    except OSError as error:
        raise RunError(f"can't write '{path}': {error.strerror or error}") from error


def _write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns())
        writer.writerows(map(_csv_text, r.values()) for r in rows)


def _write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    kinds = {
        "str": pyarrow.string(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
    }
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns().items()])
    table = pyarrow.Table.from_pylist([dict(r) for r in rows], schema=schema)
    pyarrow.parquet.write_table(table, path)


def _text(name: str, value: Any) -> Any:
    """Return a value as one would type its flag, if it isn't a single number or word."""
    if name == "mesh":
        return mesh_text(value.items())
    if name == "inject_delay":
        return ",".join(f"{rank}:{seconds * 1e6:g}" for rank, seconds in value)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def _csv_text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
