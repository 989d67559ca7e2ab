"""Every file of meshes/ is a system; a faulty one tells all its faults."""

from __future__ import annotations

import pytest

from jaxbench.catalog.hardware import HARDWARE
from jaxbench.catalog.systems import find_system, read_system, system_names
from jaxbench.errors import InputError

GOOD = {
    "description": "d",
    "source": "s",
    "hardware": "h100",
    "nodes": 2,
    "devices_per_node": 4,
}


@pytest.mark.parametrize("name", system_names())
def test_every_file_is_a_system(name: str) -> None:
    system = find_system(name)
    assert system.name == name
    assert system.hardware in HARDWARE
    assert system.source


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown system 'dgx_a10'; did you mean 'dgx_a100'"):
        find_system("dgx_a10")


def test_the_devices_are_counted() -> None:
    assert read_system("x", GOOD).devices == 8


def test_all_faults_of_a_file_are_told() -> None:
    table = {**GOOD, "nodes": 0, "devices_per_node": True, "hardware": "h10", "colour": 1}
    del table["source"]
    with pytest.raises(InputError) as caught:
        read_system("x", table)
    assert len(caught.value.faults) == 5
    assert all(fault.startswith("system 'x': ") for fault in caught.value.faults)
