"""A user's program without calls: what jit, checkpoint and custom derivatives wrap is put in place.

XLA inlines them too, so that an operation before a call and one in it end up in one kernel; and it
drops what nothing needs, such as the value of a function that is only differentiated.
"""

from __future__ import annotations

import copy
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxbench.jaxprs import Equation

CALLED = ("call_jaxpr", "jaxpr", "fun_jaxpr")  # parameters that may hold what is called

CALLS = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat",
    "remat2",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "custom_lin",
)


def inline_calls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the program with every call replaced by what it does, without dead code."""
    return ClosedJaxpr(_inline(closed.jaxpr), closed.consts)


def _inline(jaxpr: Jaxpr) -> Jaxpr:
    equations: list[Equation] = []
    names: dict[Any, Any] = {}
    _append(equations, jaxpr, names, fresh=False)
    outvars = [_renamed(atom, names) for atom in jaxpr.outvars]
    return jaxpr.replace(eqns=_needed(equations, outvars), outvars=outvars)


def _needed(equations: list[Equation], outvars: list[Any]) -> list[Equation]:
    """Return the equations that results come from, or that have an effect of their own."""
    wanted = {atom for atom in outvars if not isinstance(atom, Literal)}
    kept = []
    for eqn in reversed(equations):
        if eqn.effects or wanted.intersection(eqn.outvars):
            kept.append(eqn)
            wanted.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
    return kept[::-1]


def _append(equations: list[Equation], jaxpr: Jaxpr, names: dict[Any, Any], fresh: bool) -> None:
    """Append the equations of `jaxpr`; `names` says what stands for its variables.

    Variables of a call are new ones each time (`fresh`): a function called twice is one jaxpr.
    """
    for eqn in jaxpr.eqns:
        operands = [_renamed(atom, names) for atom in eqn.invars]
        called = _called(eqn)
        if called is not None:
            inner, constants = called
            inside: dict[Any, Any] = {
                variable: Literal(value, variable.aval)
                for variable, value in zip(inner.constvars, constants, strict=True)
            }
            inside.update(zip(inner.invars, operands, strict=True))
            _append(equations, inner, inside, fresh=True)
            for outer, atom in zip(eqn.outvars, inner.outvars, strict=True):
                names[outer] = _renamed(atom, inside)
            continue
        if fresh:
            names.update((variable, copy.copy(variable)) for variable in eqn.outvars)
        results = [names.get(variable, variable) for variable in eqn.outvars]
        params = {name: _inlined_param(value) for name, value in eqn.params.items()}
        equations.append(eqn.replace(invars=operands, outvars=results, params=params))


def _called(eqn: Equation) -> tuple[Jaxpr, list[Any]] | None:
    """Return what an equation calls, with its constants; None if it isn't a call."""
    if eqn.primitive.name not in CALLS:
        return None
    inner = next((eqn.params[name] for name in CALLED if name in eqn.params), None)
    if isinstance(inner, ClosedJaxpr):
        return inner.jaxpr, list(inner.consts)
    return (inner, []) if isinstance(inner, Jaxpr) and not inner.constvars else None


def _renamed(atom: Any, names: dict[Any, Any]) -> Any:
    return atom if isinstance(atom, Literal) else names.get(atom, atom)


def _inlined_param(value: Any) -> Any:
    """Inline the calls in a body that an equation holds; what is no body stays as it is."""
    if isinstance(value, ClosedJaxpr):
        return inline_calls(value)
    if isinstance(value, Jaxpr):
        return _inline(value)
    if isinstance(value, (tuple, list)) and any(isinstance(v, (ClosedJaxpr, Jaxpr)) for v in value):
        return type(value)(_inlined_param(item) for item in value)
    return value
