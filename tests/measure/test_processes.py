"""Ranks of many processes: which devices, in which order, and where each is."""

from __future__ import annotations

from types import SimpleNamespace as Device

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.errors import InputError
from jaxbench.measure import processes
from jaxbench.measure.processes import Alone, Place, devices_for, in_order, ranks_of
from jaxbench.measure.run import in_rank_order, of_all


class Many(Alone):
    """Process 0 of as many as there are places, in a given order."""

    def __init__(self, places, order):
        super().__init__()
        self.places, self.order = places, order
        self.count = len(order)


def devices(count, each):
    """Return devices as JAX numbers them: the process times 2048, and their number there."""
    return [
        Device(process_index=p, id=2048 * p + k, local_hardware_id=None)
        for p in range(count)
        for k in range(each)
    ]


@pytest.fixture
def three(monkeypatch):
    """Make three processes, of which 0 and 2 are near each other."""
    places = [Place("n1", ("s0",), "s0"), Place("n3", ("s1",), "s1"), Place("n2", ("s0",), "s0")]
    monkeypatch.setattr(processes, "_here", [Many(places, [0, 2, 1])])


def ids(chosen):
    return [device.id for device in chosen]


def test_one_process_takes_its_first_devices():
    assert ids(devices_for(3, devices(1, 8))) == [0, 1, 2]
    assert ids(in_order(devices(1, 3)[::-1])) == [0, 1, 2]


def test_devices_of_near_processes_are_neighbours(three):
    assert ids(in_order(devices(3, 2))) == [0, 1, 4096, 4097, 2048, 2049]


def test_a_smaller_mesh_has_devices_of_every_process(three):
    assert ids(devices_for(6, devices(3, 4))) == [0, 1, 4096, 4097, 2048, 2049]
    assert ids(devices_for(3, devices(3, 4))) == [0, 4096, 2048]
    with pytest.raises(InputError, match="4 devices can't be shared out evenly to 3 processes"):
        devices_for(4, devices(3, 4))


def test_where_the_ranks_are(three):
    found = ranks_of(devices_for(3, devices(3, 1)))
    assert [(r["rank"], r["process"], r["host"], r["group"]) for r in found] == [
        (0, 0, "n1", "s0"),
        (1, 2, "n2", "s0"),
        (2, 1, "n3", "s1"),
    ]
    assert found[2]["switches"] == ["s1"] and found[2]["device"] == 2048


@given(st.permutations(range(6)))
def test_values_of_devices_come_into_the_order_of_ranks(order):
    """Process 0's values come first, then process 1's: each in the order of its ranks."""
    ranks = [Device(process_index=k % 3) for k in order]
    told = [float(rank) for p in range(3) for rank in range(6) if ranks[rank].process_index == p]
    assert in_rank_order([told, told], ranks) == [list(range(6))] * 2


def test_only_rounds_that_all_have_done_count():
    parts = [
        {"full": [[1.0], [2.0]], "x": []},
        {"full": [[3.0]], "x": []},
        {"full": [[4.0], [5.0]]},
    ]
    assert of_all(parts) == {"full": [[1.0, 3.0, 4.0]], "x": []}
