"""From a traced program to an executable: payload set, compiled ahead of time, buffers made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AxisType, Mesh, NamedSharding

from jaxbench.experiment import Experiment
from jaxbench.fills import device_fill
from jaxbench.payload import with_payload
from jaxbench.payload.interface import Payload
from jaxbench.program import Program, Traced, all_axes
from jaxbench.rank import rank_number

_cache_hits = [0]  # of JAX's compilation cache in this process


def _count_hits(event: str, **_: Any) -> None:
    _cache_hits[0] += event == "/jax/compilation_cache/cache_hits"


jax.monitoring.register_event_listener(_count_hits)


@dataclass(frozen=True)
class Executable:
    """A compiled step: `compiled(token, *buffers)` returns the token, the buffers, what was seen.

    Token and buffers are donated: feed the results of a step to the next one.
    """

    traced: Traced
    compiled: Any  # jax.stages.Compiled
    text: str
    lower_s: float
    compile_s: float
    cached: bool  # whether JAX's compilation cache had it, so that compile_s is only its reading

    @property
    def temporary_bytes(self) -> int | None:
        """Bytes on a device besides arguments and results, as XLA's memory analysis says."""
        analysis = self.compiled.memory_analysis()
        return None if analysis is None else int(analysis.temp_size_in_bytes)


def make_mesh(experiment: Experiment, devices: Sequence[Any]) -> Mesh:
    """Return the mesh of the experiment over the first devices, in the mesh's rank order."""
    names = tuple(name for name, _ in experiment.mesh)
    sizes = tuple(size for _, size in experiment.mesh)
    chosen = list(devices[: experiment.devices])
    return jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(names), devices=chosen)


def compile_step(
    traced: Traced,
    mesh: Mesh,
    choose: Callable[[float, str], Payload],
    options: Mapping[str, str],
) -> Executable:
    """Compile a traced program for the devices of `mesh` with `choose(seconds, label)` payloads."""
    start = time.perf_counter()
    step = jaxpr_as_fun(with_payload(traced.closed, choose))
    sharding = NamedSharding(mesh, all_axes(mesh))
    arguments = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in traced.arguments
    ]
    jitted = jax.jit(
        step,
        donate_argnums=tuple(range(len(arguments))),
        out_shardings=[sharding] * (len(arguments) + 1),
    )
    lowered = jitted.lower(*arguments)
    lowered_at, hits = time.perf_counter(), _cache_hits[0]
    compiled = lowered.compile(compiler_options={**options})
    done = time.perf_counter()
    text, cached = compiled.as_text() or "", _cache_hits[0] > hits
    return Executable(traced, compiled, text, lowered_at - start, done - lowered_at, cached)


def make_buffers(program: Program, mesh: Mesh) -> list[jax.Array]:
    """Make token and buffers on the devices, filled as `fills` says; no host transfer."""
    sharding, spec = NamedSharding(mesh, all_axes(mesh)), all_axes(mesh)

    def make() -> tuple[jax.Array, ...]:
        rank = rank_number(tuple(mesh.shape.items()))
        m = program.fill_modulus(mesh.size)
        filled = (device_fill(rank, b.size.padded, b.dtype, m) for b in program.buffers.values())
        return jnp.zeros(1, jnp.float32), *filled

    count = len(program.buffers) + 1
    filler = jax.shard_map(make, mesh=mesh, in_specs=(), out_specs=(spec,) * count, check_vma=False)
    return list(jax.jit(filler, out_shardings=(sharding,) * count)())
