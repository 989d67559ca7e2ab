"""Slurm's topology.yaml (25.05 and later): several topologies, each by name and of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from yaml.nodes import MappingNode, Node

from jaxbench.errors import InputError, unknown
from jaxbench.topology.slurm_blocks import (
    BLOCK,
    aggregated_by_size,
    read_sizes,
    under_aggregated,
)
from jaxbench.topology.slurm_switch import Switch, members, repeated
from jaxbench.topology.yaml_nodes import compose, fields, items, line_of, value

KINDS = ("tree", "block", "flat", "ring", "torus3d")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class _Listed(NamedTuple):
    """One topology of the file: its kind and what is said of it."""

    name: str
    line: int
    default: bool
    kind: str
    content: Node


def read_yaml(text: str, wanted: str = "") -> tuple[str, list[Switch]]:
    """Return a topology of the file, as its name and its switches or blocks in order.

    It is the `wanted` one, or the first that is the cluster's default, or the only one. Errors:
    InputError with all that is wrong with the list and with the chosen one, and the lines.
    """
    faults: list[str] = []
    root = compose(text)
    nodes = [] if root is None else items(root, "the file", faults)
    listed = [one for node in nodes if (one := _listed(node, faults))]
    names = [one.name for one in listed]
    for number, one in enumerate(listed):
        if (first := names.index(one.name)) < number:
            faults.append(
                f"line {one.line}: topology {one.name} has line {listed[first].line} already"
            )
    if not listed and not faults:
        faults.append("no topology in it; expected a list of entries with 'topology: NAME'")
    chosen = _chosen(listed, wanted, faults) if listed else None
    switches: list[Switch] = []
    if chosen is not None and chosen.kind in _READERS:
        switches = _READERS[chosen.kind](chosen.content, faults)
    elif chosen is not None:
        known = ", ".join(one.name for one in listed if one.kind in _READERS)
        faults.append(
            f"line {chosen.line}: topology {chosen.name} is {chosen.kind}, which has no switches "
            f"or blocks; with a tree or blocks: {known or 'none'} (--topology=FILE:NAME names one)"
        )
    if chosen is None or faults:
        raise InputError(faults)
    return chosen.name, switches


def _listed(node: Node, faults: list[str]) -> _Listed | None:
    """Return an entry of the file's list, None if it can't be told what it is."""
    found = fields(node, "a topology", ("topology", "cluster_default", *KINDS), faults)
    if not found:
        return None
    line = line_of(node)
    name = value(found.get("topology"), "topology", faults)
    if not name:
        faults.append(f"line {line}: a topology without a name; expected 'topology: NAME'")
    default = _truth(found.get("cluster_default"), "cluster_default", faults)
    said = [kind for kind in KINDS if kind in found]
    if "flat" in said and _BOOLEANS.get(str(found["flat"].value).lower()) is False:
        said.remove("flat")
    if len(said) != 1:
        faults.append(
            f"line {line}: topology {name or 'without a name'} has {', '.join(said) or 'nothing'}; "
            f"expected one of {', '.join(KINDS)}"
        )
    if not name or len(said) != 1:
        return None
    return _Listed(name, line, default, said[0], found[said[0]])


def _truth(node: Node | None, what: str, faults: list[str]) -> bool:
    text = value(node, what, faults)
    if node is not None and text and text.lower() not in _BOOLEANS:
        faults.append(f"line {line_of(node)}: {what} is {text}; expected true or false")
    return _BOOLEANS.get(text.lower(), False)


def _chosen(listed: Sequence[_Listed], wanted: str, faults: list[str]) -> _Listed | None:
    """Return the topology that is meant; None, with a fault, if that can't be told."""
    by_name = {one.name: one for one in listed}
    if wanted:
        if wanted not in by_name:
            faults.append(unknown("topology", wanted, by_name))
        return by_name.get(wanted)
    if len(listed) == 1:
        return listed[0]
    default = next((one for one in listed if one.default), None)
    if default is None:
        faults.append(
            "none of its topologies has cluster_default: true; expected --topology=FILE:NAME; "
            f"known: {', '.join(by_name)}"
        )
    return default


def _tree(node: Node, faults: list[str]) -> list[Switch]:
    switches: list[Switch] = []
    found = fields(node, "tree", ("switches",), faults)
    for entry in _entries(found, "switches", node, faults):
        said = fields(entry, "a switch", ("switch", "children", "nodes"), faults)
        name = _name(said, "switch", entry, faults)
        nodes = _members(said, "nodes", faults)
        below = _members(said, "children", faults)
        line = line_of(entry)
        if nodes and below:
            faults.append(
                f"line {line}: switch {name} has children and nodes; expected one of them"
            )
        switches.append(Switch(name, line, nodes, below))
    faults += repeated(switches)
    return switches


def _blocks(node: Node, faults: list[str]) -> list[Switch]:
    blocks: list[Switch] = []
    found = fields(node, "block", ("block_sizes", "blocks"), faults)
    for entry in _entries(found, "blocks", node, faults):
        said = fields(entry, "a block", ("block", "nodes"), faults)
        name = _name(said, "block", entry, faults)
        blocks.append(Switch(name, line_of(entry), _members(said, "nodes", faults), (), BLOCK))
    faults += repeated(blocks)
    sizes: tuple[int, ...] = ()
    line = line_of(found.get("block_sizes", node))
    if "block_sizes" in found:
        listed = items(found["block_sizes"], "block_sizes", faults)
        words = [value(size, "a block size", faults) for size in listed]
        sizes = read_sizes(words, f"line {line}: block_sizes: ", faults)
    return under_aggregated(blocks, aggregated_by_size(blocks, sizes, line))


_READERS = {"tree": _tree, "block": _blocks}


def _entries(found: dict[str, Node], key: str, node: Node, faults: list[str]) -> list[Node]:
    """Return the entries of a list that must be there."""
    if key in found:
        return items(found[key], key, faults)
    if isinstance(node, MappingNode):  # else that is a fault already
        faults.append(f"line {line_of(node)}: no {key}; expected a list of them")
    return []


def _name(said: dict[str, Node], key: str, entry: Node, faults: list[str]) -> str:
    """Return the name of a switch or block; '' with a fault if it has none."""
    name = value(said.get(key), key, faults)
    if not name and isinstance(entry, MappingNode):
        faults.append(f"line {line_of(entry)}: a {key} without a name; expected '{key}: NAME'")
    return name


def _members(said: dict[str, Node], key: str, faults: list[str]) -> tuple[str, ...]:
    if key not in said:
        return ()
    where = f"line {line_of(said[key])}: {key}: "
    return members(value(said[key], key, faults), where, faults)
