"""What XLA kept of a program's collectives, against what the program says.

A collective matches by kind, elements, groups (or pairs), how often the loops around it run it,
and whether a conditional is around it. How often a branch is taken isn't in the HLO: that follows
from the predicates, which `counting` evaluates. The dtype on the wire is reported, not compared: a
backend may widen it (bf16 travels as f32 on CPU).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxbench.readings.hlo import HloCollective
from jaxbench.readings.sites import Groups, Site


@dataclass(frozen=True)
class Key:
    """What has to be equal."""

    kind: str
    elements: int
    groups: Groups
    pairs: tuple[tuple[int, int], ...]
    trips: int | None
    conditional: bool
    combined: int

    def __str__(self) -> str:
        who = f"{len(self.pairs)} pairs"
        if self.groups:
            who = f"{len(self.groups)} groups of {len(self.groups[0])}"
        where = f", {self.trips} x in loops" if self.trips != 1 else ""
        where += ", under a conditional" if self.conditional else ""
        where += f", {self.combined} combined into one" if self.combined > 1 else ""
        return f"{self.kind} of {self.elements:,} elements, {who}{where}"


@dataclass(frozen=True)
class Comparison:
    """Plan against compiled program: what is missing from it and what is extra, with counts."""

    missing: tuple[tuple[Key, int], ...]
    extra: tuple[tuple[Key, int], ...]
    wire_dtypes: dict[str, tuple[str, ...]]
    hlo_site_bytes: dict[str, int]

    @property
    def equal(self) -> bool:
        """Whether the compiler kept exactly what the program says."""
        return not self.missing and not self.extra

    def __str__(self) -> str:
        if self.equal:
            return "plan = compiled"
        lines = [f"planned but not compiled: {n} x {key}" for key, n in self.missing]
        lines += [f"compiled but not planned: {n} x {key}" for key, n in self.extra]
        return "plan and compiled program differ: " + "; ".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison for a record; `hlo_site_bytes`
        adds up what each place in the HLO moves when it runs once."""
        return {
            "equal": self.equal,
            "missing": [[str(key), n] for key, n in self.missing],
            "extra": [[str(key), n] for key, n in self.extra],
            "wire_dtypes": {kind: list(types) for kind, types in self.wire_dtypes.items()},
            "hlo_site_bytes": self.hlo_site_bytes,
        }


def compare(sites: Sequence[Site], found: Sequence[HloCollective]) -> Comparison:
    """Compare a program's collectives with those of its compiled HLO."""
    planned, compiled = Counter(map(_planned, sites)), Counter(map(_compiled, found))
    dtypes: dict[str, set[str]] = {}
    sizes: dict[str, int] = {}
    for collective in found:
        dtypes.setdefault(collective.kind, set()).add(collective.dtype)
        sizes[collective.kind] = sizes.get(collective.kind, 0) + collective.bytes
    return Comparison(
        missing=_sorted(planned - compiled),
        extra=_sorted(compiled - planned),
        wire_dtypes={kind: tuple(sorted(types)) for kind, types in dtypes.items()},
        hlo_site_bytes=sizes,
    )


def _planned(site: Site) -> Key:
    groups = () if site.kind == "permute" else _normal(site.groups, site.kind)
    return Key(
        site.kind, site.elements, groups, site.pairs, site.trips, site.conditional, combined=1
    )


def _compiled(found: HloCollective) -> Key:
    groups = () if found.kind == "permute" else _normal(found.groups, found.kind)
    pairs = tuple(sorted(found.pairs))
    conditional = found.conditional > 0
    return Key(found.kind, found.elements, groups, pairs, found.trips, conditional, found.combined)


def _normal(groups: Iterable[Iterable[int]], kind: str) -> Groups:
    """Sort the groups; inside a group the order matters unless every member gets the same sum."""
    members = (sorted(g) if kind == "all_reduce" else g for g in groups)
    return tuple(sorted(tuple(g) for g in members))


def _sorted(counter: Counter[Key]) -> tuple[tuple[Key, int], ...]:
    return tuple(sorted(counter.items(), key=lambda item: str(item[0])))
