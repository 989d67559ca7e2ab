"""Small programs, compiled for a target, and the collectives found in them.

    python -m tests.readings.aot_programs h100 --passes     # prints JSON, needs the extra `aot`

A GPU or TPU target needs a process of its own, with its environment: `results(target)` starts one.
KEPT are programs whose collectives must all stay as written. BY_PASS are programs that a pass of
the compiler changes: with `compiler_options` they stay as written, with the pass allowed not.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jaxbench.readings.targets import missing_packages, target_environment, target_platform

AXES = {"data": 2, "tensor": 4}
ROWS, COLUMNS = 1024, 128  # of each of a rank's two buffers, f32
SIZE = ROWS * COLUMNS
DATA = [[0, 4], [1, 5], [2, 6], [3, 7]]
TENSOR = [[0, 1, 2, 3], [4, 5, 6, 7]]
SWAP = [[0, 4], [1, 5], [2, 6], [3, 7], [4, 0], [5, 1], [6, 2], [7, 3]]

# kind, elements, dtype, groups or pairs, trips, conditionals, combined
Found = list[Any]


def one(
    kind: str, who: list[list[int]], elements: int = SIZE, trips: int = 1, inside: int = 0
) -> Found:
    return [kind, elements, "f32", who, trips, inside, 1]


@dataclass(frozen=True)
class Case:
    """`step(a, b, token)` of a rank and the collectives it is written with, in any order."""

    step: Callable[..., Any]
    written: list[Found]


def _cases() -> tuple[dict[str, Case], dict[str, Case]]:
    """Return KEPT and BY_PASS; JAX is imported here, once the environment is set."""
    import jax.numpy as jnp
    from jax import lax

    from jaxbench.primitives import tie

    def read(token: Any, *values: Any) -> Any:
        for value in values:
            token = token + (value.reshape(-1)[0].astype(jnp.float32) > 1e30)
        return token

    def gather(x: Any) -> Any:
        return lax.all_gather(x, "tensor")

    def scatter(x: Any) -> Any:
        return lax.psum_scatter(x.reshape(4, -1, COLUMNS), "tensor", scatter_dimension=0)

    def swap(x: Any) -> Any:
        return lax.ppermute(x, "data", [(0, 1), (1, 0)])

    def every_kind(a: Any, b: Any, token: Any) -> Any:
        a = tie(a, token)
        parts = a.reshape(4, -1, COLUMNS)
        exchanged = lax.all_to_all(parts, "tensor", split_axis=0, concat_axis=0, tiled=True)
        summed = lax.psum(a, "tensor")
        return a, read(token, summed, gather(a), scatter(a), exchanged, swap(a))

    def flat_shards(a: Any, b: Any, token: Any) -> Any:
        flat = tie(a.reshape(-1), token)
        shard = scatter(flat).reshape(-1)
        return a, read(token, lax.all_gather(tie(shard, token), "tensor", tiled=True))

    def gathered_twice(a: Any, b: Any, token: Any) -> Any:
        for _ in range(2):
            a = tie(a, token)
            token = read(token, gather(a))
        return a, token

    def reduced_twice(a: Any, b: Any, token: Any) -> Any:
        for _ in range(2):
            a = tie(a, token)
            token = read(token, lax.psum(a, "tensor"))
        return a, token

    def sharded_training(a: Any, b: Any, token: Any) -> Any:
        shards = [a, b]
        for u in (0, 1):
            shards[u] = tie(shards[u], token)
            token = read(token, gather(shards[u]))
        for u in (1, 0):
            shards[u] = tie(shards[u], token)
            full = gather(shards[u])
            token = read(token, full)
            token = read(token, scatter(tie(full, token)))
        return *shards, token

    def unchanged_in_a_loop(a: Any, b: Any, token: Any) -> Any:
        def inner(_: Any, token: Any) -> Any:
            return read(token, gather(tie(a, token)))

        def outer(_: Any, token: Any) -> Any:
            token = read(token, lax.psum(tie(b, token), "data"))
            return lax.fori_loop(2, 7, inner, token)

        return a, lax.fori_loop(0, 3, outer, token)

    def conditional(a: Any, b: Any, token: Any) -> Any:
        def reduce(token: Any) -> Any:
            return read(token, lax.psum(tie(a, token), "tensor"))

        def body(i: Any, token: Any) -> Any:
            return lax.cond(lax.axis_index("data") <= i, reduce, lambda t: t, token)

        return a, lax.fori_loop(0, 6, body, token)

    kept = {
        "every_kind": Case(
            every_kind,
            [
                one("all_reduce", TENSOR),
                one("all_gather", TENSOR, 4 * SIZE),
                one("reduce_scatter", TENSOR),
                one("all_to_all", TENSOR),
                one("permute", SWAP),
            ],
        ),
        "flat_shards": Case(
            flat_shards, [one("reduce_scatter", TENSOR), one("all_gather", TENSOR)]
        ),
        "gathered_twice": Case(gathered_twice, [one("all_gather", TENSOR, 4 * SIZE)] * 2),
        "reduced_twice": Case(reduced_twice, [one("all_reduce", TENSOR)] * 2),
        "sharded_training": Case(
            sharded_training,
            [one("all_gather", TENSOR, 4 * SIZE)] * 4
            + [one("reduce_scatter", TENSOR, 4 * SIZE)] * 2,
        ),
        "unchanged_in_a_loop": Case(
            unchanged_in_a_loop,
            [
                one("all_reduce", DATA, trips=3),
                one("all_gather", TENSOR, 4 * SIZE, trips=15),
            ],
        ),
        "conditional": Case(conditional, [one("all_reduce", TENSOR, trips=6, inside=1)]),
    }

    def both(collective: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda a, b, token: (collective(a), collective(b))

    def added(collective: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda a, b, token: collective(a) + collective(b)

    def reduce(x: Any) -> Any:
        return lax.psum(x, "tensor")

    def accumulated(a: Any, b: Any, token: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, total: total + reduce(a * i), b)

    def invariant(a: Any, b: Any, token: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, total: total + reduce(a) * i, b)

    def broadcast(a: Any, b: Any, token: Any) -> Any:
        return gather(jnp.broadcast_to(token.reshape(1, 1), (ROWS, 1)))

    reduces, gathers = one("all_reduce", TENSOR), one("all_gather", TENSOR, 4 * SIZE)
    two_reduces = Case(both(reduce), [reduces] * 2)
    same_gathers = Case(lambda a, b, token: (gather(a), gather(a) * 2), [gathers] * 2)
    in_loop = [one("all_reduce", TENSOR, trips=5)]
    by_pass = {
        "cpu-all-reduce-combiner": two_reduces,
        "gpu-all-reduce-combiner": two_reduces,
        "all-reduce-combiner": two_reduces,
        "gpu-all-gather-combiner": Case(both(gather), [gathers] * 2),
        "gpu-reduce-scatter-combiner": Case(both(scatter), [one("reduce_scatter", TENSOR)] * 2),
        "collective-permute-combiner": Case(both(swap), [one("permute", SWAP)] * 2),
        "cse": same_gathers,
        "host-offloader": same_gathers,
        "all-reduce-reassociate": Case(added(reduce), [reduces] * 2),
        "reduce-scatter-reassociate": Case(added(scatter), [one("reduce_scatter", TENSOR)] * 2),
        "all-gather-optimizer": Case(added(gather), [gathers] * 2),
        "all-reduce-folder": Case(
            lambda a, b, token: lax.psum(reduce(a), "data"), [reduces, one("all_reduce", DATA)]
        ),
        "all-gather-bcast-reorder": Case(broadcast, [one("all_gather", TENSOR, 4 * ROWS)]),
        "collective-quantizer": Case(lambda a, b, token: gather(a).astype(jnp.bfloat16), [gathers]),
        "bfloat16-propagation": Case(lambda a, b, token: gather(a).astype(jnp.bfloat16), [gathers]),
        "while-loop-all-reduce-code-motion": Case(accumulated, in_loop),
        "while-loop-invariant-code-motion": Case(invariant, in_loop),
    }
    return kept, by_pass


def compile_all(mesh: Any, platform: str, passes: bool) -> dict[str, Any]:
    """Compile the programs for `mesh`; return what was written and found, ready for JSON."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from jaxbench.readings.compiler_options import DISABLED_PASSES, compiler_options
    from jaxbench.readings.hlo import collectives

    spec = PartitionSpec(tuple(mesh.axis_names))
    sharding = NamedSharding(mesh, spec)

    def compiled(step: Callable[..., Any], allow: frozenset[str] = frozenset()) -> Any:
        mapped = jax.shard_map(
            step, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False
        )
        arguments = [
            jax.ShapeDtypeStruct((mesh.size * shape[0], *shape[1:]), jnp.float32, sharding=sharding)
            for shape in ((ROWS, COLUMNS), (ROWS, COLUMNS), (1,))
        ]
        options = compiler_options(platform, allow)
        return jax.jit(mapped).lower(*arguments).compile(compiler_options={**options})

    def found(executable: Any) -> list[Found]:
        return sorted(
            [
                one.kind,
                one.elements,
                one.dtype,
                [list(members) for members in sorted(one.pairs) or one.groups],
                one.trips,
                one.conditional,
                one.combined,
            ]
            for one in collectives(executable.as_text(), mesh.size)
        )

    kept, by_pass = _cases()
    memory = compiled(kept["every_kind"].step).memory_analysis()
    return {
        "mesh": dict(mesh.shape),
        "argument_bytes": memory.argument_size_in_bytes,
        "kept": {
            name: {"written": sorted(case.written), "found": found(compiled(case.step))}
            for name, case in kept.items()
        },
        "passes": {
            name: {
                "written": sorted(case.written),
                "found": found(compiled(case.step)),
                "allowed": found(compiled(case.step, frozenset({name}))),
            }
            for name, case in by_pass.items()
            if passes and name in DISABLED_PASSES[platform]
        },
    }


@functools.cache
def results(target: str, passes: bool = False) -> dict[str, Any]:
    """Return `compile_all` for a target, from a process of its own; skip where that can't be.

    In CI nothing is skipped: there the packages are installed, so a missing one is a failure.
    """
    missing = missing_packages(target)
    if missing:
        reason = f"compiling for {target} needs {', '.join(missing)} (extra `aot`)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.readings.aot_programs", target]
    run = subprocess.run(
        [*command, "--passes"] if passes else command,
        env={**os.environ, **target_environment(target)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, f"{' '.join(command)} failed:\n{run.stderr[-3000:]}"
    return json.loads(run.stdout.splitlines()[-1])


if __name__ == "__main__":
    from jaxbench.readings.targets import target_mesh

    wanted = sys.argv[1]
    described = target_mesh(wanted, AXES)
    print(json.dumps(compile_all(described, target_platform(wanted), "--passes" in sys.argv)))
