"""The systems: one file `meshes/<name>.toml` each, read when asked for and checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxbench.catalog.links import Network, NodeLinks
from jaxbench.catalog.system_file import checked, parsed
from jaxbench.data import data_folder, data_names
from jaxbench.errors import InputError, unknown


@dataclass(frozen=True, kw_only=True)
class System:
    """One machine: its devices, the links between them, and where each number comes from."""

    name: str
    description: str
    source: str
    hardware: str  # a row of HARDWARE
    nodes: int
    devices_per_node: int
    node: NodeLinks
    network: Network | None = None  # None: the node's links join all there is
    # What a job script of this machine needs, such as its partition; keys are Slurm's options.
    slurm: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # 'node.device_Bps' -> where that number comes from; 'unverified' where nobody looked it up
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def devices(self) -> int:
        """Devices of the whole system."""
        return self.nodes * self.devices_per_node


def system_names() -> list[str]:
    """Return the names of all systems, sorted."""
    return data_names("meshes", ".toml")


def find_system(name: str) -> System:
    """Return the system `name`, or that of a user's file, if it ends in '.toml'.

    An unknown name or a faulty file is an InputError.
    """
    if name.endswith(".toml"):
        return read_system_file(Path(name))
    if name not in system_names():
        raise InputError(unknown("system", name, system_names()))
    return read_system_file(data_folder("meshes") / f"{name}.toml")


def read_system_file(path: Path) -> System:
    """Return the system of a file, named as it is; InputError tells all faults by line."""
    table, lines = parsed(path)
    return read_system(path.stem, table, lines)


def read_system(
    name: str, table: Mapping[str, Any], lines: Mapping[str, int] | None = None
) -> System:
    """Return the system of a parsed file; InputError tells everything that is wrong with it.

    `lines` says on which line each key is ('node.kind' -> 7), where that is known.
    """
    values = checked(name, table, lines or {})
    node, network = values.pop("node"), values.pop("network")
    return System(
        name=name,
        node=NodeLinks(**node),
        network=None if network is None else Network(**network),
        **values,
    )
