"""What one rank does in a step: the verbs that strategies are written with.

`Rank` threads the token (the rank's compute stream) and the buffers through JAX, so that the file
of a strategy holds its order and nothing else. A collective starts when the compute before it is
done; unless it is waited for, it is free to overlap what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxbench import primitives
from jaxbench.axes import AXES

DATA, FSDP, PIPELINE, EXPERT, TENSOR = AXES

LANES = 128  # elements in a row of a TPU's registers

PROBED = 64  # elements of every reduced buffer that a measured program returns

State = tuple[jax.Array, dict[str, jax.Array], dict[str, jax.Array]]


class Rank:
    """One rank while a step is being traced: its token, its buffers, and what it has seen.

    `seen` keeps, per label, the sum over all executions of what a collective delivered (64 spread
    elements of it, or all), so that a wrong value or a wrong count shows in the result. `tiled`
    shapes what is gathered and scattered in rows of 128, for TPUs.
    """

    def __init__(
        self,
        token: jax.Array,
        buffers: Mapping[str, jax.Array],
        seen: Mapping[str, jax.Array] | None = None,
        probed: int | None = PROBED,
        tiled: bool = False,
    ):
        self.token = token
        self.buffers = dict(buffers)
        self.seen = dict(seen or {})
        self.probed = probed
        self.tiled = tiled
        self._to_see: dict[str, jax.Array] = {}

    # --- work and waiting ---

    def compute(self, seconds: float, label: str) -> None:
        """Work for `seconds` of the target hardware."""
        if seconds > 0:
            self.token = primitives.compute(self.token, seconds, label)

    def wait(self, value: jax.Array) -> None:
        """Let nothing that follows start before `value` is there."""
        self.token = primitives.tie(self.token, value)

    def release(self, label: str) -> None:
        """Say that what was seen under `label` isn't needed any more.

        It is looked at now, and nothing that follows starts before: else an accelerator's compiler
        may put the look, and with it the memory, off to the end of the step.
        """
        if label in self._to_see:
            sample = self._look_at(label)
            self.token = primitives.tie(self.token, sample)

    def start(self, operand: str | jax.Array) -> jax.Array:
        """Return a buffer (by name) or value that isn't available before all compute so far."""
        value = self.value(operand)
        tied = primitives.tie(value, self.token)
        # From here on the tied value stands for the untied one, whoever holds it: on CPU a tie
        # writes in place only if nothing else reads the value, else XLA copies the whole buffer.
        self.buffers.update({n: tied for n, held in self.buffers.items() if held is value})
        waiting = [label for label, held in self._to_see.items() if held is value]
        for label in waiting:
            del self._to_see[label]
            self._to_see[label] = tied  # last, since results are stored in this order
        return tied

    def value(self, operand: str | jax.Array) -> jax.Array:
        """Return a buffer by its name, or a value as it is."""
        return self.buffers[operand] if isinstance(operand, str) else operand

    def cast(self, value: jax.Array, dtype: str) -> jax.Array:
        """Return `value` in another dtype (converted after all compute so far), or as it is."""
        return value if value.dtype == dtype else self.start(value).astype(jnp.dtype(dtype))

    # --- collectives: over an axis of size 1 they are not traced ---

    def all_reduce(self, operand: str | jax.Array, axis: str, label: str) -> jax.Array:
        """Sum over `axis`; elements in = elements out."""
        return self._collective(operand, axis, label, lambda x: lax.psum(x, axis))

    def all_gather(self, operand: str | jax.Array, axis: str, label: str) -> jax.Array:
        """Concatenate the shards of `axis`; the result is axis-size times the operand."""
        return self._collective(operand, axis, label, lambda x: _gather(x, axis, self.tiled))

    def reduce_scatter(self, operand: str | jax.Array, axis: str, label: str) -> jax.Array:
        """Sum over `axis` and keep this rank's shard; the operand is axis-size times the result."""
        return self._collective(operand, axis, label, lambda x: _scatter(x, axis, self.tiled))

    def all_to_all(self, operand: str | jax.Array, axis: str, label: str) -> jax.Array:
        """Give every peer of `axis` its part of the operand; elements in = elements out."""
        return self._collective(
            operand,
            axis,
            label,
            lambda x: lax.all_to_all(x, axis, split_axis=0, concat_axis=0, tiled=True),
        )

    def permute(
        self,
        operand: str,
        axis: str,
        pairs: Sequence[tuple[int, int]],
        label: str,
        useful: jax.Array,
    ) -> jax.Array:
        """Send a buffer along `pairs` (source, destination) of `axis`; others receive zeros.

        `useful` (bool scalar) tells the plan whether this rank's message carries anything. What
        arrives isn't added to `seen`: the receiver looks at it when it uses it.
        """
        if axis_size(axis) == 1:
            return self.value(operand)
        value = primitives.mark(self.start(operand), useful)
        with jax.named_scope(label):
            return lax.ppermute(value, axis, pairs)

    def _collective(
        self,
        operand: str | jax.Array,
        axis: str,
        label: str,
        operation: Callable[[jax.Array], jax.Array],
    ) -> jax.Array:
        if axis_size(axis) == 1:
            return self.value(operand)
        value = self.start(operand)
        with jax.named_scope(label):
            result = operation(value)
        self.see(label, result)
        return result

    # --- what came out ---

    def see(self, label: str, value: jax.Array) -> None:
        """Add the probed elements of `value` to what was seen under `label`."""
        if label in self._to_see:
            self.look()
        self._to_see[label] = value

    def look(self) -> None:
        """Probe what is still to be seen."""
        for label in list(self._to_see):
            self._look_at(label)

    def _look_at(self, label: str) -> jax.Array:
        sample = probe(self._to_see.pop(label), self.probed)
        self.seen[label] = self.seen[label] + sample if label in self.seen else sample
        return sample

    # --- control flow ---

    def state(self) -> State:
        """Return what a loop carries: token, buffers, seen."""
        self.look()
        return self.token, dict(self.buffers), dict(self.seen)

    def loop(self, trips: int, body: Callable[[Rank, jax.Array], None]) -> None:
        """Run `body(rank, index)` `trips` times (static); only touched buffers are carried."""
        if trips == 0:
            return
        touched = self._prepare(lambda rank: body(rank, jnp.int32(0)))
        constant = {name: value for name, value in self.buffers.items() if name not in touched}

        def iterate(index: jax.Array, carry: State) -> State:
            rank = Rank(carry[0], {**constant, **carry[1]}, carry[2], self.probed, self.tiled)
            body(rank, index)
            rank.look()
            return rank.token, {name: rank.buffers[name] for name in carry[1]}, rank.seen

        start = (self.token, {name: self.buffers[name] for name in touched}, self.seen)
        self.token, changed, self.seen = lax.fori_loop(0, trips, iterate, start)
        self.buffers.update(changed)

    def when(self, predicate: jax.Array, body: Callable[[Rank], None]) -> None:
        """Run `body(rank)` where `predicate` (bool scalar) holds.

        The predicate must be the same on all ranks of every group that communicates in `body`.
        Token and seen come out of it; buffers are only read (a conditional that returned a buffer
        would copy it), so what `body` ties is forgotten afterwards.
        """
        self._prepare(body)

        def taken(token: jax.Array, seen: dict[str, jax.Array]) -> Any:
            rank = Rank(token, self.buffers, seen, self.probed, self.tiled)
            body(rank)
            rank.look()
            return rank.token, rank.seen

        self.token, self.seen = lax.cond(
            predicate, taken, lambda token, seen: (token, seen), self.token, self.seen
        )

    def _prepare(self, body: Callable[[Rank], None]) -> list[str]:
        """Trace `body` once to learn what it sees and which buffers it touches.

        New entries of `seen` start at zero, so that loop and branch carry one structure.
        """
        touched: list[str] = []

        def dry_run(carry: State) -> dict[str, jax.Array]:
            rank = Rank(*carry, probed=self.probed, tiled=self.tiled)
            body(rank)
            rank.look()
            touched.extend(n for n, value in rank.buffers.items() if value is not carry[1][n])
            return rank.seen

        for label, shape in jax.eval_shape(dry_run, self.state()).items():
            if label not in self.seen:
                self.seen[label] = jnp.zeros(shape.shape, shape.dtype)
        return touched


def _gather(shard: jax.Array, axis: str, tiled: bool) -> jax.Array:
    shaped = _in_rows(shard, 1) if tiled else shard
    return lax.all_gather(shaped, axis, axis=0, tiled=True)


def _scatter(whole: jax.Array, axis: str, tiled: bool) -> jax.Array:
    shaped = _in_rows(whole, axis_size(axis)) if tiled else whole
    return lax.psum_scatter(shaped, axis, scatter_dimension=0, tiled=True)


def _in_rows(value: jax.Array, parts: int) -> jax.Array:
    """Return `value` as [parts, rows, 128] if it divides, as it is otherwise.

    TPUs turn a reduce-scatter or an all-gather of a flat array into an all-reduce. On CPU the shape
    costs copies, so only programs for TPUs have it. It isn't changed back, since a tie of a
    reshaped value is a copy too.
    """
    if value.size % (parts * LANES):
        return value
    return value.reshape(parts, -1, LANES)


def axis_size(axis: str) -> int:
    """Return the number of ranks along `axis` of the mesh being traced."""
    return lax.axis_size(axis)


def probe(value: jax.Array, count: int | None) -> jax.Array:
    """Return `count` elements of the flattened `value` as f32: first, last, the rest spread.

    All elements if there are no more than that, or if `count` is None. Strided slices have 64-bit
    bounds, unlike a gather's int32 indices, so arrays above 2^31 elements are probed rightly.
    """
    return lax.convert_element_type(_elements(value.reshape(-1), count), jnp.float32)


def _elements(value: jax.Array, count: int | None) -> jax.Array:
    total = value.size
    if count is None or total <= count:
        return value
    stride = (total - 1) // (count - 1)
    spread = lax.slice(value, (0,), (stride * (count - 2) + 1,), (stride,))
    return lax.concatenate([spread, lax.slice(value, (total - 1,), (total,))], 0)


def probe_positions(total: int, count: int | None) -> list[int]:
    """Return the indices that `probe` reads of `total` elements."""
    if count is None or total <= count:
        return list(range(total))
    stride = (total - 1) // (count - 1)
    return [i * stride for i in range(count - 1)] + [total - 1]


def rank_number(axes: Sequence[tuple[str, int]]) -> jax.Array:
    """Return the rank being traced: its flat position in the mesh of (axis, size) pairs."""
    rank = jnp.int32(0)
    for axis, size in axes:
        rank = rank * size + lax.axis_index(axis)
    return rank
