"""The lines of `scontrol show topology` (and of topology.conf): one switch each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from jaxbench.errors import InputError
from jaxbench.topology.hostlist import expand, folded

EXPECTED = "a line such as 'SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[01-16]'"
_EMPTY = ("", "(null)", "none")  # how Slurm prints a list without entries


@dataclass(frozen=True)
class Switch:
    """One switch: the nodes under it, and the switches below it if it is no leaf."""

    name: str
    line: int  # of the file, from 1
    nodes: tuple[str, ...]
    below: tuple[str, ...]


def read_switches(text: str) -> list[Switch]:
    """Return the switches of a file in its order; InputError tells every faulty line."""
    switches: list[Switch] = []
    faults: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words:
            try:
                switches.append(_switch(number, words))
            except InputError as error:
                faults += [f"line {number}: {fault}" for fault in error.faults]
    first: dict[str, int] = {}
    for switch in switches:
        if first.setdefault(switch.name, switch.line) != switch.line:
            faults.append(
                f"line {switch.line}: switch {switch.name} has line {first[switch.name]} already"
            )
    if not switches and not faults:
        faults.append(f"no switch in it; expected {EXPECTED}")
    if faults:
        raise InputError(faults)
    return switches


def _switch(number: int, words: list[str]) -> Switch:
    """Return the switch of a line; InputError without the line's number."""
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"'{word[:40]}' is no KEY=VALUE; expected {EXPECTED}")
        values[key.lower()] = value  # topology.conf knows no case
    if not values.get("switchname"):
        raise InputError(f"no SwitchName=; expected {EXPECTED}")
    if "nodes" not in values and "switches" not in values:
        raise InputError(f"neither Nodes= nor Switches=; expected {EXPECTED}")
    faults, lists = [], {}
    for key in ("nodes", "switches"):
        hostlist = values.get(key, "")
        try:
            lists[key] = () if hostlist.lower() in _EMPTY else tuple(expand(hostlist))
        except InputError as error:
            lists[key] = ()
            faults += [f"{key.capitalize()}=: {fault}" for fault in error.faults]
        if twice := [name for name, times in Counter(lists[key]).items() if times > 1]:
            faults.append(f"{folded(twice)} is named twice")
    level = values.get("level")
    if level is not None and not (level.isascii() and level.isdigit()):
        faults.append(f"Level={level}; expected a whole number, 0 for a leaf switch")
    elif level is not None and not faults and (int(level) > 0) != bool(lists["switches"]):
        has = "has Switches=" if lists["switches"] else "has no Switches="
        faults.append(f"Level={level}, but it {has}; expected Level=0 for leaf switches only")
    if faults:
        raise InputError(faults)
    return Switch(values["switchname"], number, lists["nodes"], lists["switches"])
