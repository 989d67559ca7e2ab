"""Every file of meshes/ is a system with the published counts, and every number has a source."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from jaxbench.catalog.hardware import HARDWARE
from jaxbench.catalog.systems import find_system, system_names
from jaxbench.data import data_folder
from jaxbench.errors import InputError

SYSTEMS = pytest.mark.parametrize("name", system_names())


@SYSTEMS
def test_every_file_is_a_system(name: str) -> None:
    system = find_system(name)
    assert system.name == name
    assert system.hardware in HARDWARE
    assert system.source
    assert isinstance(hash(system), int)  # others keep what they computed for a system


def numbers(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted key of everything in a table that holds a number."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float | list) and not isinstance(value, bool):
            yield f"{prefix}{key}"


@SYSTEMS
def test_every_number_has_a_source(name: str) -> None:
    table = tomllib.loads((data_folder("meshes") / f"{name}.toml").read_text())
    sources = find_system(name).sources
    wanted = set(numbers({k: v for k, v in table.items() if k not in ("slurm", "sources")}))
    assert wanted == set(sources)
    assert len(wanted) >= 5
    assert all(len(text.split()) > 0 for text in sources.values())


@SYSTEMS
def test_guesses_say_how_they_were_made(name: str) -> None:
    """'unverified' alone is allowed for users; ours say what a number comes from."""
    for key, text in find_system(name).sources.items():
        if text.startswith("unverified"):
            assert len(text) > len("unverified: ...."), key


# devices and cards of a node; nodes of a leaf, leaves of a group, nodes of a group, groups; nodes
REFERENCE = {
    "alps": (4, 4, 7, 16, 112, 24, 2688),
    "leonardo": (4, 4, 10, 18, 180, 19 + 1, 3456),
    "lumi_g": (8, 4, 8, 16, 124, 24, 2978),  # a leaf is a pair of the 32 switches
    "jupiter": (4, 4, 16, 15, 240, 24 + 1, 5884),
    "h100_cluster": (8, 8, 8, 1, 8, 1, 8),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_counts_are_the_published_ones(name: str) -> None:
    system = find_system(name)
    network = system.network
    assert network is not None
    assert REFERENCE[name] == (
        system.devices_per_node,
        network.nics_per_node,
        network.nodes_per_leaf,
        network.leaves_per_group,
        network.nodes_per_group,
        network.groups,
        system.nodes,
    )


@pytest.mark.parametrize(
    ("name", "last"), [("jupiter", [240, 124]), ("leonardo", [180, 36]), ("lumi_g", [125, 125])]
)
def test_irregular_groups(name: str, last: list[int]) -> None:
    network = find_system(name).network
    assert network is not None
    assert list(network.group_sizes()[-2:]) == last
    assert sum(network.group_sizes()) == find_system(name).nodes


@pytest.mark.parametrize(
    ("name", "devices", "domain"),
    [
        ("dgx_a100", 8, 1),
        ("h100_node", 8, 1),
        ("h200_node", 8, 1),
        ("laptop", 8, 1),
        ("gb300_nvl72", 72, 18),
        ("gb200_racks", 1440, 18),
        ("tpu_v5p", 8960, 2240),
        ("tpu_v6e", 256, 64),
        ("h100_pods", 131072, 1),
    ],
)
def test_devices_and_scale_up_domains(name: str, devices: int, domain: int) -> None:
    assert find_system(name).devices == devices
    assert find_system(name).node.nodes == domain


@SYSTEMS
def test_links_are_those_of_the_hardware(name: str) -> None:
    """The same number stands in two tables, for those who have a device but no system."""
    system = find_system(name)
    hardware = HARDWARE[system.hardware]
    if system.node.kind != "memory":  # which all devices share
        assert system.node.device_Bps == hardware.scale_up_Bps
    if hardware.scale_up_peer_Bps is not None:
        assert system.node.peer_Bps == hardware.scale_up_peer_Bps
    if system.network is not None:
        assert system.network.nic_Bps == hardware.nic_Bps


@SYSTEMS
def test_farther_is_slower_to_reach(name: str) -> None:
    system = find_system(name)
    network = system.network
    if network is None:
        return
    tiers = [network.leaf_latency_s, network.group_latency_s, network.global_latency_s]
    known = [latency for latency in tiers if latency is not None]
    assert known == sorted(set(known))
    assert known[0] > system.node.latency_s
    assert all(1e-7 < latency < 1e-5 for latency in known)


def test_bandwidths_between_switches() -> None:
    """What REFERENCE says of Leonardo and JUPITER: taper, and injection of how many nodes."""
    leonardo, jupiter = find_system("leonardo").network, find_system("jupiter").network
    assert leonardo is not None and jupiter is not None
    assert leonardo.leaf_up_Bps == pytest.approx(0.9 * 10 * 4 * 12.5e9)
    assert leonardo.global_Bps == pytest.approx(3.6e12 / 8) == 9 * 4 * 12.5e9
    assert jupiter.leaf_up_Bps == 16 * 4 * 25e9
    assert jupiter.global_Bps == pytest.approx(21 * 400e9 / 8) == 10.5 * 4 * 25e9


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown system 'dgx_a10'; did you mean 'dgx_a100'"):
        find_system("dgx_a10")
