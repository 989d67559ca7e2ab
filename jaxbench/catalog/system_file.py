"""Reading a file of meshes/: every key is of its kind, and every number has a source."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxbench.catalog.system_keys import KINDS, NETWORK_REQUIRED, REQUIRED, TEXT
from jaxbench.catalog.system_rules import RULES
from jaxbench.catalog.toml_lines import key_lines
from jaxbench.errors import InputError, unknown

TABLES = ("node", "network", "slurm", "sources")


def parsed(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the table of a TOML file and the line of each key; InputError where it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text), key_lines(text)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:  # tomllib tells the line and what it expected
        raise InputError(f"{path} is not TOML: {error}") from error


def checked(name: str, table: Mapping[str, Any], lines: Mapping[str, int]) -> dict[str, Any]:
    """Return the fields of a System, its parts as dicts; InputError tells all faults at once."""
    no_tables = [key for key in TABLES if not isinstance(table.get(key, {}), Mapping)]
    faults = [(key, f"{key} is {table[key]!r}; it must be a table") for key in no_tables]
    table = {key: value for key, value in table.items() if key not in no_tables}
    sources = dict(_flat(table.get("sources", {})))
    values = dict(_flat({k: v for k, v in table.items() if k not in ("slurm", "sources")}))

    needed = REQUIRED | (NETWORK_REQUIRED if "network" in table else {})
    faults += [
        (key, f"key '{key}' is missing; it must be {kind.expected}")
        for key, kind in needed.items()
        if key not in values and key.partition(".")[0] not in no_tables
    ]
    faults += [(key, unknown("key", key, KINDS)) for key in values if key not in KINDS]
    faults += [
        (key, _kind_fault(key, value))
        for key, value in values.items()
        if key in KINDS and not KINDS[key].fits(value)
    ]
    if not faults:  # the numbers are there, so that they can be set against each other
        faults += [fault for rule in RULES for fault in rule(values)]
    if "sources" not in no_tables:
        faults += _source_faults(values, sources)
    if faults:
        raise InputError([_sentence(name, lines.get(key), text) for key, text in faults])
    return {
        **{key: value for key, value in values.items() if "." not in key},
        "node": _part(values, "node"),
        "network": _part(values, "network"),
        "slurm": dict(table.get("slurm", {})),
        "sources": sources,
    }


def _kind_fault(key: str, value: Any) -> str:
    """Say that a value isn't of its key's kind."""
    kind = KINDS[key]
    if kind.names and isinstance(value, str):
        return unknown(key, value, kind.names)
    return f"{key} is {value!r}; it must be {kind.expected}"


def _source_faults(
    values: Mapping[str, Any], sources: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Every number has a source, and every source is one of a number that is there."""
    numbers = [key for key in values if key in KINDS and KINDS[key].number]
    for key in numbers:
        if key not in sources:
            yield key, f"{key} has no source; add it to [sources], 'unverified' if it isn't known"
    for key, text in sources.items():
        if key not in numbers:
            yield f"sources.{key}", f"[sources] has '{key}', which is no number of this file"
        elif not TEXT.fits(text):
            yield f"sources.{key}", f"the source of {key} is {text!r}; it must be a text"


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ('node.kind', value) for every value of a table of tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _part(values: Mapping[str, Any], part: str) -> dict[str, Any] | None:
    """Return the fields of NodeLinks or Network: lists as tuples, rates as floats."""
    found = {key.partition(".")[2]: v for key, v in values.items() if key.startswith(f"{part}.")}
    return {key: _frozen(value) for key, value in found.items()} or None


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _sentence(name: str, line: int | None, text: str) -> str:
    return f"system '{name}'{f', line {line}' if line else ''}: {text}"
