"""Which device each rank of a job is on, by placement class or by a list of nodes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from jaxbench.catalog.systems import System
from jaxbench.errors import InputError, unknown
from jaxbench.topology.drawn import drawn
from jaxbench.topology.hierarchy import Topology
from jaxbench.topology.listed import listed
from jaxbench.topology.packed import packed
from jaxbench.topology.placement_classes import PLACEMENTS
from jaxbench.topology.shape import Shape
from jaxbench.topology.shapes import shapes_of
from jaxbench.topology.torus import Slice, slice_of

NODES = "nodes:"  # a placement that starts so is a hostlist


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the R ranks of a job are.

    Rank r is device `local[r]` of node `node[r]`, which is on leaf switch `leaf[r]` in group
    `group[r]` and in the scale-up domain `domain[r]`; `torus` is the slice that holds the ranks,
    where devices are on one. `description` says how the nodes were chosen.
    """

    node: np.ndarray  # [R] all
    local: np.ndarray
    leaf: np.ndarray
    group: np.ndarray
    domain: np.ndarray
    description: str
    torus: Slice | None = None
    _shapes: dict[bytes, tuple[np.ndarray, tuple[Shape, ...]]] = field(
        default_factory=dict, repr=False
    )

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.node)

    def shapes(self, groups: np.ndarray) -> tuple[np.ndarray, tuple[Shape, ...]]:
        """Return which shape each of `groups` ([G, n] of ranks) has, [G], and the shapes.

        Answers are kept, as the same groups come again and again.
        """
        groups = np.ascontiguousarray(groups, np.int64)
        key = hashlib.blake2b(groups.tobytes() + bytes(str(groups.shape), "ascii")).digest()
        if key not in self._shapes:
            found = shapes_of(groups, self.domain, self.leaf, self.group, self.torus)
            found[0].flags.writeable = False  # all who ask get the same array
            self._shapes[key] = found
        return self._shapes[key]


def place(
    topology: Topology,
    system: System,
    devices: int,
    placement: str = "",
    seed: int = 0,
    free: np.ndarray | None = None,
) -> Placement:
    """Place `devices` ranks on the nodes of `topology`, whose nodes are those of `system`.

    `placement` is '' (nodes in order, as few groups and leaves as possible), a class of
    PLACEMENTS (drawn with `seed`), or 'nodes:<hostlist>', in the order given. `free` ([N] of
    bool) are the nodes that may be used. Rank r is on the (r // devices_per_node)-th chosen node.
    Errors: InputError with everything that is wrong.
    """
    free = np.ones(topology.nodes, bool) if free is None else free
    per_node = system.devices_per_node
    needed = -(-devices // per_node)
    faults = []
    if devices < 1:
        faults.append(f"--devices is {devices}; it must be at least 1")
    elif needed > free.sum():
        faults.append(
            f"{devices} devices need {needed} nodes of {per_node}, but {topology.source} has "
            f"{free.sum()} to use; ask for at most {free.sum() * per_node} devices"
        )
    nodes = np.zeros(0, np.int64)
    if placement.startswith(NODES):
        nodes, more = listed(topology, placement.removeprefix(NODES), needed, free)
        faults += [f"--placement={placement}: {fault}" for fault in more]
    elif placement and placement not in PLACEMENTS:
        faults.append(f"{unknown('placement', placement, PLACEMENTS)}, or nodes:<hostlist>")
    elif placement and not faults:
        nodes, more = drawn(topology, PLACEMENTS[placement], needed, free, seed)
        faults += [f"--placement={placement} can't hold the job: {fault}" for fault in more]
    elif not faults:
        nodes = packed(topology, needed, free)
    if faults:
        raise InputError(faults)

    node = np.repeat(nodes, per_node)[:devices]
    links = system.node
    torus = None if links.torus is None else slice_of(devices, links.torus, links.wraps)
    return Placement(
        node=node,
        local=np.arange(devices) % per_node,
        leaf=topology.leaf[node],
        group=topology.group[node],
        domain=node // links.nodes,
        description=_description(topology, nodes, placement, seed, torus),
        torus=torus,
    )


def _description(
    topology: Topology, nodes: np.ndarray, placement: str, seed: int, torus: Slice | None
) -> str:
    """Say in a line which nodes these are and how they were chosen."""
    how = "nodes in order"
    if placement:
        how = f"{placement}, seed {seed}" if placement in PLACEMENTS else "nodes as listed"
    parts = [_counted(len(nodes), "node", "nodes")]
    if torus is not None:
        parts.append(f"slice of {'x'.join(map(str, torus.sides))}")
    elif topology.nodes > 1:
        parts.append(_counted(len(np.unique(topology.leaf[nodes])), "leaf switch", "leaf switches"))
        parts.append(_counted(len(np.unique(topology.group[nodes])), "group", "groups"))
    return f"{topology.source}, {how}: {', '.join(parts)}"


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
