"""Slurm's hostlists, such as `n[01-16,20],gpu[1-2]-[0,3]x`: read in the order given, and folded."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from ClusterShell.RangeSet import RangeSet, RangeSetParseError

from jaxbench.errors import InputError

MOST_NODES = 1_000_000  # of one hostlist; more is a slip, and would fill the memory
MOST_BRACKETS = 20  # in each other
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)
_RANGE = re.compile(r"\d{1,18}(-\d{1,18})?", re.ASCII)
_MARKS = re.compile(r"[\[\],]")
_DEEPER = {"[": 1, "]": -1, ",": 0}
_TOO_MANY = f"makes it more than {MOST_NODES:,} nodes"
_EXPECTED = "is not a node name or range such as n[01-16,20]"


def expand(hostlist: str) -> list[str]:
    """Return the names of a hostlist, in its order; several brackets in a name are a product.

    The last bracket runs fastest. What is between the commas of a bracket is a range, or has
    brackets itself: n[1,2[3-4]] is n1,n23,n24. InputError tells every part that is no name or
    range, and lists that are too long.
    """
    names: list[str] = []
    faults: list[str] = []
    for part in _split(hostlist.strip()):
        try:
            names += _names(part, MOST_NODES - len(names))
        except InputError as error:
            shown = part if len(part) <= 80 else f"{part[:80]}..."
            faults += [f"'{shown}' {fault}" for fault in error.faults]
    if faults:
        raise InputError(faults)
    return names


def folded(names: Iterable[str], most: int = 200) -> str:
    """Return names as a hostlist, each once and sorted, cut after `most` characters."""
    nodes = NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP)
    text = str(nodes)
    return text if len(text) <= most else f"{text[:most]}... ({len(nodes)} nodes)"


def is_name(text: str) -> bool:
    """Return whether a text is one plain name, which a hostlist can have."""
    return bool(_PLAIN.fullmatch(text))


def _split(text: str) -> list[str]:
    """Return what is between the commas outside brackets."""
    parts, start, depth = [], 0, 0
    for mark in _MARKS.finditer(text):
        depth = max(depth + _DEEPER[mark[0]], 0)
        if mark[0] == "," and not depth:
            parts.append(text[start : mark.start()])
            start = mark.end()
    return [*parts, text[start:]]


def _names(part: str, most: int) -> list[str]:
    """Return the names of a part without commas outside brackets; InputError without the part."""
    pieces, start, depth, deepest = [], 0, 0, 0  # literal, inside of a bracket, literal, ...
    for mark in _MARKS.finditer(part):
        deeper = depth + _DEEPER[mark[0]]
        if {depth, deeper} == {0, 1}:
            pieces.append(part[start : mark.start()])
            start = mark.end()
        depth, deepest = deeper, max(deepest, deeper)
    pieces.append(part[start:])
    # Each bracket stands for something, so it counts as a letter.
    if depth or deepest > MOST_BRACKETS or not _PLAIN.fullmatch("0".join(pieces[::2])):
        raise InputError(_EXPECTED)
    choices = [
        _inside(piece, most) if number % 2 else [piece] for number, piece in enumerate(pieces)
    ]
    if math.prod(map(len, choices)) > most:
        raise InputError(_TOO_MANY)
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _inside(bracket: str, most: int) -> list[str]:
    """Return what a bracket stands for."""
    found: list[str] = []
    for item in _split(bracket):
        if "[" in item:
            found += _names(item, most - len(found))
        elif not _RANGE.fullmatch(item):
            raise InputError(_EXPECTED)
        else:
            first, _, last = item.partition("-")
            if int(last or first) - int(first) >= most - len(found):
                raise InputError(_TOO_MANY)
            try:
                found += RangeSet(item).striter()
            except RangeSetParseError as error:  # such as one that falls
                raise InputError(f"is not a hostlist: {error}") from error
    return found
