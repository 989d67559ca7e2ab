"""What the numbers of a system must be to each other: one rule per function, in RULES."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# A rule gets the values by dotted key, all of the right kind, and yields (key, fault).
Values = Mapping[str, Any]
Faults = Iterator[tuple[str, str]]


def peers_have_links(values: Values) -> Faults:
    """Point-to-point links have a rate of their own; behind a switch there are none."""
    kind, peer = values["node.kind"], values.get("node.peer_Bps")
    if kind in ("peer", "torus") and peer is None:
        yield "node.kind", f"node.kind is {kind}, so node.peer_Bps (of one link) is needed"
    if peer is not None and peer > values["node.device_Bps"]:
        yield "node.peer_Bps", "node.peer_Bps is more than node.device_Bps, that of all links"


def domains_fill_the_system(values: Values) -> Faults:
    """Scale-up domains are whole; without a network there is only one."""
    nodes, domain = values["nodes"], values.get("node.nodes", 1)
    if nodes % domain:
        yield "node.nodes", f"node.nodes is {domain}, which doesn't divide the {nodes} nodes"
    if "network.kind" not in values and domain != nodes:
        yield "node.nodes", f"without a [network], node.nodes must be all {nodes} nodes"


def a_torus_has_the_devices(values: Values) -> Faults:
    """The dimensions of a torus multiply to the devices of the domain."""
    kind, torus = values["node.kind"], values.get("node.torus")
    for key in ("node.torus", "node.wraps"):
        if (kind == "torus") != (key in values):
            yield key, f"{key} belongs to node.kind = 'torus', and is needed there"
    devices = values.get("node.nodes", 1) * values["devices_per_node"]
    if torus is not None and math.prod(torus) != devices:
        shape = "x".join(map(str, torus))
        yield "node.torus", f"node.torus is {shape}, which isn't the {devices} devices it joins"


def groups_hold_the_nodes(values: Values) -> Faults:
    """All groups together have the nodes of the system, and leaves enough for their own."""
    if "network.kind" not in values:
        return
    odd, groups = values.get("network.odd_groups", []), values["network.groups"]
    if len(odd) > groups:
        yield "network.odd_groups", f"network.odd_groups has more than the {groups} groups"
        return
    total = (groups - len(odd)) * values["network.nodes_per_group"] + sum(odd)
    if total != values["nodes"]:
        yield (
            "network.groups",
            f"the groups have {total} nodes, but the system has {values['nodes']}; "
            "network.odd_groups is for the last ones that differ",
        )
    largest = max([*odd, *([values["network.nodes_per_group"]] if len(odd) < groups else [])])
    room = values["network.leaves_per_group"] * values["network.nodes_per_leaf"]
    if largest > room:
        yield (
            "network.leaves_per_group",
            f"a group has {largest} nodes, but its leaves have room for {room}",
        )


def links_between_switches_are_given(values: Values) -> Faults:
    """What a system has several of is joined by links that have a rate and a latency."""
    if "network.kind" not in values:
        return
    several = {"group": values["network.leaves_per_group"], "global": values["network.groups"]}
    rates = {"group": "network.leaf_up_Bps", "global": "network.global_Bps"}
    for tier, count in several.items():
        for key in (rates[tier], f"network.{tier}_latency_s"):
            if count > 1 and key not in values:
                what = "leaves in a group" if tier == "group" else "groups"
                yield key, f"key '{key}' is missing: there are {count} {what}"


RULES: tuple[Callable[[Values], Faults], ...] = (
    peers_have_links,
    domains_fill_the_system,
    a_torus_has_the_devices,
    groups_hold_the_nodes,
    links_between_switches_are_given,
)
