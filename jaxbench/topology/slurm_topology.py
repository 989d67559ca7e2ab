"""The tree that Slurm's switches make: leaves with their nodes, and the groups they are in."""

from __future__ import annotations

import re
from typing import NamedTuple

from jaxbench.errors import InputError
from jaxbench.topology.hostlist import folded
from jaxbench.topology.slurm_lines import read_lines
from jaxbench.topology.slurm_switch import Switch

# What a first line has where a file is YAML: a document, an entry, a key, or JSON.
_YAML = re.compile(r"-|%YAML|[\w]+:(\s|$)|[\[{]")


class Leaf(NamedTuple):
    """A leaf switch, the group it is in, and its nodes in the file's order."""

    name: str
    group: str
    nodes: tuple[str, ...]


def read_leaves(text: str, topology: str = "") -> tuple[str, list[Leaf]]:
    """Return the leaves of a topology file, group by group, in the file's order.

    The file is what `scontrol show topology` prints, a topology.conf or a topology.yaml. The last
    has several topologies, of which one is chosen as `read_yaml` does, and its name comes first;
    else ''. A leaf is a switch without switches below it, or a block of nodes; what is directly
    above it is its group (Slurm's files have an artificial switch on top of those, which joins
    them), and a leaf without one is a group of its own. Leaves without nodes are left out. Errors:
    InputError with every fault and its line.
    """
    if _is_yaml(text):
        from jaxbench.topology.slurm_yaml import read_yaml  # PyYAML takes its time

        name, switches = read_yaml(text, topology)
        return name, _leaves(switches)
    if topology:
        raise InputError(
            f"no topology of the name {topology}: lines of switches or blocks have none; expected "
            "--topology=FILE"
        )
    return "", _leaves(read_lines(text))


def _is_yaml(text: str) -> bool:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return bool(_YAML.match(next(filter(None, lines), "")))


def _leaves(listed: list[Switch]) -> list[Leaf]:
    switches = {switch.name: switch for switch in listed}
    above: dict[str, Switch] = {}
    faults: list[str] = []
    for switch in switches.values():
        for name in switch.below:
            if name not in switches:
                faults.append(f"line {switch.line}: switch {name} has no line of its own")
            elif name in above:
                faults.append(
                    f"line {switch.line}: switch {name} is below {above[name].name} already "
                    f"(line {above[name].line}); expected a tree"
                )
            else:
                above[name] = switch
    faults += _circles(switches, above)
    leaves = [switch for switch in switches.values() if not switch.below and switch.nodes]
    faults += _shared_nodes(leaves)
    if not leaves:
        faults.append(
            "no switch or block with nodes and without switches below it: there is no leaf"
        )
    if faults:
        raise InputError(faults)
    order = {name: number for number, name in enumerate(switches)}
    found = [Leaf(leaf.name, above.get(leaf.name, leaf).name, leaf.nodes) for leaf in leaves]
    return sorted(found, key=lambda leaf: (order[leaf.group], order[leaf.name]))


def _circles(switches: dict[str, Switch], above: dict[str, Switch]) -> list[str]:
    """Return a fault for every switch that is above itself."""
    faults = []
    for switch in switches.values():
        seen, here = set(), above.get(switch.name)
        while here is not None and here.name != switch.name and here.name not in seen:
            seen.add(here.name)
            here = above.get(here.name)
        if here is switch:
            faults.append(f"line {switch.line}: switch {switch.name} is above itself")
    return faults


def _shared_nodes(leaves: list[Switch]) -> list[str]:
    """Return a fault for every two leaves that have nodes in common."""
    leaf_of: dict[str, Switch] = {}
    shared: dict[tuple[str, int, int], list[str]] = {}
    for leaf in leaves:
        for node in leaf.nodes:
            first = leaf_of.setdefault(node, leaf)
            if first is not leaf:
                shared.setdefault((first.name, first.line, leaf.line), []).append(node)
    return [
        f"line {line}: {folded(nodes)} is under {name} already (line {first}); "
        "expected one leaf switch or block for a node"
        for (name, first, line), nodes in shared.items()
    ]
