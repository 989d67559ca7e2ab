"""What groups get of cards, uplinks and links between groups, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from jaxbench.catalog.systems import System
from jaxbench.costs.sharing import BOUNDS, Shares, Sharing
from jaxbench.topology.hierarchy import of_system
from jaxbench.topology.placement import place
from tests.costs.small_systems import small_system

# Nodes 0-3 are group 0 (leaves 0, 0, 1, 1), 4-7 group 1, 8-11 group 2; four devices each, and
# cards of 10 B/s. Ranks are four to a node, in order.


def sharing(devices: int, system: System | None = None) -> Sharing:
    system = system or small_system()
    assert system.network
    placement = place(of_system(system), system, devices)
    return Sharing(system.network, system.devices_per_node, placement)


def bounds(shares: Shares) -> list[str]:
    return [BOUNDS[number] for number in shares.bound]


def strided(devices: int, stride: int) -> np.ndarray:
    """Return the groups of ranks that are a multiple of `stride` apart."""
    return np.arange(devices).reshape(-1, stride).T.copy()


def test_a_rank_per_node_has_its_card_and_four_have_four() -> None:
    rails, fewest = sharing(8).ring(strided(8, 4))
    assert rails.Bps.tolist() == [10, 10, 10, 10] and fewest.tolist() == [1, 1, 1, 1]
    whole, fewest = sharing(8).ring(np.arange(8)[None])
    assert whole.Bps.tolist() == [40] and fewest.tolist() == [4]
    pairs, fewest = sharing(8).ring(np.array([[0, 1, 4, 5], [2, 3, 6, 7]]))
    assert pairs.Bps.tolist() == [20, 20] and fewest.tolist() == [2, 2]


def test_a_group_is_as_fast_as_on_the_node_with_the_fewest_ranks() -> None:
    shares, fewest = sharing(8).ring(np.array([[0, 1, 2, 4]]))
    assert shares.Bps.tolist() == [10] and fewest.tolist() == [1]


@pytest.mark.parametrize(("groups", "Bps"), [([[0, 4]], 20), ([[0, 4], [1, 5]], 10)])
def test_ranks_of_one_card_share_it(groups: list[list[int]], Bps: float) -> None:
    """With two cards for four devices, one alone has all of its card."""
    few = small_system(nics_per_node=2)
    shares, _ = sharing(8, few).ring(np.array(groups))
    assert shares.Bps.tolist() == [Bps] * len(groups)
    apart, _ = sharing(8, few).ring(np.array([[0, 4], [2, 6]]))
    assert apart.Bps.tolist() == [20, 20]


def test_groups_inside_nodes_use_no_cards_of_others() -> None:
    """Only those that cross are asked about, so only they count."""
    shares, _ = sharing(8).ring(np.array([[0, 4]]))
    assert shares.Bps.tolist() == [10]


@pytest.mark.parametrize(("up", "Bps", "bound"), [(80, 10, "nic"), (40, 5, "leaf"), (8, 1, "leaf")])
def test_rings_share_the_uplinks_of_a_leaf(up: float, Bps: float, bound: str) -> None:
    """Nodes 0 and 2: four rings, each with a node under either leaf and 10 B/s, are 40 B/s."""
    tapered = small_system(leaf_up_Bps=up / 2)
    groups = np.stack([np.arange(4), np.arange(4) + 8], axis=1)
    shares, _ = sharing(16, tapered).ring(groups)
    assert shares.Bps.tolist() == [Bps] * 4 and set(bounds(shares)) == {bound}


def test_a_ring_leaves_a_leaf_once_however_many_nodes_it_has_there() -> None:
    tapered = small_system(leaf_up_Bps=40.0)
    shares, _ = sharing(16, tapered).ring(strided(16, 4))  # four rings over four nodes
    assert shares.Bps.tolist() == [10] * 4
    halved = small_system(leaf_up_Bps=20.0)
    shares, _ = sharing(16, halved).ring(strided(16, 4))
    assert shares.Bps.tolist() == [5] * 4 and set(bounds(shares)) == {"leaf"}


@pytest.mark.parametrize("adaptive", [False, True])
def test_rings_share_the_links_between_groups(adaptive: bool) -> None:
    """All 16 ranks of group 0 with those of group 1: 160 B/s want 40 B/s of direct links."""
    system = small_system(adaptive=adaptive)
    groups = np.stack([np.arange(16), np.arange(16) + 16], axis=1)
    shares, _ = sharing(32, system).ring(groups)
    direct = 40 / 160
    detour = 40 / 160  # through group 2, whose links are free
    wanted = direct + detour if adaptive else direct
    np.testing.assert_allclose(shares.Bps, 10 * wanted)
    assert set(bounds(shares)) == {"global"}


def test_messages_share_cards_at_both_ends() -> None:
    few = small_system(nics_per_node=2)
    shares = sharing(8, few).permute(np.array([[0, 4], [1, 5], [2, 6]]))
    assert shares.Bps.tolist() == [10, 10, 20]
    into_one = sharing(16).permute(np.array([[0, 8], [4, 8], [5, 12]]))
    assert into_one.Bps.tolist() == [5, 5, 10]


def test_messages_one_way_load_the_links_one_way() -> None:
    system = small_system(adaptive=False)
    forth = np.stack([np.arange(16), np.arange(16) + 16], axis=1)
    assert sharing(32, system).permute(forth).Bps.tolist() == [2.5] * 16
    both = np.concatenate([forth[:8], forth[8:, ::-1]])
    assert sharing(32, system).permute(both).Bps.tolist() == [5.0] * 16


def test_all_to_all_is_bounded_by_cards_where_links_are_wide() -> None:
    shares = sharing(8).all_to_all(np.arange(8)[None])
    assert shares.Bps.tolist() == [10] and bounds(shares) == ["nic"]


def test_all_to_all_loads_uplinks_with_what_goes_beyond_the_leaf() -> None:
    """16 ranks, 8 a leaf: of a byte each, half leaves the leaf, 4 bytes over 20 B/s."""
    system = small_system(leaf_up_Bps=20.0)
    shares = sharing(16, system).all_to_all(np.arange(16)[None])
    outside = 12 / 16
    assert shares.Bps[0] == pytest.approx(outside / (4 / 20)) and bounds(shares) == ["leaf"]


@pytest.mark.parametrize("adaptive", [False, True])
def test_all_to_all_loads_the_links_between_groups(adaptive: bool) -> None:
    """32 ranks in two groups: 16 * 16 parts of 1/32 byte each way, 8 bytes over 40 B/s."""
    system = small_system(adaptive=adaptive)
    shares = sharing(32, system).all_to_all(np.arange(32)[None])
    seconds = 8 / 40
    if adaptive:
        seconds /= 2  # the ways through group 2 carry as much again
    assert shares.Bps[0] == pytest.approx(28 / 32 / seconds) and bounds(shares) == ["global"]


def test_all_to_alls_of_several_groups_add_up() -> None:
    system = small_system(adaptive=False)
    one = sharing(32, system).all_to_all(np.arange(32)[None])
    four = sharing(32, system).all_to_all(strided(32, 4))
    np.testing.assert_allclose(four.Bps / (7 / 8), [one.Bps[0] / (28 / 32)] * 4)
    assert set(bounds(four)) == {"global"}


def test_only_groups_that_use_a_full_link_wait_for_it() -> None:
    """Sixteen messages crowd the links between groups 0 and 1, one of group 2 doesn't care."""
    system = small_system(adaptive=False)
    crowd = np.stack([np.arange(16), np.arange(16) + 16], axis=1)
    shares = sharing(48, system).permute(np.concatenate([crowd, [[32, 36]]]))
    assert shares.Bps.tolist() == [2.5] * 16 + [10]
    assert bounds(shares) == ["global"] * 16 + ["nic"]


def test_many_leaves_share_the_way_down_into_one() -> None:
    """Two leaves send 20 B/s each, which their uplinks carry, into a third that gets 30 B/s."""
    system = small_system(leaf_up_Bps=30.0, global_Bps=1000.0)
    pairs = np.array([[0, 8], [1, 9], [16, 10], [17, 11]])
    shares = sharing(20, system).permute(pairs)
    np.testing.assert_allclose(shares.Bps, 7.5)
    assert set(bounds(shares)) == {"leaf"}


def test_rings_inside_leaves_use_no_uplinks() -> None:
    """Nodes 0 and 1, and nodes 2 and 3: each ring closes where it began."""
    system = small_system(leaf_up_Bps=1.0)
    shares, _ = sharing(16, system).ring(np.array([[0, 4], [8, 12]]))
    assert shares.Bps.tolist() == [10, 10]
