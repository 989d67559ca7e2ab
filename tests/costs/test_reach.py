"""The latencies of steps over several tiers, and what bounds a group."""

from __future__ import annotations

import math
from typing import Any

import pytest

from jaxbench.costs.reach import Latencies, Reach
from jaxbench.topology.shape import Shape

AT = Latencies(1.0, 10.0, 100.0, 1000.0)


def reach(ranks: int, nodes: int, leaves: int, groups: int, **fields: Any) -> Reach:
    per_node = ranks // nodes
    tier = "node"
    if nodes > 1:
        tier = "global" if groups > 1 else "group" if leaves > 1 else "leaf"
    shape = Shape(ranks, nodes, per_node, leaves, groups, tier)
    known: dict[str, Any] = {"least": per_node, "node_Bps": 100.0, "net_Bps": 50.0}
    return Reach(shape, AT, **(known | fields))


# The hops of a ring by tier: inside nodes, leaves, groups, between groups.
HOPS = [
    (reach(8, 1, 1, 1), (8, 0, 0, 0)),
    (reach(8, 2, 1, 1), (6, 2, 0, 0)),
    (reach(8, 8, 1, 1), (0, 8, 0, 0)),
    (reach(64, 16, 4, 1), (48, 12, 4, 0)),
    (reach(64, 16, 4, 2), (48, 12, 2, 2)),
    (reach(64, 16, 16, 16), (48, 0, 0, 16)),
    (reach(4, 4, 2, 2), (0, 2, 0, 2)),
]


@pytest.mark.parametrize(("group", "hops"), HOPS, ids=lambda value: str(value)[:40])
def test_a_ring_enters_every_leaf_and_group_once(group: Reach, hops: tuple[int, ...]) -> None:
    assert sum(hops) == group.shape.ranks
    seconds = [1, 10, 100, 1000]
    total = sum(count * s for count, s in zip(hops, seconds, strict=True))
    quickest = min(s for count, s in zip(hops, seconds, strict=True) if count)
    steps = group.shape.ranks - 1
    assert group.ring_step_s(0.0, 0.0) * steps == pytest.approx(total - quickest)
    more = group.ring_step_s(0.0, 0.5) * steps
    assert more - (total - quickest) == pytest.approx(0.5 * (sum(hops[1:]) - (hops[0] == 0)))


def test_a_protocols_hop_in_a_node_holds_the_links_latency() -> None:
    inside = reach(8, 1, 1, 1)
    assert inside.ring_step_s(3.4, 14) == 3.4
    assert inside.ring_step_s(0.6, 14) == 1.0


def test_a_tree_has_levels_in_every_tier() -> None:
    group = reach(128, 32, 8, 2)  # 1 level between groups, 2 between leaves, 2 in leaves
    assert group.tree_level_s(0.5) * 5 == pytest.approx(1000.5 + 2 * 100.5 + 2 * 10.5)
    assert reach(8, 1, 1, 1).tree_level_s(0.5) == 0.0


def test_one_rank_of_each_node_makes_a_ring_between_them() -> None:
    assert reach(8, 2, 1, 1).between_step_s(5.0) == 15.0
    group = reach(64, 16, 4, 2)
    assert group.between_step_s(0.0) * 15 == pytest.approx(11 * 10 + 2 * 100 + 2 * 1000)


def test_a_rack_on_several_leaves_is_one_node_of_the_ring() -> None:
    racks = reach(144, 2, 10, 1)
    assert racks.ring_step_s(0.0, 0.0) * 143 == pytest.approx(142 * 1 + 2 * 100 - 1)
    assert racks.tree_level_s(0.0) == 100.0


@pytest.mark.parametrize(
    ("group", "Bps", "bound"),
    [
        (reach(8, 1, 1, 1, net_Bps=math.inf), 100.0, "node"),
        (reach(8, 2, 1, 1), 50.0, "nic"),
        (reach(8, 2, 1, 1, net_Bps=400.0), 100.0, "node"),
        (reach(8, 8, 1, 1, net_Bps=400.0), 400.0, "nic"),
        (reach(8, 2, 2, 2, net_Bps=5.0, net_bound="global"), 5.0, "global"),
    ],
)
def test_the_slowest_link_bounds_a_ring(group: Reach, Bps: float, bound: str) -> None:
    assert group.slowest == (Bps, bound)


@pytest.mark.parametrize(
    ("group", "seconds"),
    [(HOPS[0][0], 1), (HOPS[1][0], 10), (HOPS[3][0], 100), (HOPS[4][0], 1000)],
)
def test_the_farthest_is_the_outermost_tier(group: Reach, seconds: float) -> None:
    assert group.farthest_s == seconds


def test_nodes_are_even_where_all_have_as_many_ranks() -> None:
    assert reach(8, 2, 1, 1).even and not reach(8, 2, 1, 1, least=3).even
