"""Fully sharded data parallelism (Zhao et al. 2023, PyTorch FSDP, arXiv 2304.11277).

With r > 1 replicas of the f shards it is hybrid sharding (HSDP).

    all-gather unit 0
    forward, u = 0 .. n-1:
        all-gather unit u+1 over `fsdp`            while computing u
        forward F/n
    backward, u = n-1 .. 0:
        all-gather unit u-1 again                  while computing u; not without resharding
        backward G/n
        reduce-scatter the gradient of u           free to overlap
        all-reduce the shard of u over `data`      free to overlap

The gather of a unit starts when the compute of the unit two before it is done, beside that of the
unit in between, so two units are whole at a time. A unit's gradient takes the place of its gathered
parameters.
"""

from __future__ import annotations

import jax

from jaxbench.program import Buffer, Program
from jaxbench.rank import DATA, FSDP, Rank
from jaxbench.workload import Workload, split


def build(w: Workload) -> Program:
    """Return the fsdp program of a workload."""
    n = w.experiment.units
    units = [w.whole(elements, w.f) for elements in split(w.model.parameters, n)]
    shards = {f"shard {u}": Buffer(w.shard(units[u], w.f), w.experiment.dtype) for u in range(n)}
    reshard = w.experiment.reshard_after_forward

    def step(rank: Rank) -> None:
        def gather(u: int, when: str) -> jax.Array:
            return rank.all_gather(f"shard {u}", FSDP, f"unit {u} {when}")

        unit = {0: gather(0, "forward")}
        for u in range(n):
            if u + 1 < n:
                unit[u + 1] = gather(u + 1, "forward")
            rank.wait(unit[u])
            rank.compute(w.forward_s / n, f"forward {u}")
            if reshard and u + 1 < n:
                rank.release(f"unit {u} forward")
        for u in reversed(range(n)):
            if u > 0 and reshard:
                unit[u - 1] = gather(u - 1, "backward")
            rank.wait(unit[u])
            rank.compute(w.backward_s / n, f"backward {u}")
            gradient = rank.cast(unit[u], w.experiment.grad_dtype)
            shard = rank.reduce_scatter(gradient, FSDP, f"gradient {u}")
            rank.release(f"unit {u} {'backward' if reshard and u + 1 < n else 'forward'}")
            rank.all_reduce(shard, DATA, f"gradient shard {u}")

    messages = {
        **{f"unit {u} {when}": units[u] for u in range(n) for when in ("forward", "backward")},
        **{f"gradient {u}": units[u] for u in range(n)},
        **{f"gradient shard {u}": w.shard(units[u], w.f) for u in range(n)},
    }
    return Program("fsdp", shards, step, messages, (w.experiment.grad_dtype,))
