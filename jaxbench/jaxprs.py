"""Rewriting a traced program equation by equation, through every nested body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

Equation = Any  # jax.extend.core exports no public name for the type of an equation


def replace_equations(closed: ClosedJaxpr, change: Callable[[Equation], Equation]) -> ClosedJaxpr:
    """Return `closed` with `change` applied to every equation that has no body of its own.

    `change` must keep the operands, results and their types; it is for parameters (the payload
    of a compute). Bodies of scan, while, cond, jit and shard_map are rewritten in place.
    """
    return ClosedJaxpr(_replace(closed.jaxpr, change), closed.consts)


def _replace(jaxpr: Jaxpr, change: Callable[[Equation], Equation]) -> Jaxpr:
    equations = []
    for eqn in jaxpr.eqns:
        params = {name: _replace_param(value, change) for name, value in eqn.params.items()}
        has_body = any(params[name] is not eqn.params[name] for name in params)
        equations.append(eqn.replace(params=params) if has_body else change(eqn))
    return jaxpr.replace(eqns=equations)


def _replace_param(value: Any, change: Callable[[Equation], Equation]) -> Any:
    if isinstance(value, ClosedJaxpr):
        return replace_equations(value, change)
    if isinstance(value, Jaxpr):
        return _replace(value, change)
    if isinstance(value, (tuple, list)) and any(isinstance(v, (ClosedJaxpr, Jaxpr)) for v in value):
        return type(value)(_replace_param(v, change) for v in value)
    return value


def bodies(eqn: Equation) -> Iterator[Jaxpr]:
    """Yield the jaxprs an equation holds (loop bodies, branches, called functions)."""
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item


def equations(jaxpr: Jaxpr) -> Iterator[Equation]:
    """Yield every equation of `jaxpr` and of all bodies below it, in program order."""
    for eqn in jaxpr.eqns:
        yield eqn
        for body in bodies(eqn):
            yield from equations(body)


def scan_counts(eqn: Any) -> tuple[int, int]:
    """Return how many constants and carried values a scan has.

    From the ranks of the values: a stacked one has one dimension more outside than inside. The
    parameters differ between versions (num_consts, num_carry in jax 0.10, ft_in, ft_out in 0.11).
    """
    body = eqn.params["jaxpr"].jaxpr
    carry = sum(o.aval.ndim == i.aval.ndim for o, i in zip(eqn.outvars, body.outvars, strict=True))
    stacked = sum(o.aval.ndim > i.aval.ndim for o, i in zip(eqn.invars, body.invars, strict=True))
    return len(eqn.invars) - carry - stacked, carry
