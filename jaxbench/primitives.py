"""The three primitives a program is made of besides JAX's own collectives.

`compute` stands for a piece of the model's work, `tie` for "not before", `mark` for "this message
carries a microbatch". All three leave values as they are, bit for bit; what they mean to time is
given by their lowering when a program runs and by a reading when it does not.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import mlir

# No value a program carries comes near it, and XLA cannot know that.
_NEVER = 1e30

# The scope that a payload's operations are lowered under is this word and the compute's label.
COMPUTE_SCOPE = "compute"

compute_p = Primitive("compute")
tie_p = Primitive("tie")
mark_p = Primitive("mark")


def compute(token: jax.Array, seconds: float, label: str) -> jax.Array:
    """Return `token` (f32[1]) after `seconds` of work of the target hardware.

    One equation of the jaxpr, with `seconds`, `label` and `payload` as static parameters. The
    payload says what is executed; it is None until a rewrite of the jaxpr sets it
    (`jaxbench.payload.with_payload`), and a program without payload does not lower.
    """
    return compute_p.bind(token, seconds=float(seconds), label=label, payload=None)


def tie(value: jax.Array, after: jax.Array) -> jax.Array:
    """Return `value`, available only once `after` is: one element of each is really connected.

    On CPU an element of `value` that depends on `after` is written in place, because XLA's CPU
    compiler removes `optimization_barrier` before it schedules. On GPU and TPU the barrier is
    kept, costs nothing and prevents merging, so it is used there; single elements (tokens) are
    tied by arithmetic as well, because a collective whose result only a barrier reads is removed.
    """
    return tie_p.bind(value, after)


def mark(message: jax.Array, useful: jax.Array) -> jax.Array:
    """Return `message`, noting for the plan whether it carries anything (`useful`: bool scalar)."""
    return mark_p.bind(message, useful)


def _same_as_first(first: Any, *_: Any, **__: Any) -> Any:
    return first


for _primitive in (compute_p, tie_p, mark_p):
    _primitive.def_abstract_eval(_same_as_first)


def tie_by_element(value: jax.Array, after: jax.Array) -> jax.Array:
    """Write the first element of `value` again, as one that depends on `after`."""
    late = lax.reshape(lax.slice(after, [0] * after.ndim, [1] * after.ndim), ())
    late = late.astype(jnp.float32) > _NEVER
    first = lax.slice(value, [0] * value.ndim, [1] * value.ndim)
    first = lax.select(lax.broadcast(late, first.shape), jnp.ones_like(first), first)
    return first if value.size == 1 else lax.dynamic_update_slice(value, first, [0] * value.ndim)


def tie_by_barrier(value: jax.Array, after: jax.Array) -> jax.Array:
    """Tie by `optimization_barrier`; orders nothing on CPU (there it only documents intent)."""
    if value.size == 1:
        value = tie_by_element(value, after)
    return lax.optimization_barrier((value, after))[0]


def _compute_lowering(ctx: Any, token: Any, *, seconds: float, label: str, payload: Any) -> Any:
    if payload is None:
        raise ValueError(
            f"compute '{label}' ({seconds} s) has no payload; set one with "
            "jaxbench.payload.with_payload(jaxpr, choose) before lowering"
        )

    def apply(token: jax.Array) -> jax.Array:
        with jax.named_scope(f"{COMPUTE_SCOPE} {label}"):  # a profile tells compute by it
            return payload.apply(token)

    return mlir.lower_fun(apply, multiple_results=False)(ctx, token)


mlir.register_lowering(compute_p, _compute_lowering)
mlir.register_lowering(tie_p, mlir.lower_fun(tie_by_barrier, multiple_results=False))
mlir.register_lowering(
    tie_p, mlir.lower_fun(tie_by_element, multiple_results=False), platform="cpu"
)
mlir.register_lowering(mark_p, lambda ctx, message, useful: [message])
