"""The program of a cell: one buffer, and the collective once or in a chain of several.

A chain is a loop in which every execution waits for the one before, as a step waits for a
collective on its critical path. What is timed is the verb of `rank.Rank` that strategies are
written with, so with all that XLA makes of it: on GPU an all-reduce works on a copy of its operand,
and on CPU the operands of all_gather, reduce_scatter and all_to_all are copied too.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxbench.measure.collectives.cells import Cell
from jaxbench.measure.collectives.kinds import ROOT
from jaxbench.program import Buffer, Program, Size
from jaxbench.rank import Rank, axis_size

MESSAGE = "message"  # the buffer's name and the collective's label

# Takes a predicate and a value; returns the value, or zeros where the predicate doesn't hold.
Mask = Callable[[jax.Array, jax.Array], jax.Array]
Verb = Callable[[Rank, str, Mask], jax.Array]


def by_select(keep: jax.Array, value: jax.Array) -> jax.Array:
    """Mask as it is measured: one pass over the value, without a branch."""
    return lax.select_n(keep, jnp.zeros_like(value), value)


def by_branch(keep: jax.Array, value: jax.Array) -> jax.Array:
    """Mask as the reference can read it at every size; a GPU would wait for the host here."""
    return lax.cond(keep, lambda v: v, jnp.zeros_like, value)


def _shift(rank: Rank, axis: str, mask: Mask) -> jax.Array:
    n = axis_size(axis)
    ring = [(i, (i + 1) % n) for i in range(n)]
    arrived = rank.permute(MESSAGE, axis, ring, MESSAGE, useful=jnp.bool_(True))
    rank.see(MESSAGE, arrived)
    return arrived


def _broadcast(rank: Rank, axis: str, mask: Mask) -> jax.Array:
    masked = mask(lax.axis_index(axis) == ROOT, rank.start(MESSAGE))
    return rank.all_reduce(masked, axis, MESSAGE)


VERBS: dict[str, Verb] = {  # by kind; each returns what a rank holds afterwards
    "all_reduce": lambda rank, axis, mask: rank.all_reduce(MESSAGE, axis, MESSAGE),
    "all_gather": lambda rank, axis, mask: rank.all_gather(MESSAGE, axis, MESSAGE),
    "reduce_scatter": lambda rank, axis, mask: rank.reduce_scatter(MESSAGE, axis, MESSAGE),
    "all_to_all": lambda rank, axis, mask: rank.all_to_all(MESSAGE, axis, MESSAGE),
    "permute": _shift,
    "broadcast": _broadcast,
    "reduce": lambda rank, axis, mask: rank.all_reduce(MESSAGE, axis, MESSAGE),
}


def build_program(cell: Cell, executions: int = 1, mask: Mask = by_select) -> Program:
    """Return the program that executes the cell's collective once, or `executions` times."""
    verb, n = VERBS[cell.kind], cell.operand_elements

    def execute(rank: Rank) -> None:
        rank.wait(verb(rank, cell.axis, mask))

    def step(rank: Rank) -> None:
        if executions == 1:
            execute(rank)
        else:
            rank.loop(executions, lambda inner, _: execute(inner))

    return Program(cell.kind, {MESSAGE: Buffer(Size(n, n, n), cell.dtype)}, step)
