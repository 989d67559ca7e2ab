"""A switch of Slurm's topology files, in whatever form they have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from jaxbench.errors import InputError
from jaxbench.topology.hostlist import expand, folded

_EMPTY = ("", "(null)", "none")  # how Slurm prints a list without entries


@dataclass(frozen=True)
class Switch:
    """One switch: the nodes under it, and the switches below it if it is no leaf.

    A block of nodes is one too, and so is what Slurm aggregates of blocks; `kind` is what messages
    call it.
    """

    name: str
    line: int  # of the file, from 1
    nodes: tuple[str, ...]
    below: tuple[str, ...]
    kind: str = "switch"


def members(hostlist: str, where: str, faults: list[str]) -> tuple[str, ...]:
    """Return the names of a list; adds to `faults`, as of `where`, what is wrong with it."""
    if hostlist.lower() in _EMPTY:
        return ()
    try:
        names = tuple(expand(hostlist))
    except InputError as error:
        faults += [f"{where}{fault}" for fault in error.faults]
        return ()
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        faults.append(f"{where}{folded(twice)} is named twice")
    return names


def repeated(switches: Iterable[Switch]) -> list[str]:
    """Return a fault for every switch whose name an earlier one has ('' is no name)."""
    first: dict[str, int] = {}
    faults = []
    for switch in switches:
        if switch.name and switch.name in first:
            faults.append(
                f"line {switch.line}: {switch.kind} {switch.name} has line {first[switch.name]} "
                "already"
            )
        first.setdefault(switch.name, switch.line)
    return faults
