"""The file of fits: latency and bandwidth of collectives, for whoever predicts with them.

`jaxbench collectives --fit=FILE` writes a JSON object:

    format       "jaxbench collective fits"
    version      1
    time         when it was written, UTC
    environment  where it was measured, as in a record
    fits         a list of objects, one per kind, axis, group size and dtype:
        kind, axis, group_size, dtype
        groups           how many such groups communicated at once
        mesh, ranks      sizes of all mesh axes, outermost first; the devices chosen, null for all
        messages, pause_s    buffers that took turns; seconds of compute before each (manner.py)
        executes         what was run, in words; wire_dtypes: the types XLA moved
        latency_s, bandwidth_Bps            null where they can't be told from the data
        latency_se_s, seconds_per_byte_se   standard errors, null where unknown
        bus_factor       bus bandwidth = bus_factor * bandwidth_Bps
        bytes, time_s, fitted_s             lists over the sizes measured
        residuals        (time_s - fitted_s) / fitted_s, per size
        r_squared        share of the variance of log(time) the fit explains, null if level
        note             why a parameter is null, else null

Sizes are counted as by nccl-tests (`kinds.KINDS`), seconds and bytes are SI.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxbench.errors import InputError
from jaxbench.measure.record import writable_faults

FORMAT = "jaxbench collective fits"
VERSION = 1


def fits_document(
    fits: Sequence[Mapping[str, Any]], environment: Mapping[str, Any], time: str
) -> dict[str, Any]:
    """Return what the file of fits holds; each of `fits` has the fields the module lists."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "time": time,
        "environment": dict(environment),
        "fits": [dict(fit) for fit in fits],
    }


def write_fits(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Write the file of fits whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, target)


def read_fits(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a file of fits; InputError where it isn't one, or is of a newer version."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"can't read fits '{path}': {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"'{path}' isn't JSON, so no file of fits") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"'{path}' isn't a file of fits; jaxbench collectives --fit writes them")
    if not isinstance(document.get("version"), int) or document["version"] > VERSION:
        found = document.get("version")
        raise InputError(f"'{path}' has version {found} of fits; {VERSION} is the newest known")
    return document


def join_fits(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return two files of fits as one; InputError where they are of different platforms."""
    platforms = [_platform(document) for document in (one, other)]
    if platforms[0] != platforms[1]:
        raise InputError(f"fits measured on {platforms[0]} and on {platforms[1]} can't be joined")
    lists = [document.get("fits") for document in (one, other)]
    if all(isinstance(fits, list) for fits in lists):
        return {**one, "fits": [fit for fits in lists for fit in fits or ()]}
    return dict(other if isinstance(lists[0], list) else one)  # whose reader tells what is wrong


def _platform(document: Mapping[str, Any]) -> Any:
    environment = document.get("environment")
    return environment.get("platform") if isinstance(environment, Mapping) else None


def writable_fault(path: str) -> str | None:
    """Return why a file of fits can't be written to `path`; None if it can. Leaves no trace."""
    target = Path(path)
    if target.is_dir():
        return f"can't write fits to '{path}': it is a folder"
    for fault in writable_faults(target.parent):
        reason = fault.partition(": ")[2].rpartition(" (")[0]
        return f"can't write fits to '{path}': {reason}"
    return None
