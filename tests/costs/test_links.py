"""The numbers, names and capacities of shared links."""

from __future__ import annotations

import numpy as np
import pytest

from jaxbench.costs.links import Links, parallel_links
from jaxbench.topology.hierarchy import of_system
from tests.costs.small_systems import small_system


def links_of(split: bool = False, **network: object) -> Links:
    system = small_system(**network)  # type: ignore[arg-type]
    return Links(system, of_system(system), split)


def every(links: Links) -> dict[str, int]:
    """Return all links by what they are: (kind, ends, which) as text."""
    t = links.topology
    found = {}
    for inward in (False, True):
        for node in range(t.nodes):
            for device in range(links.devices_per_node):
                link = links.rail(np.array(node), np.array(device), inward)
                found[f"rail {node} {device} {inward}"] = int(link)
    for down in (False, True):
        for leaf in range(links.leaves):
            for which in range(links.parallel_leaf):
                link = links.uplink(np.array(leaf), down, which)
                found[f"leaf {leaf} {down} {which}"] = int(link)
    for source in range(links.groups):
        for target in range(links.groups):
            for which in range(links.parallel_global):
                link = links.between(np.array(source), np.array(target), which)
                found[f"global {source} {target} {which}"] = int(link)
    return found


@pytest.mark.parametrize("split", [False, True])
def test_every_link_has_its_own_number_and_name(split: bool) -> None:
    links = links_of(split)
    numbers = sorted(every(links).values())
    assert numbers == list(range(links.count))
    names = [links.name(link) for link in range(links.count)]
    assert len(set(names)) == links.count


def test_names_say_what_and_which_way() -> None:
    links = links_of()
    assert links.name(int(links.rail(np.array(4), np.array(2), True))) == "n05 card 2 in"
    assert links.name(int(links.uplink(np.array(3), False))) == "leaf3 up"
    assert links.name(int(links.uplink(np.array(3), True))) == "leaf3 down"
    assert links.name(int(links.between(np.array(2), np.array(0)))) == "group2 to group0"
    split = links_of(True)
    link = int(split.between(np.array(2), np.array(0), 3))
    assert split.name(link) == "group2 to group0, link 4 of 4"
    assert split.bundle(link) == "group2 to group0, one of 4 links"
    assert links.bundle(0) == links.name(0) == "n01 card 0 out"


def test_capacities_are_those_of_the_system_times_its_efficiency() -> None:
    links = links_of(efficiency=0.9)
    assert links.capacity_Bps[links.rail(np.array(0), np.array(0), False)] == 9.0
    assert links.capacity_Bps[links.uplink(np.array(0), True)] == 72.0
    assert links.capacity_Bps[links.between(np.array(0), np.array(1))] == 36.0


def test_parallel_links_carry_together_what_the_bundle_does() -> None:
    whole, split = links_of(), links_of(True)
    assert (split.parallel_leaf, split.parallel_global) == (8, 4)
    parts = split.capacity_Bps[split.global_links].reshape(3, 3, 4)
    np.testing.assert_array_equal(
        parts.sum(axis=2), whole.capacity_Bps[whole.global_links].reshape(3, 3)
    )
    assert split.capacity_Bps.sum() == whole.capacity_Bps.sum()


def test_cards_are_shared_where_there_are_fewer_than_devices() -> None:
    links = links_of(nics_per_node=2)
    rails = links.rail(np.zeros(4, int), np.arange(4), False)
    assert rails[0] == rails[1] != rails[2] == rails[3]
    assert links.capacity_Bps[rails].tolist() == [20.0] * 4  # nic_Bps is a device's share


def test_more_cards_than_devices_are_one_link_of_the_device() -> None:
    links = links_of(nics_per_node=8)
    assert len(set(links.rail(np.zeros(4, int), np.arange(4), False).tolist())) == 4
    assert links.capacity_Bps[0] == 10.0


def test_only_links_outside_of_nodes_are_beyond_nodes() -> None:
    links = links_of()
    beyond = {links.name(int(link)) for link in np.flatnonzero(links.beyond_nodes)}
    assert {"leaf0 up", "leaf5 down", "group0 to group1"} <= beyond
    assert not any("card" in name for name in beyond)
    assert all("card" in links.name(int(link)) for link in np.flatnonzero(~links.beyond_nodes))


def test_an_unknown_bandwidth_is_never_full() -> None:
    links = links_of(True, leaf_up_Bps=None, global_Bps=None)
    assert np.isinf(links.capacity_Bps[links.beyond_nodes]).all()
    assert np.isfinite(links.capacity_Bps[~links.beyond_nodes]).all()


@pytest.mark.parametrize(
    ("together", "one", "count"), [(450e9, 25e9, 18), (40.0, 10.0, 4), (5.0, 10.0, 1), (None, 1, 1)]
)
def test_how_many_parallel_links(together: float | None, one: float, count: int) -> None:
    assert parallel_links(together, one) == count
