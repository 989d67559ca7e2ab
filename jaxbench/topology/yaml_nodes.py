"""Reads YAML as nodes that know their lines, so that a fault can say where it is."""

from __future__ import annotations

from collections.abc import Sequence

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from jaxbench.errors import InputError, unknown

_SHAPES = {MappingNode: "a mapping", SequenceNode: "a list", ScalarNode: "a value"}
_NULL = "tag:yaml.org,2002:null"


def compose(text: str) -> Node | None:
    """Return the root of a YAML text, None if it is empty; InputError with the line."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        what = ", ".join(part for part in (error.problem, error.context) if part)
        raise InputError(f"{where}this is no YAML: {what}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(f"line {line}: this is no YAML: {error.reason}") from error
    except RecursionError as error:
        raise InputError("this is no YAML of Slurm: it is nested too deep") from error
    return None if root is None or root.tag == _NULL else root


def line_of(node: Node) -> int:
    """Return the line that a node begins on, from 1."""
    return node.start_mark.line + 1


def fields(node: Node, what: str, known: Sequence[str], faults: list[str]) -> dict[str, Node]:
    """Return the values of a mapping by key; adds to `faults` keys that aren't known, or repeated.

    `what` is what messages call it.
    """
    if not isinstance(node, MappingNode):
        faults.append(f"{_found(node, what)}; expected a mapping with {', '.join(known)}")
        return {}
    found: dict[str, Node] = {}
    for key, value in node.value:
        name = key.value if isinstance(key, ScalarNode) else _SHAPES[type(key)]
        if name not in known:
            faults.append(f"line {line_of(key)}: {unknown(f'key of {what}', name, known)}")
        elif name in found:
            faults.append(f"line {line_of(key)}: {name} is in {what} twice")
        else:
            found[name] = value
    return found


def items(node: Node, what: str, faults: list[str]) -> list[Node]:
    """Return what is in a list; adds to `faults` what is none."""
    if isinstance(node, SequenceNode):
        return node.value
    faults.append(f"{_found(node, what)}; expected a list")
    return []


def value(node: Node | None, what: str, faults: list[str]) -> str:
    """Return a value as it is written, '' if it is not there or null."""
    if node is None or node.tag == _NULL:
        return ""
    if isinstance(node, ScalarNode):
        return node.value
    faults.append(f"{_found(node, what)}; expected a value")
    return ""


def _found(node: Node, what: str) -> str:
    return f"line {line_of(node)}: {what} is {_SHAPES[type(node)]}"
