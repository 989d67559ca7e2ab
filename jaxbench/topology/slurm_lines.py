"""The lines of `scontrol show topology` and of topology.conf: one switch or block each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jaxbench.errors import InputError
from jaxbench.topology.slurm_blocks import (
    AGGREGATED,
    BLOCK,
    aggregated_by_size,
    read_sizes,
    under_aggregated,
)
from jaxbench.topology.slurm_switch import Switch, members, repeated

EXPECTED = (
    "a line such as 'SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[01-16]' or "
    "'BlockName=b1 BlockIndex=0 Nodes=n[01-16]'"
)
_KINDS = {"switchname": "switch", "blockname": BLOCK, "aggregatedblock": AGGREGATED}
_WHOLE = re.compile(r"[0-9]{1,9}")
_OF_EMPTY_SWITCH = {"switchname", "level", "linkspeed"}


def read_lines(text: str) -> list[Switch]:
    """Return the switches or blocks of a file in its order; InputError tells every faulty line.

    Blocks come with what is aggregated directly above them, as printed, or by BlockSizes=; where
    neither is there, nothing is above them.
    """
    found: dict[str, list[Switch]] = {kind: [] for kind in _KINDS.values()}
    sizes: tuple[int, ...] = ()
    sizes_line = 0
    faults: list[str] = []
    for number, words in _lines(text):
        try:
            values = _values(words)
            if "blocksizes" in values:
                where = f"line {number}: BlockSizes="
                sizes = read_sizes(values["blocksizes"].split(","), where, faults)
                sizes_line = number
            else:
                switch = _switch(number, values)
                found[switch.kind].append(switch)
        except InputError as error:
            faults += [f"line {number}: {fault}" for fault in error.faults]
    switches, blocks, aggregated = (found[kind] for kind in _KINDS.values())
    faults += repeated(switches)
    faults += repeated([*blocks, *aggregated])
    if switches and blocks:
        faults.append(
            f"line {blocks[0].line}: a block, but line {switches[0].line} has a switch; expected "
            "one kind, that of the cluster's TopologyPlugin"
        )
    if not switches and not blocks and not faults:
        faults.append(f"no switch in it; expected {EXPECTED}")
    if faults:
        raise InputError(faults)
    if switches:
        return switches
    return under_aggregated(blocks, aggregated or aggregated_by_size(blocks, sizes, sizes_line))


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the words of each line with its number; one that ends in a backslash goes on."""
    words: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.partition("#")[0].rstrip()
        goes_on = line.endswith("\\")
        start = start or number
        words += line.removesuffix("\\").split()
        if not goes_on:
            if words:
                yield start, words
            words, start = [], 0
    if words:
        yield start, words


def _values(words: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"'{word[:40]}' is no KEY=VALUE; expected {EXPECTED}")
        values[key.lower()] = value.strip('"')  # topology.conf knows no case
    return values


def _switch(number: int, values: dict[str, str]) -> Switch:
    """Return the switch or block of a line; InputError without the line's number."""
    key = next((key for key in _KINDS if values.get(key)), None)
    if key is None:
        raise InputError(f"no SwitchName= or BlockName=; expected {EXPECTED}")
    kind, name = _KINDS[key], values[key]
    faults: list[str] = []
    if kind == "switch":
        # Slurm prints an empty leaf with a level and no lists, as a slip in a key would look.
        empty = "level" in values and values.keys() <= _OF_EMPTY_SWITCH
        if not values.keys() & {"nodes", "switches"} and not empty:
            raise InputError(f"neither Nodes= nor Switches=; expected {EXPECTED}")
        nodes = members(values.get("nodes", ""), "Nodes=: ", faults)
        below = members(values.get("switches", ""), "Switches=: ", faults)
        faults += _wrong_level(values.get("level"), below if not faults else None)
    else:
        if "nodes" not in values:
            raise InputError(f"no Nodes=; expected {EXPECTED}")
        nodes = members(values["nodes"], "Nodes=: ", faults)
        below = members(name, "AggregatedBlock=: ", faults) if kind == AGGREGATED else ()
    if faults:
        raise InputError(faults)
    return Switch(name, number, nodes, below, kind)


def _wrong_level(level: str | None, below: tuple[str, ...] | None) -> list[str]:
    """Return why a level is none, or not that of a switch with these below it (None: unknown)."""
    if level is None:
        return []
    if not _WHOLE.fullmatch(level):
        return [f"Level={level}; expected a whole number, 0 for a leaf switch"]
    if below is not None and (int(level) > 0) != bool(below):
        has = "has Switches=" if below else "has no Switches="
        return [f"Level={level}, but it {has}; expected Level=0 for leaf switches only"]
    return []
