"""The keys of a file of meshes/, and what kind of value each has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxbench.catalog.hardware import HARDWARE
from jaxbench.catalog.links import NETWORK_KINDS, NODE_KINDS


class Kind(NamedTuple):
    """A kind of value: what it must be, in words; whether a value is; whether it has a source.

    `names` are the values allowed, where they are names.
    """

    expected: str
    fits: Callable[[Any], bool]
    number: bool
    names: tuple[str, ...] = ()


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**31


def _is_fraction(value: Any) -> bool:
    return _is_number(value) and 0 < value <= 1


def _is_loss(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    if not all(isinstance(row, list) and len(row) == 2 for row in value):
        return False
    nodes = [row[0] for row in value]
    rising = all(map(_is_count, nodes)) and nodes == sorted(set(nodes))
    return rising and all(_is_fraction(row[1]) for row in value)


def _one_of(names: tuple[str, ...]) -> Kind:
    return Kind(f"one of {', '.join(names)}", lambda value: value in names, False, names)


TEXT = Kind("a text", lambda value: isinstance(value, str) and value != "", False)
FLAG = Kind("true or false", lambda value: type(value) is bool, False)
COUNT = Kind("a whole number of at least 1", _is_count, True)
POSITIVE = Kind("a number greater than 0", lambda value: _is_number(value) and value > 0, True)
FRACTION = Kind("a number greater than 0 and at most 1", _is_fraction, True)
COUNTS = Kind(
    "a list of whole numbers of at least 1",
    lambda value: isinstance(value, list) and bool(value) and all(map(_is_count, value)),
    True,
)
LOSS = Kind("a list of [nodes, share of the bandwidth left] by rising nodes", _is_loss, True)

REQUIRED: dict[str, Kind] = {
    "description": TEXT,
    "source": TEXT,
    "hardware": _one_of(tuple(HARDWARE)),
    "nodes": COUNT,
    "devices_per_node": COUNT,
    "node.kind": _one_of(NODE_KINDS),
    "node.device_Bps": POSITIVE,
    "node.latency_s": POSITIVE,
    "node.efficiency": FRACTION,
}
NETWORK_REQUIRED: dict[str, Kind] = {  # where there is a [network]
    "network.kind": _one_of(NETWORK_KINDS),
    "network.nic_Bps": POSITIVE,
    "network.nics_per_node": COUNT,
    "network.nodes_per_leaf": COUNT,
    "network.leaves_per_group": COUNT,
    "network.nodes_per_group": COUNT,
    "network.groups": COUNT,
    "network.leaf_latency_s": POSITIVE,
    "network.efficiency": FRACTION,
}
OPTIONAL: dict[str, Kind] = {
    "node.peer_Bps": POSITIVE,
    "node.in_switch": FLAG,
    "node.nodes": COUNT,
    "node.torus": COUNTS,
    "node.wraps": COUNT,
    "network.odd_groups": COUNTS,
    "network.leaf_up_Bps": POSITIVE,
    "network.global_Bps": POSITIVE,
    "network.group_latency_s": POSITIVE,
    "network.global_latency_s": POSITIVE,
    "network.loss": LOSS,
    "network.in_switch": FLAG,
    "network.adaptive": FLAG,
}
KINDS: dict[str, Kind] = REQUIRED | NETWORK_REQUIRED | OPTIONAL
