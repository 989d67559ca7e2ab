"""Blocks of nodes, and which of Slurm's aggregated blocks is directly above each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from jaxbench.topology.hostlist import folded, is_name
from jaxbench.topology.slurm_switch import Switch

_WHOLE = re.compile(r"[1-9][0-9]{0,8}")
BLOCK, AGGREGATED = "block", "aggregated block"


def under_aggregated(blocks: Sequence[Switch], aggregated: Sequence[Switch]) -> list[Switch]:
    """Return blocks, and before each what is directly above it: the smallest one around it.

    An aggregated one that is directly above no block is left out.
    """
    nearest: dict[str, Switch] = {}
    for around in sorted(aggregated, key=lambda one: -len(one.below)):
        nearest |= dict.fromkeys(around.below, around)
    found: dict[str, Switch] = {}
    for block in blocks:
        above = nearest.get(block.name)
        if above is not None and above.name not in found:
            below = tuple(name for name in above.below if nearest[name] is above)
            found[above.name] = Switch(above.name, above.line, above.nodes, below, above.kind)
        found[block.name] = block
    return list(found.values())


def aggregated_by_size(blocks: Sequence[Switch], sizes: Sequence[int], line: int) -> list[Switch]:
    """Return what Slurm aggregates of blocks at each of the enforced `sizes` above the first.

    Sizes are in nodes and count blocks as if each had the first size: as many in a row as that
    makes. What is left at the end is aggregated too if the size before doesn't hold it.
    """
    counts = [size // sizes[0] for size in sizes]
    return [
        Switch(
            name=_name([block.name for block in row]),
            line=line,
            nodes=tuple(node for block in row for node in block.nodes),
            below=tuple(block.name for block in row),
            kind=AGGREGATED,
        )
        for before, count in itertools.pairwise(counts)
        for row in (blocks[first : first + count] for first in range(0, len(blocks), count))
        if len(row) > before
    ]


def _name(names: list[str]) -> str:
    return folded(names, 10**6) if all(map(is_name, names)) else ",".join(names)


def read_sizes(words: Sequence[str], where: str, faults: list[str]) -> tuple[int, ...]:
    """Return enforced sizes: each is the first one times a power of two, and they rise.

    Adds to `faults`, as of `where`, what is wrong with them, and returns none then.
    """
    if not all(_WHOLE.fullmatch(word) for word in words):
        faults.append(f"{where}{','.join(words)}; expected numbers of nodes, such as 4,16")
        return ()
    sizes = tuple(map(int, words))
    wrong = []
    for before, size in itertools.pairwise(sizes):
        if size <= before:
            wrong.append(f"{where}{size} is not larger than {before}, which is before it")
        elif size % sizes[0] or (size // sizes[0]).bit_count() != 1:
            wrong.append(f"{where}{size} is not {sizes[0]}, the first, times a power of two")
    faults += wrong
    return () if wrong else sizes
