"""A strategy with its numbers filled in, and the SPMD program it is traced to.

A strategy describes what one *rank* (device) does in a step, with the verbs of `Rank`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

from jaxbench.fills import modulus
from jaxbench.rank import PROBED, Rank, rank_number


@dataclass(frozen=True)
class Size:
    """An element count three times: as the model has it, after --size_scale, and as traced.

    `padded` is `scaled` rounded up so that it divides by its group.
    """

    full: int
    scaled: int
    padded: int


@dataclass(frozen=True)
class Buffer:
    """An array a rank keeps from step to step (donated): flat, `size.padded` elements."""

    size: Size
    dtype: str


@dataclass(frozen=True)
class Program:
    """A strategy with its numbers filled in: the buffers of a rank and what it does in a step.

    `messages` gives the `Size` behind a collective's label where that isn't a whole buffer,
    `sent_dtypes` the dtypes of messages beside those of the buffers.
    """

    name: str
    buffers: Mapping[str, Buffer]
    step: Callable[[Rank], None]
    messages: Mapping[str, Size] = field(default_factory=dict)
    sent_dtypes: tuple[str, ...] = ()

    def fill_modulus(self, ranks: int) -> int:
        """Return the modulus that the buffers are filled with on a mesh of `ranks`."""
        return modulus({*self.sent_dtypes, *(b.dtype for b in self.buffers.values())}, ranks)

    def size_of(self, label: str) -> Size | None:
        """Return the size behind the collective labelled `label`, if the strategy stated it."""
        if label in self.messages:
            return self.messages[label]
        return self.buffers[label].size if label in self.buffers else None


def delayed(
    program: Program, axes: Sequence[tuple[str, int]], delays: Sequence[tuple[int, float]]
) -> Program:
    """Return `program` with extra seconds of compute at the start of a step on some ranks."""

    def step(rank: Rank) -> None:
        number = rank_number(axes)
        for late, seconds in delays:
            rank.when(number == late, lambda r, s=seconds: r.compute(s, "injected delay"))
        program.step(rank)

    return replace(program, step=step) if delays else program


@dataclass(frozen=True)
class Traced:
    """A program traced for a mesh: its jaxpr, its arguments, and where each result lies.

    `arguments` are the global shapes (token first, then the buffers in order); the results are the
    token, the buffers, and one f32 vector per rank whose parts `layout` names in order
    (label, elements).
    """

    program: Program
    mesh: Mesh | AbstractMesh
    closed: Any
    arguments: tuple[jax.ShapeDtypeStruct, ...]
    layout: tuple[tuple[str, int], ...]


def all_axes(mesh: Mesh | AbstractMesh) -> PartitionSpec:
    """Return the spec that splits dimension 0 over every axis of the mesh: one part a rank."""
    return PartitionSpec(tuple(mesh.axis_names))


def abstract_mesh(axes: Sequence[tuple[str, int]]) -> AbstractMesh:
    """Return a mesh of the given (axis, size) pairs without devices."""
    names, sizes = [name for name, _ in axes], [size for _, size in axes]
    return AbstractMesh(tuple(sizes), tuple(names), axis_types=(AxisType.Auto,) * len(axes))


def trace(program: Program, mesh: Mesh | AbstractMesh, probed: int | None = PROBED) -> Traced:
    """Trace one step of `program` on `mesh` (a real or an abstract one).

    With `probed=None` every element of every reduced value is returned (for small sizes).
    """
    layout: list[tuple[str, int]] = []
    tiled = isinstance(mesh, Mesh) and mesh.devices.flat[0].platform == "tpu"
    names = list(program.buffers)

    def local_step(token: jax.Array, *values: jax.Array) -> tuple[jax.Array, ...]:
        rank = Rank(token, dict(zip(names, values, strict=True)), None, probed, tiled)
        program.step(rank)
        rank.look()
        layout[:] = [(label, value.size) for label, value in rank.seen.items()]
        seen = jnp.zeros(sum(size for _, size in layout), jnp.float32)
        offset = 0
        for value in rank.seen.values():
            seen = lax.dynamic_update_slice(seen, value, (offset,))
            offset += value.size
        return rank.token, *(rank.buffers[name] for name in names), seen

    ranks = mesh.size
    arguments = (
        jax.ShapeDtypeStruct((ranks,), jnp.float32),
        *(
            jax.ShapeDtypeStruct((ranks * buffer.size.padded,), jnp.dtype(buffer.dtype))
            for buffer in program.buffers.values()
        ),
    )
    spec = all_axes(mesh)
    step = jax.shard_map(
        local_step,
        mesh=mesh,
        in_specs=(spec,) * len(arguments),
        out_specs=(spec,) * (len(arguments) + 1),
        check_vma=False,
    )
    closed = jax.jit(step).trace(*arguments).jaxpr
    return Traced(program, mesh, closed, arguments, tuple(layout))
