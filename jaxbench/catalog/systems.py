"""The systems: one file `meshes/<name>.toml` each, read when asked for and checked as a whole."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from jaxbench.catalog.hardware import HARDWARE
from jaxbench.data import data_folder, data_names
from jaxbench.errors import InputError, unknown


@dataclass(frozen=True, kw_only=True)
class System:
    """One machine: how many devices of which kind it has."""

    name: str
    description: str
    source: str
    hardware: str  # a row of HARDWARE
    nodes: int
    devices_per_node: int

    @property
    def devices(self) -> int:
        """Devices of the whole system."""
        return self.nodes * self.devices_per_node


def system_names() -> list[str]:
    """Return the names of all systems, sorted."""
    return data_names("meshes", ".toml")


def find_system(name: str) -> System:
    """Return the system `name`; an unknown name or a faulty file is an InputError."""
    if name not in system_names():
        raise InputError(unknown("system", name, system_names()))
    path = data_folder("meshes") / f"{name}.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}") from error
    return read_system(name, table)


def read_system(name: str, table: Mapping[str, Any]) -> System:
    """Return the system of a parsed file; InputError tells everything that is wrong with it."""
    kinds = {field.name: field.type for field in fields(System) if field.name != "name"}
    faults = [unknown("key", key, kinds) for key in table if key not in kinds]
    faults += [f"key '{key}' is missing" for key in kinds if key not in table]
    for key, value in table.items():
        if kinds.get(key) == "str" and not (isinstance(value, str) and value):
            faults.append(f"{key} is {value!r}; it must be a text")
        if kinds.get(key) == "int" and not (type(value) is int and value > 0):
            faults.append(f"{key} is {value!r}; it must be a whole number of at least 1")
    hardware = table.get("hardware")
    if isinstance(hardware, str) and hardware and hardware not in HARDWARE:
        faults.append(unknown("hardware", hardware, HARDWARE))
    if faults:
        raise InputError([f"system '{name}': {fault}" for fault in faults])
    return System(name=name, **table)
