"""A small Dragonfly+ whose numbers are easy to work with."""

from __future__ import annotations

from typing import Any

from jaxbench.catalog.links import Network, NodeLinks
from jaxbench.catalog.systems import System


def small_system(groups: int = 3, node: dict[str, Any] | None = None, **network: Any) -> System:
    """Return `groups` groups of 2 leaves of 2 nodes of 4 devices, with 10 B/s a card.

    A leaf's uplinks carry 80 B/s (all that its cards can send), two groups' links 40 B/s.
    """
    numbers: dict[str, Any] = {
        "kind": "dragonfly+",
        "nic_Bps": 10.0,
        "nics_per_node": 4,
        "nodes_per_leaf": 2,
        "leaves_per_group": 2,
        "nodes_per_group": 4,
        "groups": groups,
        "leaf_up_Bps": 80.0,
        "global_Bps": 40.0,
        "leaf_latency_s": 1e-6,
        "group_latency_s": 2e-6,
        "global_latency_s": 3e-6,
        "efficiency": 1.0,
    }
    inside: dict[str, Any] = {
        "kind": "crossbar",
        "device_Bps": 100.0,
        "latency_s": 1e-6,
        "efficiency": 1.0,
    }
    return System(
        name="small",
        description="a small Dragonfly+",
        source="made for tests",
        hardware="a100",
        nodes=4 * groups,
        devices_per_node=4,
        node=NodeLinks(**{**inside, **(node or {})}),
        network=Network(**{**numbers, **network}),
    )
