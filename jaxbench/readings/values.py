"""Whether every rank holds what the reference says: checked before a program is timed.

Two parts: (1) `check_all_values` runs the same program with buffers scaled to little memory and
compares every element of every shard; (2) `check_seen` looks at the elements that the measured
program itself returned of every reduced buffer (first, last and 62 spread ones), so that a count
that overflowed at full size shows. Only shards that this process can address are read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxbench.dtypes import find_dtype
from jaxbench.experiment import Experiment
from jaxbench.payload.none import NoPayload
from jaxbench.program import Program, Traced, trace
from jaxbench.readings.build import compile_step, make_buffers
from jaxbench.readings.lazy import Flat
from jaxbench.readings.plan import build_program
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.reference import reference, split_seen

LIMIT_BYTES = 1 << 19  # of all buffers of all ranks in part 1; DESIGN allows 64 MiB


@dataclass(frozen=True)
class ValueCheck:
    """How many elements were compared, and what was wrong (a sentence per array)."""

    compared: int
    faults: tuple[str, ...]
    expected: int  # how many elements there were to compare on this process

    @property
    def ok(self) -> bool:
        """Whether all that there was to compare was compared, and right."""
        return self.compared == self.expected and not self.faults

    def to_json(self) -> dict[str, Any]:
        """Return the check for a record."""
        return {"ok": self.ok, "compared": self.compared, "faults": list(self.faults)}


def check_all_values(experiment: Experiment, mesh: Mesh, options: Mapping[str, str]) -> ValueCheck:
    """Run the experiment's program, scaled down, and compare every element on every rank."""
    program = small_program(experiment)
    traced = trace(program, mesh, probed=None)
    executable = compile_step(traced, mesh, lambda seconds, label: NoPayload(), options)
    outputs = executable.compiled(*make_buffers(program, mesh))
    return compare_values(traced, mesh, outputs)


def small_program(experiment: Experiment, limit_bytes: int = LIMIT_BYTES) -> Program:
    """Return the experiment's program with all buffers of all ranks within about `limit_bytes`."""
    _, program = build_program(experiment)
    scale = min(1.0, limit_bytes / max(1, experiment.devices * _bytes(program)))
    return build_program(replace(experiment, size_scale=experiment.size_scale * scale))[1]


def compare_values(traced: Traced, mesh: Mesh, outputs: Sequence[jax.Array]) -> ValueCheck:
    """Compare a step's outputs (token, buffers, seen) with the reference, element by element."""
    ranks = Ranks(tuple(mesh.shape.items()))
    buffers, seen = reference(traced, ranks, dense=sys.maxsize)
    faults: list[str] = []
    compared = 0
    names = list(traced.program.buffers)
    tolerance = _tolerance(traced, mesh)
    for name, expected, array in zip(names, buffers, outputs[1:-1], strict=True):
        wanted = expected.materialize(ranks) if isinstance(expected, Flat) else expected
        wanted = np.broadcast_to(wanted, (ranks.count, wanted.shape[1]))
        for rank, got in local_parts(array, mesh):
            compared += got.size
            faults += _differences(f"buffer '{name}'", rank, got, wanted[rank], 0.0)
    found = _check_seen(seen, traced, mesh, outputs[-1], tolerance)
    expected = len(outputs[0].addressable_shards) * sum(
        buffer.size.padded for buffer in traced.program.buffers.values()
    )
    return ValueCheck(
        compared + found.compared, tuple(faults) + found.faults, expected + found.expected
    )


def check_seen(traced: Traced, mesh: Mesh, seen: jax.Array) -> ValueCheck:
    """Compare what a measured step returned of its reduced values with the reference."""
    _, expected = reference(traced, Ranks(tuple(mesh.shape.items())))
    return _check_seen(expected, traced, mesh, seen, _tolerance(traced, mesh))


def local_parts(array: jax.Array, mesh: Mesh) -> list[tuple[int, np.ndarray]]:
    """Return (rank, its part) for every device of this process that holds a part of `array`."""
    rank_of = {device: rank for rank, device in enumerate(mesh.devices.flat)}
    return [(rank_of[s.device], np.asarray(s.data)) for s in array.addressable_shards]


def _check_seen(
    expected: dict[str, np.ndarray],
    traced: Traced,
    mesh: Mesh,
    seen: jax.Array,
    tolerance: float,
) -> ValueCheck:
    faults: list[str] = []
    compared = 0
    for rank, vector in local_parts(seen, mesh):
        for label, got in split_seen(vector[None], traced.layout).items():
            compared += got.size
            faults += _differences(f"'{label}'", rank, got[0], expected[label][rank], tolerance)
    parts = len(seen.addressable_shards)
    return ValueCheck(compared, tuple(faults), parts * sum(size for _, size in traced.layout))


def _differences(
    what: str, rank: int, got: np.ndarray, wanted: np.ndarray, tolerance: float
) -> list[str]:
    """Return a sentence if `got` isn't `wanted` within the relative tolerance."""
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    wrong = ~(np.abs(got - wanted) <= tolerance * np.abs(wanted)) & ~(
        np.isnan(got) & np.isnan(wanted)
    )
    if not wrong.any():
        return []
    index = int(np.argmax(wrong))
    return [
        f"{what} on rank {rank}: {int(wrong.sum())} of {got.size} values are wrong, the first at "
        f"{index}: {got[index]} instead of {wanted[index]}"
    ]


def _tolerance(traced: Traced, mesh: Mesh) -> float:
    """Return the relative error that rounding may cause.

    None on CPU: XLA sums there in f32 or wider, and the fills are whole numbers. An accelerator
    may round to the array's dtype after every addition: half a unit each.
    """
    if mesh.devices.flat[0].platform == "cpu":
        return 0.0
    widest = max(float(jax.numpy.finfo(b.dtype).eps) for b in traced.program.buffers.values())
    return widest / 2 * max(mesh.shape.values())


def _bytes(program: Program) -> int:
    return sum(b.size.padded * find_dtype(b.dtype) for b in program.buffers.values())
