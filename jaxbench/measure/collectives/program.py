"""The program of a cell: its buffers, and the collective once or in a chain of several.

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
from jaxbench.measure.collectives.manner import IN_A_ROW, Manner
from jaxbench.program import Buffer, Program, Size
from jaxbench.rank import Rank, axis_size

LABEL = "message"

# Takes a predicate and a value; returns the value, or zeros where the predicate doesn't hold.
Mask = Callable[[jax.Array, jax.Array], jax.Array]
Verb = Callable[[Rank, str, str, Mask], jax.Array]  # rank, buffer, axis, mask


def by_select(keep: jax.Array, value: jax.Array) -> jax.Array:
    """Mask as it is measured: one pass over the value, without a branch."""
    return lax.select_n(keep, jnp.zeros_like(value), value)


def by_branch(keep: jax.Array, value: jax.Array) -> jax.Array:
    """Mask as the reference can read it at every size; a GPU would wait for the host here."""
    return lax.cond(keep, lambda v: v, jnp.zeros_like, value)


def _shift(rank: Rank, message: str, axis: str, mask: Mask) -> jax.Array:
    n = axis_size(axis)
    ring = [(i, (i + 1) % n) for i in range(n)]
    arrived = rank.permute(message, axis, ring, LABEL, useful=jnp.bool_(True))
    rank.see(LABEL, arrived)
    return arrived


def _broadcast(rank: Rank, message: str, axis: str, mask: Mask) -> jax.Array:
    masked = mask(lax.axis_index(axis) == ROOT, rank.start(message))
    return rank.all_reduce(masked, axis, LABEL)


VERBS: dict[str, Verb] = {  # by kind; each returns what a rank holds afterwards
    "all_reduce": lambda rank, message, axis, mask: rank.all_reduce(message, axis, LABEL),
    "all_gather": lambda rank, message, axis, mask: rank.all_gather(message, axis, LABEL),
    "reduce_scatter": lambda rank, message, axis, mask: rank.reduce_scatter(message, axis, LABEL),
    "all_to_all": lambda rank, message, axis, mask: rank.all_to_all(message, axis, LABEL),
    "permute": _shift,
    "broadcast": _broadcast,
    "reduce": lambda rank, message, axis, mask: rank.all_reduce(message, axis, LABEL),
}


def build_program(
    cell: Cell, executions: int = 1, mask: Mask = by_select, manner: Manner = IN_A_ROW
) -> Program:
    """Return the program that executes the cell's collective `executions` times.

    That is once, or a multiple of the messages.
    """
    verb, n = VERBS[cell.kind], cell.operand_elements
    names = [f"message {number}" for number in range(manner.messages)]

    def execute(rank: Rank, message: str) -> None:
        rank.compute(manner.pause_s, "pause")
        rank.wait(verb(rank, message, cell.axis, mask))

    def turn(rank: Rank, _: jax.Array) -> None:
        for message in names:
            execute(rank, message)

    def step(rank: Rank) -> None:
        if executions == 1:
            execute(rank, names[0])
        else:
            rank.loop(executions // manner.messages, turn)

    return Program(cell.kind, {name: Buffer(Size(n, n, n), cell.dtype) for name in names}, step)
