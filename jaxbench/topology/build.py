"""From what a user gives (a system, a topology file, a placement) to where the ranks are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from jaxbench.catalog.systems import System
from jaxbench.errors import InputError, unknown
from jaxbench.topology.hierarchy import Topology, of_slurm, of_system
from jaxbench.topology.placement import NODES, Placement, place
from jaxbench.topology.placement_classes import PLACEMENTS


def placed(
    system: System,
    devices: int,
    placement: str = "",
    topology_file: str = "",
    partition_nodes: str = "",
    seed: int = 0,
) -> tuple[Topology, Placement]:
    """Return the topology and where `devices` ranks are on it; see `of_slurm` and `place`.

    `topology_file` is a file, or FILE:NAME for one of those in a topology.yaml; without it the
    topology is the system's own. Errors: InputError with all faults of all arguments together.
    """
    faults: list[str] = []
    topology = None
    try:
        topology = _topology(system, topology_file, partition_nodes)
    except InputError as error:
        faults += error.faults
    if topology is None:  # what can be said without one
        if placement and placement not in PLACEMENTS and not placement.startswith(NODES):
            faults.append(f"{unknown('placement', placement, PLACEMENTS)}, or nodes:<hostlist>")
        if devices < 1:
            faults.append(f"--devices is {devices}; it must be at least 1")
        raise InputError(faults)
    return topology, place(topology, system, devices, placement, seed)


def _topology(system: System, file_and_name: str, partition_nodes: str) -> Topology:
    """Return the system's own topology, or that of a file which the system's links fit."""
    if not file_and_name:
        if partition_nodes:
            raise InputError(
                "--partition_nodes is for nodes of a --topology file, which is missing"
            )
        return of_system(system)
    file, colon, name = file_and_name.rpartition(":")
    if not colon or os.path.exists(file_and_name):
        file, name = file_and_name, ""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"--topology={file} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"--topology={file} is no text; expected what `scontrol show topology` prints, "
            "a topology.conf or a topology.yaml"
        ) from error
    topology = of_slurm(text, partition_nodes, file, name)
    faults = _misfits(system, topology)
    if faults:
        raise InputError(faults)
    return topology


def _misfits(system: System, topology: Topology) -> list[str]:
    """Return why the links of a system can't be those of a topology."""
    network = system.network
    if network is None:
        return [f"system {system.name} has no network, so --topology can't say what it looks like"]
    faults = []
    if topology.nodes > system.nodes:
        faults.append(
            f"{topology.source} has {topology.nodes} nodes, but system {system.name} has "
            f"{system.nodes}; name those that count with --partition_nodes"
        )
    tiers = {
        "leaf switches in a group": (
            int(np.bincount(topology.leaf_group).max()),
            (network.leaf_up_Bps, network.group_latency_s),
        ),
        "groups": (len(topology.group_names), (network.global_Bps, network.global_latency_s)),
    }
    for what, (count, numbers) in tiers.items():
        if count > 1 and None in numbers:
            faults.append(
                f"{topology.source} has {count} {what}, but system {system.name} only one: it has "
                "no rate and latency for the links between them"
            )
    return faults
