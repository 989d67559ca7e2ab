"""Slurm's hostlists, such as `n[01-16,20],gpu[1-2]-[0-3]`: read in the order given, and folded."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from jaxbench.errors import InputError

MOST_NODES = 1_000_000  # of one hostlist; more is a slip, and would fill the memory
_COMMA = re.compile(r",(?![^\[]*\])")  # outside brackets
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_PLAIN = re.compile(r"[\w.-]+")


def expand(hostlist: str) -> list[str]:
    """Return the names of a hostlist, in its order; several brackets in a name are a product.

    InputError tells every part that is no name or range, and lists that are too long.
    """
    names: list[str] = []
    faults: list[str] = []
    for part in _COMMA.split(hostlist.strip()):
        fault = _fault(part)
        if fault:
            faults.append(f"'{part}' {fault}")
            continue
        try:
            names += NodeSet(part, resolver=RESOLVER_NOGROUP)
        except NodeSetException as error:  # such as a range that falls
            faults.append(f"'{part}' is not a hostlist: {error}")
    if faults:
        raise InputError(faults)
    return names


def folded(names: Iterable[str], most: int = 200) -> str:
    """Return names as a hostlist, cut after `most` characters."""
    nodes = NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP)
    text = str(nodes)
    return text if len(text) <= most else f"{text[:most]}... ({len(nodes)} nodes)"


def _fault(part: str) -> str | None:
    """Return why a part of a hostlist is none, before ClusterShell may take it for more."""
    expected = "is not a node name or range such as n[01-16,20]"
    if not _PLAIN.fullmatch(_BRACKETS.sub("0", part)):
        return expected
    count = 1
    for ranges in _BRACKETS.findall(part):
        if not _RANGES.fullmatch(ranges):
            return expected
        ends = [one.split("-") for one in ranges.split(",")]
        count *= sum(max(int(end[-1]) - int(end[0]) + 1, 1) for end in ends)
    return f"has more than {MOST_NODES:,} nodes" if count > MOST_NODES else None
