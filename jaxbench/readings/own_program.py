"""A user's shard_map function as a program that the readings take: its calls inlined, checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxbench.axes import Mesh
from jaxbench.errors import InputError
from jaxbench.jaxprs import Equation
from jaxbench.readings.own_program_inline import inline_calls
from jaxbench.readings.own_program_traffic import structure, structured_equations
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import KINDS, collective_axes

# They name mesh axes, but send nothing.
SILENT = frozenset(("axis_index", "pvary", "pcast", "mesh_cast"))


@dataclass(frozen=True)
class OwnProgram:
    """A traced function without calls: `closed` holds its shard_maps, all on a mesh of `axes`.

    `notes` say what of it isn't counted.
    """

    name: str
    closed: ClosedJaxpr
    axes: Mesh
    notes: tuple[str, ...]

    @property
    def ranks(self) -> Ranks:
        """The ranks of its mesh."""
        return Ranks(self.axes)

    @property
    def bodies(self) -> list[Jaxpr]:
        """What each of its shard_maps does on a rank."""
        return [eqn.params["jaxpr"] for eqn in shard_maps(self.closed.jaxpr)]


def read_program(name: str, closed: ClosedJaxpr) -> OwnProgram:
    """Return a traced function as a program; InputError with all that can't be read of it."""
    flat = inline_calls(closed)
    maps = list(shard_maps(flat.jaxpr))
    if not maps:
        raise InputError(
            f"{name} isn't a shard_map, and calls none; wrap it: "
            "jax.shard_map(function, mesh=mesh, in_specs=..., out_specs=...)"
        )
    meshes = list(dict.fromkeys(tuple(eqn.params["mesh"].shape.items()) for eqn in maps))
    faults = []
    if len(meshes) > 1:
        found = " and ".join(str(dict(mesh)) for mesh in meshes)
        faults.append(f"{name} has shard_maps on different meshes, {found}; use a single one")
    faults += dict.fromkeys(fault for eqn in maps for fault in _map_faults(name, eqn))
    if faults:
        raise InputError(faults)
    return OwnProgram(name, flat, meshes[0], tuple(_notes(flat.jaxpr, maps)))


def shard_maps(jaxpr: Jaxpr) -> Iterator[Equation]:
    """Yield the outermost shard_maps."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            yield eqn
        else:
            for body in structure(eqn):
                yield from shard_maps(body)


def _map_faults(name: str, outer: Equation) -> Iterator[str]:
    axes = set(outer.params["mesh"].axis_names)
    manual = set(outer.params.get("newly_manual_axes", outer.params.get("manual_axes", axes)))
    if left := sorted(map(str, axes - manual)):
        yield (
            f"{name} leaves the axes {', '.join(left)} to the compiler (axis_names), whose "
            "collectives can't be read; make every axis manual"
        )
    for eqn in structured_equations(outer.params["jaxpr"]):
        primitive = eqn.primitive.name
        if primitive not in KINDS:
            continue
        if eqn.params.get("axis_index_groups") is not None:
            yield f"{name} uses axis_index_groups in {primitive}; use a mesh axis for the groups"
        if KINDS[primitive] == "permute" and len(collective_axes(eqn)) > 1:
            over = ", ".join(collective_axes(eqn))
            yield f"{name} permutes over the axes {over} at once; permute over one axis"


def _notes(jaxpr: Jaxpr, maps: list[Equation]) -> Iterator[str]:
    outside = Counter(_outside(jaxpr))
    if outside:
        yield f"outside of shard_map, and not counted: {_listed(outside)}"
    axes = {axis for eqn in maps for axis in eqn.params["mesh"].axis_names}
    foreign = Counter(
        eqn.primitive.name
        for outer in maps
        for eqn in structured_equations(outer.params["jaxpr"])
        if eqn.primitive.name not in KINDS and _communicates(eqn, axes)
    )
    if foreign:
        yield f"collectives of a kind that isn't known, and not counted: {_listed(foreign)}"


def _outside(jaxpr: Jaxpr) -> Iterator[str]:
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            continue
        inner = list(structure(eqn))
        if not inner:
            yield eqn.primitive.name
        for body in inner:
            yield from _outside(body)


def _communicates(eqn: Equation, axes: set[Any]) -> bool:
    """Whether an equation names mesh axes, and not only to ask or note something of them."""
    if eqn.primitive.name in SILENT or list(structure(eqn)):
        return False
    named = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    named = named if isinstance(named, (tuple, list, set, frozenset)) else (named,)
    return any(isinstance(axis, str) and axis in axes for axis in named)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} x {count}" for name, count in sorted(counts.items()))
