"""The mesh axes: their names and order, which strategy uses which, and meshes given as text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from jaxbench.errors import unknown

# Outermost first: tensor and expert neighbours are adjacent devices, then pipeline stages,
# then shard groups, then replicas.
AXES = ("data", "fsdp", "pipeline", "expert", "tensor")

STRATEGY_AXES: dict[str, tuple[str, ...]] = {
    "dp": ("data",),
    "fsdp": ("data", "fsdp"),
    "dp_pp": ("data", "pipeline"),
    "dp_pp_tp": ("data", "pipeline", "tensor"),
    "dp_pp_ep": ("data", "pipeline", "expert"),
}

Mesh = tuple[tuple[str, int], ...]


def parse_mesh(text: str) -> tuple[dict[str, int], list[str]]:
    """Read 'data=2,pipeline=4'; return the sizes that are right and what is wrong with the rest."""
    sizes: dict[str, int] = {}
    faults = []
    for part in text.split(","):
        axis, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals:
            faults.append(f"--mesh has '{part}'; write axis=size, as in data=2,pipeline=4")
        elif axis not in AXES:
            faults.append(unknown("mesh axis", axis, AXES))
        elif axis in sizes:
            faults.append(f"--mesh names the axis '{axis}' twice")
        elif not re.fullmatch("0*[1-9][0-9]{0,17}", number):
            wrong = f"--mesh gives '{axis}' the size '{number}'"
            faults.append(f"{wrong}; it must be a whole number of at least 1")
        else:
            sizes[axis] = int(number)
    return sizes, faults


def resolve_mesh(
    strategy: str | None, sizes: Mapping[str, int], devices: int | None
) -> tuple[dict[str, int], list[str]]:
    """Return the sizes of all five axes from those given and the number of devices.

    A missing `data` is devices / product; without devices it is 1. Without any size, dp puts
    all devices on `data`. What can't be resolved is a fault (`strategy` None: not known).
    """
    product = math.prod(sizes.values())
    if devices is None and not sizes:
        return {}, ["the number of ranks is missing: give --devices=8 or --mesh=data=2,pipeline=4"]
    if devices is not None and not sizes and devices > 1 and strategy not in (None, "dp"):
        example = "--mesh=" + ",".join(f"{axis}=2" for axis in STRATEGY_AXES[strategy][1:])
        return {}, [f"strategy {strategy} needs a mesh beside --devices, as in {example}"]
    full = {axis: sizes.get(axis, 1) for axis in AXES}
    if devices is None or devices == product:
        return full, []
    given = ",".join(f"{axis}={size}" for axis, size in sizes.items())
    if "data" in sizes:
        return {}, [f"--mesh={given} makes {product} ranks, but --devices is {devices}"]
    if devices % product:
        near = sorted({max(devices // product, 1) * product, (devices // product + 1) * product})
        return {}, [
            f"--mesh={given} takes a multiple of {product} ranks, but --devices is {devices}; "
            f"use {' or '.join(map(str, near))}"
        ]
    return {**full, "data": devices // product}, []


def mesh_in_order(sizes: Mapping[str, int], order: Sequence[str]) -> Mesh:
    """Return the axes with their sizes (1 where missing), outermost first."""
    return tuple((axis, sizes.get(axis, 1)) for axis in order)


def mesh_text(mesh: Iterable[tuple[str, int]]) -> str:
    """Return 'data=2,pipeline=4': the axes in use, 'data=1' if there is none."""
    return ",".join(f"{axis}={size}" for axis, size in mesh if size > 1) or "data=1"
