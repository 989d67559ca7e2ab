"""A user's function, found in its module and traced: what `module:function` stands for.

The module is imported, from the current folder first; nothing else of it is run but a function of
the mesh and a function of the arguments, where they are such.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from jaxbench.axes import Mesh
from jaxbench.errors import InputError, unknown

ARGUMENT = "module:function"


class Loaded(NamedTuple):
    """What is found in a module: the function, what it is called with, or what is wrong."""

    function: Any
    arguments: Any
    faults: list[str]


def load(name: str, mesh: Mesh | None, mesh_given: bool) -> Loaded:
    """Import a module and find `function` and `function_arguments` in it, all faults at once."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return Loaded(None, None, [f"'{name}' isn't {ARGUMENT}, as in transformer_step:step"])
    module_name, function_name = name.split(":")
    with _current_folder():
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            return Loaded(None, None, [_import_fault(module_name, error)])
    faults = []
    missing = object()
    function = getattr(module, function_name, missing)
    arguments = getattr(module, f"{function_name}_arguments", missing)
    if function is missing:
        faults.append(unknown(f"function of module {module_name}", function_name, _own(module)))
    elif not callable(function):
        faults.append(f"{name} is a {type(function).__name__}; it must be a shard_map function")
    if arguments is missing:
        faults.append(
            f"{name}_arguments is missing: the arguments to call {function_name} with, as a tuple "
            "of jax.ShapeDtypeStruct"
        )
    makes = callable(function) and _takes_a_mesh(function)
    if makes and not mesh_given:
        faults.append(f"{name} takes a mesh: give --mesh, as in --mesh=data=2,tensor=4")
    if function is not missing and not makes and mesh_given:
        faults.append(
            f"{name} has a mesh of its own; for --mesh it must be a function of one parameter "
            "'mesh' that returns it"
        )
    if faults or (makes and mesh is None):
        return Loaded(None, None, faults)
    return _resolved(name, function, arguments, mesh if makes else None)


def _resolved(name: str, function: Any, arguments: Any, mesh: Mesh | None) -> Loaded:
    """Call what is to be called with the mesh, and check what the arguments are."""
    from jaxbench.program import abstract_mesh

    given = () if mesh is None else (abstract_mesh(mesh),)
    faults = []
    try:
        function = function(*given) if given else function
    except Exception as error:
        faults.append(f"{name} fails with its mesh: {_said(error)}")
    try:
        arguments = arguments(*given) if callable(arguments) else arguments
    except Exception as error:
        faults.append(f"{name}_arguments fails: {_said(error)}")
    else:
        faults += _argument_faults(name, arguments)
    if not faults and not callable(function):
        faults.append(f"{name} returns a {type(function).__name__}; it must return a function")
    return Loaded(function, arguments, faults)


def traced(name: str, loaded: Loaded) -> Any:
    """Return the jaxpr of a function; InputError if it can't be traced."""
    import jax

    arguments = loaded.arguments
    arguments = tuple(arguments) if isinstance(arguments, (tuple, list)) else (arguments,)
    try:
        return jax.jit(loaded.function).trace(*arguments).jaxpr
    except Exception as error:
        axis = re.search(r"unbound axis name:? '?([\w-]+)", str(error))
        if axis:
            raise InputError(
                f"{name} uses the axis '{axis[1]}', which its mesh hasn't; use an axis of the "
                "mesh of the shard_map around it"
            ) from error
        raise InputError(f"{name} can't be traced with its arguments: {_said(error)}") from error


def read_axes(text: str) -> tuple[Mesh | None, list[str]]:
    """Read 'data=2,tensor=4' with axes of any name; return them, or what is wrong."""
    axes: dict[str, int] = {}
    faults = []
    for part in text.split(","):
        axis, _, size = (piece.strip() for piece in part.partition("="))
        if not axis.isidentifier() or not re.fullmatch("0*[1-9][0-9]{0,6}", size):
            faults.append(f"--mesh has '{part}'; write axis=size, as in data=2,tensor=4")
        elif axis in axes:
            faults.append(f"--mesh names the axis '{axis}' twice")
        else:
            axes[axis] = int(size)
    return (None if faults else tuple(axes.items())), faults


def _own(module: ModuleType) -> list[str]:
    """Return the functions that a module defines itself and has arguments for, else all of them."""
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    return [name for name in own if hasattr(module, f"{name}_arguments")] or own


def _takes_a_mesh(function: Any) -> bool:
    """Whether a function's only parameter without a default is named `mesh`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return [p.name for p in parameters if p.default is p.empty] == ["mesh"]


def _argument_faults(name: str, arguments: Any) -> list[str]:
    import jax

    wrong = {
        type(leaf).__name__
        for leaf in jax.tree.leaves(arguments)
        if not isinstance(leaf, (int, float, complex)) and not hasattr(leaf, "dtype")
    }
    return [
        f"{name}_arguments holds a {kind}; write arrays or jax.ShapeDtypeStruct(shape, dtype)"
        for kind in sorted(wrong)
    ]


def _import_fault(module: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and module.startswith(str(error.name)):
        return f"there is no module '{module}', neither in {os.getcwd()} nor installed"
    return f"module '{module}' can't be imported: {_said(error)}"


def _said(error: Exception) -> str:
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {first}"


@contextmanager
def _current_folder() -> Iterator[None]:
    """Look for modules in the current folder first, as python -m does."""
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path.remove(os.getcwd())
