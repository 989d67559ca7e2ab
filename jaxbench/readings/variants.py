"""The same program without transfer, without collectives, without compute.

    variant(traced, "sync_only")    # a program of the same signature, to be compiled like the full

| variant      | collectives      | compute                  |
| ------------ | ---------------- | ------------------------ |
| full         | real             | real                     |
| sync_only    | one element each | real                     |
| compute_only | none             | real                     |
| comm_only    | real             | same payload, zero trips |
| latency_only | one element each | same payload, zero trips |

Where collectives carry one element (or none), every floating-point array is followed by a single
representative element: ties, waits, loops, conditionals and the order of everything stay, but no
large array is read, copied or made; the buffers are handed on. So the values of these variants mean
nothing; what counts are their dependencies. Compute isn't deleted but given zero trips: without any
payload XLA would merge and reorder the collectives of what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxbench.errors import RunError
from jaxbench.jaxprs import Equation, scan_counts
from jaxbench.payload.interface import Payload
from jaxbench.primitives import compute_p, mark_p, tie, tie_p
from jaxbench.program import Traced, all_axes
from jaxbench.readings.sites import KINDS, Site, collective_axes
from jaxbench.readings.walker import CALLS

Choose = Callable[[float, str], Payload]


@dataclass(frozen=True)
class Variant:
    """What a variant does with collectives ('real', 'element' or 'none') and with compute."""

    collectives: str
    compute: bool


VARIANTS: dict[str, Variant] = {
    "full": Variant("real", True),
    "sync_only": Variant("element", True),
    "compute_only": Variant("none", True),
    "comm_only": Variant("real", False),
    "latency_only": Variant("element", False),
}


def variant(traced: Traced, name: str) -> Traced:
    """Return the program of variant `name`, with the arguments and results of `traced`."""
    collectives = VARIANTS[name].collectives
    if collectives == "real":
        return traced
    body = _body_of(traced)

    def local_step(*arguments: jax.Array) -> tuple[jax.Array, ...]:
        follower = _Follower(collectives)
        token, *buffers = arguments
        # What follows a buffer comes from the token: one that were read would have to be copied.
        elements = [token, *((token + 1).astype(buffer.dtype) for buffer in buffers)]
        token, *results = follower.evaluate(body, [], elements)
        seen = jnp.broadcast_to(results[-1], _aval(body.outvars[-1]).shape)
        for result in results[:-1]:  # nothing that a buffer went through may be left out
            token = tie(token, result)
        return token, *buffers, seen

    spec = all_axes(traced.mesh)
    step = jax.shard_map(
        local_step,
        mesh=traced.mesh,
        in_specs=(spec,) * len(traced.arguments),
        out_specs=(spec,) * len(body.outvars),
        check_vma=False,
    )
    return replace(traced, closed=jax.jit(step).trace(*traced.arguments).jaxpr)


def variant_fault(name: str, sites: Sequence[Site]) -> str | None:
    """Return how the collectives of a compiled variant contradict what the variant is."""
    carries = VARIANTS[name].collectives
    if carries == "none" and sites:
        return f"variant {name} keeps {len(sites)} collectives; it must have none"
    large = [site for site in sites if site.elements > site.group_size]
    if carries == "element" and large:
        return (
            f"variant {name} sends {large[0].elements} elements by {large[0].kind} "
            f"'{large[0].label}'; it must send one to a peer"
        )
    return None


def payloads(name: str, choose: Choose) -> Choose:
    """Return how a variant chooses payloads: as `choose`, or always one with zero trips."""
    return choose if VARIANTS[name].compute else lambda seconds, label: choose(0.0, label)


def _body_of(traced: Traced) -> Jaxpr:
    (outer,) = [eqn for eqn in traced.closed.jaxpr.eqns if eqn.primitive.name == "shard_map"]
    return outer.params["jaxpr"]


def _element(value: jax.Array) -> jax.Array:
    """Return what follows `value`: itself if it steers the program, else one element of it."""
    if not jnp.issubdtype(value.dtype, jnp.floating):
        return value
    if value.ndim == 0:
        return value.reshape(1)
    return lax.slice(value, (0,) * value.ndim, (1,) * value.ndim).reshape(1)


def _aval(variable: Any) -> jax.ShapeDtypeStruct:
    return variable.aval


def _is_floating(variable: Any) -> bool:
    return jnp.issubdtype(_aval(variable).dtype, jnp.floating)


class _Follower:
    """Evaluates one rank's jaxpr with an element in place of every floating-point array."""

    def __init__(self, collectives: str):
        self.collectives = collectives

    def evaluate(
        self, jaxpr: Jaxpr, constants: Sequence[Any], arguments: Sequence[jax.Array]
    ) -> list[jax.Array]:
        values: dict[Any, jax.Array] = dict(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> jax.Array:
            if isinstance(atom, Literal):
                return _element(jnp.asarray(atom.val, _aval(atom).dtype))
            return values[atom]

        for eqn in jaxpr.eqns:
            results = self._equation(eqn, [read(v) for v in eqn.invars])
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _closed(self, closed: ClosedJaxpr, arguments: Sequence[jax.Array]) -> list[jax.Array]:
        constants = [_element(jnp.asarray(c)) for c in closed.consts]
        return self.evaluate(closed.jaxpr, constants, arguments)

    def _equation(self, eqn: Equation, operands: list[jax.Array]) -> list[jax.Array]:
        name = eqn.primitive.name
        if name in CALLS:
            inner = eqn.params.get("jaxpr") or eqn.params["call_jaxpr"]
            return self._closed(inner, operands)
        if name == "scan":
            return self._scan(eqn, operands)
        if name == "cond":
            return self._cond(eqn, operands)
        if name in ("while", "shard_map"):
            raise RunError(f"variants of a program with '{name}' inside its step aren't supported")
        if name in KINDS:
            with jax.named_scope(str(eqn.source_info.name_stack) or name):
                return [self._collective(eqn, operand) for operand in operands]
        if eqn.primitive in (compute_p, tie_p):
            return [eqn.primitive.bind(*operands, **eqn.params)]
        if eqn.primitive is mark_p:
            return [mark_p.bind(*operands)]
        if not any(_is_floating(v) for v in eqn.outvars):
            return self._steering(eqn, operands)
        return [self._combined(eqn, operands)]

    def _collective(self, eqn: Equation, operand: jax.Array) -> jax.Array:
        """Do the collective with the least that it can carry, or leave it out."""
        if self.collectives == "none":
            return operand
        axes, kind = collective_axes(eqn), KINDS[eqn.primitive.name]
        if kind == "all_reduce":
            return lax.psum(operand, axes)
        if kind == "permute":
            return lax.ppermute(operand, axes[0], eqn.params["perm"])
        members = 1
        for axis in axes:
            members *= lax.axis_size(axis)
        if kind == "all_gather":
            return lax.all_gather(operand, axes, axis=0, tiled=True)[:1]
        each = jnp.broadcast_to(operand, (members,))
        if kind == "reduce_scatter":
            return lax.psum_scatter(each, axes, scatter_dimension=0, tiled=True)
        return lax.all_to_all(each, axes, split_axis=0, concat_axis=0, tiled=True)[:1]

    def _steering(self, eqn: Equation, operands: list[jax.Array]) -> list[jax.Array]:
        """Integers and booleans are computed as they are; they must not depend on data."""
        if any(_is_floating(v) for v in eqn.invars):
            raise RunError(
                f"'{eqn.primitive.name}' makes integers of data; variants follow one element of "
                "the data only, so a program must not steer by them"
            )
        bound = eqn.primitive.bind(*operands, **eqn.params)
        return list(bound) if eqn.primitive.multiple_results else [bound]

    def _combined(self, eqn: Equation, operands: list[jax.Array]) -> jax.Array:
        """Return an element that depends on all operands, whatever the equation computes."""
        dtype = _aval(eqn.outvars[0]).dtype
        total = jnp.zeros(1, dtype)
        for operand in operands:
            if not jnp.issubdtype(operand.dtype, jnp.bool_) and operand.size:
                first = lax.slice(operand.reshape(-1), (0,), (1,))
                total = total + first.astype(dtype)
        return total

    def _scan(self, eqn: Equation, operands: list[jax.Array]) -> list[jax.Array]:
        params = eqn.params
        num_consts, num_carry = scan_counts(eqn)
        if len(eqn.outvars) > num_carry or len(operands) > num_consts + num_carry:
            raise RunError("variants of a program that scans over stacked arrays aren't supported")
        consts, carry = operands[:num_consts], operands[num_consts:]

        def body(carry: list[jax.Array], _: None) -> tuple[list[jax.Array], None]:
            return self._closed(params["jaxpr"], [*consts, *carry]), None

        last, _ = lax.scan(body, carry, None, length=params["length"], reverse=params["reverse"])
        return last

    def _cond(self, eqn: Equation, operands: list[jax.Array]) -> list[jax.Array]:
        branches = [
            lambda *arguments, branch=branch: self._closed(branch, arguments)
            for branch in eqn.params["branches"]
        ]
        return list(lax.switch(operands[0], branches, *operands[1:]))
