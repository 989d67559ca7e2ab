"""Costs on a system: closed forms, algorithms by name, sharing, and how often formulas run."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jaxbench.catalog.links import NodeLinks
from jaxbench.catalog.systems import System, find_system
from jaxbench.costs import algorithms, ring
from jaxbench.costs.interface import Cost, GroupCosts
from jaxbench.costs.protocols import NCCL
from jaxbench.costs.reaches import loss
from jaxbench.costs.system_costs import SystemCosts
from jaxbench.errors import InputError
from jaxbench.topology.hierarchy import of_system
from jaxbench.topology.placement import place
from tests.costs.small_systems import small_system

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")


def costs_of(system: System, devices: int, algorithm: str = "auto", at: str = "") -> SystemCosts:
    return SystemCosts(system, place(of_system(system), system, devices, at), algorithm)


def plain(**network: Any) -> System:
    """Return the small system with no library: nothing but links."""
    return replace(small_system(**network), hardware="cpu")


def one(costs: SystemCosts, kind: str, nbytes: float, ranks: Any) -> Cost:
    found = costs.collective(kind, nbytes, "float32", np.asarray(ranks)[None], ("data",))
    assert found.which.tolist() == [0]
    return found.costs[0]


def flat(ranks: int) -> System:
    """Return `ranks` nodes of one device on one switch: 50 GB/s and 500 ns."""
    return replace(
        plain(
            groups=1,
            kind="crossbar",
            nic_Bps=50e9,
            nics_per_node=1,
            nodes_per_leaf=ranks,
            leaves_per_group=1,
            nodes_per_group=ranks,
            leaf_latency_s=500e-9,
        ),
        nodes=ranks,
        devices_per_node=1,
    )


@pytest.mark.parametrize("ranks", [64, 256, 1024])
def test_a_ring_over_equal_links_is_the_closed_form(ranks: int) -> None:
    cost = one(costs_of(flat(ranks), ranks, "ring"), "all_reduce", 1e6, np.arange(ranks))
    closed = 2 * (ranks - 1) * 500e-9 + 2 * (ranks - 1) / ranks * 1e6 / 50e9
    assert cost.seconds == pytest.approx(closed, rel=1e-12)
    assert cost.latency_s == pytest.approx(2 * (ranks - 1) * 500e-9, rel=1e-12)
    assert cost.algorithm == "ring" and cost.bound == "latency"


def test_kinds_are_the_closed_forms_in_a_node_and_between_nodes() -> None:
    costs = costs_of(plain(), 8)
    node = costs_of(plain(), 8, "ring")
    inside, all_ranks = np.arange(4), np.arange(8)
    latency_s = 1e-6
    assert one(node, "all_gather", 1000, inside).seconds == pytest.approx(
        3 * latency_s + 3 / 4 * 1000 / 100
    )
    assert one(costs, "all_to_all", 1000, inside).bound == "node"
    pairwise = one(costs_of(plain(), 8, "pairwise"), "all_to_all", 1000, all_ranks)
    assert pairwise.seconds == pytest.approx(7 * 1e-6 + max(3 / 8 * 1000 / 100, 4 / 8 * 1000 / 10))
    assert pairwise.bound == "nic"
    rings = one(node, "reduce_scatter", 1000, all_ranks)
    assert rings.seconds == pytest.approx(7 * 1e-6 + 7 / 8 * 1000 / 40, rel=1e-6)
    assert rings.bound == "nic"
    sent = costs.collective("permute", 1000, "f", np.array([[0, 1], [0, 4]])[1:], ("data",))
    assert sent.seconds.tolist() == pytest.approx([1e-6 + 1000 / 10])
    sent = costs.collective("permute", 1000, "f", np.array([[0, 1]]), ("data",))
    assert sent.seconds.tolist() == pytest.approx([1e-6 + 1000 / 100])


@pytest.mark.parametrize("nbytes", [1e-3, 1e6])
def test_phases_and_steps_between_nodes_are_the_closed_forms(nbytes: float) -> None:
    """Two nodes of four ranks: 100 B/s inside, a card of 10 B/s each, 1 us everywhere."""
    reduced = one(costs_of(plain(), 8, "hierarchical"), "all_reduce", nbytes, np.arange(8))
    inside = 3 * 1e-6 + 3 / 4 * nbytes / 100
    assert reduced.seconds == pytest.approx(
        2 * inside + 2 * 1e-6 + 2 * (1 / 2) * nbytes / 4 / 10, rel=1e-6
    )
    gathered = one(costs_of(plain(), 8, "hierarchical"), "all_gather", nbytes, np.arange(8))
    assert gathered.seconds == pytest.approx(inside + 1e-6 + (1 / 2) * nbytes / 4 / 10, rel=1e-6)
    sent = one(costs_of(plain(), 8, "bruck"), "all_to_all", nbytes, np.arange(8))
    assert sent.seconds == pytest.approx(3 * (1e-6 + nbytes / 2 / 10), rel=1e-6)


def test_on_uneven_nodes_the_fewest_send_most_out() -> None:
    """Three ranks on one node and one on another, which sends three of four parts."""
    ranks = [0, 1, 2, 4]
    cost = one(costs_of(plain(), 8, "pairwise"), "all_to_all", 1000, ranks)
    assert cost.seconds == pytest.approx(3 * 1e-6 + 3 / 4 * 1000 / 10, rel=1e-6)
    for kind in ("all_reduce", "all_gather"):
        uneven = one(costs_of(plain(), 8, "hierarchical"), kind, 1000, [0, 1, 2, 4, 5])
        assert "(no hierarchical)" in uneven.algorithm


@pytest.mark.parametrize(
    ("kind", "algorithm", "nbytes"),
    [("all_reduce", "hierarchical", 1e9), ("all_to_all", "bruck", 8)],
)
def test_auto_takes_nothing_that_the_library_lacks(
    kind: str, algorithm: str, nbytes: float
) -> None:
    """NCCL on two nodes stays with rings, as measured, though phases would be cheaper."""
    system = find_system("leonardo")
    ranks = np.arange(8) if kind == "all_reduce" else np.arange(256)
    auto = one(costs_of(system, len(ranks)), kind, nbytes, ranks)
    named = one(costs_of(system, len(ranks), algorithm), kind, nbytes, ranks)
    assert named.algorithm.startswith(algorithm) and named.seconds < auto.seconds
    assert algorithms.name_of(auto.algorithm) in NCCL.algorithms


def test_the_cheapest_protocol_is_taken() -> None:
    """8 ranks of a node at 267 GB/s: LL, then LL128, then Simple, each where it is least."""
    costs = costs_of(find_system("dgx_a100"), 8, "ring")
    node = find_system("dgx_a100").node
    Bps = node.device_Bps * node.efficiency
    names = set()
    for nbytes in np.geomspace(8, 2**33, 60):
        closed = {
            f"ring/{p.name}": p.ring.base_s
            + ring.all_reduce(8, nbytes, max(p.ring.node_s, node.latency_s), Bps * p.share).seconds
            for p in NCCL.protocols
        }
        cost = one(costs, "all_reduce", nbytes, np.arange(8))
        assert cost.algorithm == min(closed, key=lambda name: closed[name])
        assert cost.seconds == pytest.approx(min(closed.values()))
        names.add(cost.algorithm)
    assert names == set(closed)


@pytest.mark.parametrize("nbytes", [8, 2**20, 2**30])
@pytest.mark.parametrize("kind", KINDS)
def test_auto_is_never_dearer_than_what_the_library_has(kind: str, nbytes: float) -> None:
    for name, devices in (("jupiter", 64), ("h100_cluster", 64), ("tpu_v5p", 64), ("laptop", 8)):
        system = find_system(name)
        ranks = np.arange(devices)
        groups = np.stack([ranks, np.roll(ranks, 1)], 1) if kind == "permute" else ranks[None]
        auto = costs_of(system, devices).collective(kind, nbytes, "f", groups, ("data",)).seconds
        for algorithm in algorithms.ALGORITHMS[kind]:
            costs = costs_of(system, devices, algorithm)
            has = costs.library.algorithms
            named = costs.collective(kind, nbytes, "f", groups, ("data",)).seconds
            assert np.all(auto <= named) or (has and algorithm not in has)


def test_the_name_can_be_told_from_a_cost() -> None:
    for text in ("ring", "ring/LL128", "ring (no tree)", "ring/LL (no sharp)"):
        assert algorithms.name_of(text) == "ring"
    assert algorithms.name_of("point_to_point/Simple (no ring)") == "point_to_point"


def test_an_unknown_algorithm_lists_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        costs_of(small_system(), 8, "rign")
    assert "did you mean 'ring'" in str(caught.value)
    assert all(name in str(caught.value) for name in algorithms.NAMES)


@pytest.mark.parametrize(
    ("kind", "algorithm", "devices", "expected"),
    [
        ("all_gather", "tree", 8, "(no tree)"),
        ("permute", "ring", 8, "point_to_point/Simple (no ring)"),
        ("all_reduce", "nvls", 8, "(no nvls)"),
        ("all_reduce", "sharp", 8, "(no sharp)"),
        ("all_reduce", "hierarchical", 4, "(no hierarchical)"),
        ("all_reduce", "torus", 8, "(no torus)"),
        ("all_to_all", "bruck", 8, "bruck/"),
        ("all_reduce", "hierarchical", 8, "hierarchical/"),
        ("all_gather", "hierarchical", 8, "hierarchical/"),
    ],
)
def test_what_a_kind_or_group_lacks_falls_to_the_cheapest_and_says_so(
    kind: str, algorithm: str, devices: int, expected: str
) -> None:
    ranks = np.array([4, 0]) if kind == "permute" else np.arange(devices)
    named = one(costs_of(small_system(), 8, algorithm), kind, 1e6, ranks)
    auto = one(costs_of(small_system(), 8), kind, 1e6, ranks)
    assert expected in named.algorithm
    if "no " in expected:
        assert named.seconds == auto.seconds


def test_one_rank_costs_nothing_nor_does_a_message_to_itself() -> None:
    costs = costs_of(small_system(), 8)
    for kind in KINDS[:4]:
        assert one(costs, kind, 1e9, [3]).seconds == 0
    assert costs.collective("permute", 1e9, "f", np.array([[3, 3]]), ()).seconds.tolist() == [0]


def test_no_groups_have_no_costs() -> None:
    for kind in ("all_reduce", "permute"):
        found = costs_of(small_system(), 8).collective(kind, 8, "f", np.zeros((0, 2), int), ())
        assert found.seconds.shape == (0,)


def test_groups_that_cross_other_tiers_cost_differently() -> None:
    """A pair in a node, in a leaf, in a group, and between groups."""
    costs = costs_of(plain(), 32)
    pairs = np.array([[0, 1], [2, 6], [3, 11], [7, 20]])
    found = costs.collective("all_reduce", 8, "f", pairs, ("data",))
    assert isinstance(found, GroupCosts) and len(found.costs) == 4
    latency_s = [2e-6, 2e-6, 4e-6, 6e-6]
    Bps = [100, 10, 10, 10]
    np.testing.assert_allclose(found.seconds, np.array(latency_s) + 8 / np.array(Bps), rtol=1e-6)


def test_equal_groups_are_costed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = algorithms.cheapest

    def counted(*args: Any) -> Cost:
        calls.append(args)
        return original(*args)

    monkeypatch.setattr("jaxbench.costs.system_costs.cheapest", counted)
    costs = costs_of(find_system("jupiter"), 4096)
    groups = np.arange(4096).reshape(-1, 4)
    found = costs.collective("all_reduce", 1e6, "f", groups, ("tensor",))
    assert len(found.costs) == 1 and len(found.which) == 1024 and len(calls) == 1
    costs.collective("all_reduce", 1e6, "f", groups, ("tensor",))
    costs.collective("all_reduce", 1e6, "f", groups.copy(), ("tensor",))
    assert len(calls) == 1
    costs.collective("all_reduce", 2e6, "f", groups, ("tensor",))
    assert len(calls) == 2


def test_many_arrays_are_told_apart() -> None:
    """More than are remembered, some with the id of one that is gone."""
    costs = costs_of(plain(), 32)
    for _ in range(1100):
        near, far = np.array([[0, 1]]), np.array([[0, 4]])
        assert costs.collective("all_reduce", 800, "f", near, ()).costs[0].bound == "node"
        assert costs.collective("all_reduce", 800, "f", far, ()).costs[0].bound == "nic"
        del near, far


def test_a_permuted_mesh_of_equal_ranks_costs_the_same() -> None:
    costs = costs_of(small_system(), 32)
    groups = np.arange(32).reshape(4, 8)
    rng = np.random.default_rng(0)
    mixed = rng.permuted(groups[::-1], axis=1)
    for kind in KINDS[:4]:
        base = costs.collective(kind, 1e6, "f", groups, ()).seconds
        np.testing.assert_array_equal(
            costs.collective(kind, 1e6, "f", mixed, ()).seconds[::-1], base
        )


def test_bandwidth_is_lost_from_the_measured_nodes_on() -> None:
    rows = ((8, 0.76), (32, 0.5))
    shares = [loss(rows, nodes) for nodes in (1, 7, 8, 31, 32, 9999)]
    assert shares == [1.0, 1.0, 0.76, 0.76, 0.5, 0.5]
    full, lossy = plain(), plain(loss=((2, 0.5),))
    args = ("all_reduce", 1e9, np.arange(8))
    ring_s = [one(costs_of(system, 8, "ring"), *args).seconds for system in (lossy, full)]
    ratio = ring_s[0] / ring_s[1]
    assert ratio == pytest.approx(2.0, rel=1e-6)


def test_a_permute_loses_what_all_its_nodes_lose() -> None:
    lossy = costs_of(plain(loss=((3, 0.5),)), 16)
    two = lossy.collective("permute", 1e6, "f", np.array([[0, 4], [5, 1]]), ()).seconds
    four = lossy.collective("permute", 1e6, "f", np.array([[0, 4], [8, 12]]), ()).seconds
    np.testing.assert_allclose(four / two, 2.0, rtol=1e-6)


def test_peer_links_are_as_wide_as_there_are_peers() -> None:
    system = replace(
        plain(),
        node=NodeLinks(kind="peer", device_Bps=90.0, peer_Bps=30.0, latency_s=1e-9, efficiency=0.5),
    )
    costs = costs_of(system, 8, "ring")
    seconds = [one(costs, "all_gather", 1e6, np.arange(n)).seconds for n in (2, 3, 4)]
    Bps = np.array([15.0, 30.0, 45.0])
    np.testing.assert_allclose(seconds, np.array([1 / 2, 2 / 3, 3 / 4]) * 1e6 / Bps, rtol=1e-6)


def test_all_devices_that_copy_share_the_memory() -> None:
    memory = replace(
        plain(),
        nodes=1,
        network=None,
        devices_per_node=8,
        node=NodeLinks(kind="memory", device_Bps=80.0, latency_s=1e-9, efficiency=1.0),
    )
    costs = costs_of(memory, 8)
    alone = costs.collective("all_gather", 1e6, "f", np.array([[0, 1]]), ()).seconds
    four = costs.collective("all_gather", 1e6, "f", np.arange(8).reshape(4, 2), ()).seconds
    assert alone.tolist() == pytest.approx([1e6 / 2 / 40])
    np.testing.assert_allclose(four, 4 * alone[0], rtol=1e-6)
    sent = costs.collective("permute", 1e6, "f", np.array([[0, 1], [1, 0], [2, 3]]), ()).seconds
    np.testing.assert_allclose(sent, 3 * 1e6 / 80, rtol=1e-6)


def test_nvls_reduces_in_a_node_and_trees_join_nodes() -> None:
    cluster = find_system("h100_cluster")
    assert cluster.network
    cost = one(costs_of(cluster, 64, "nvls"), "all_reduce", 2**29, np.arange(64))
    node_s = cluster.network.leaf_latency_s
    cards = cluster.network.efficiency * 8 * cluster.network.nic_Bps
    expected = 25e-6 + 2 * 3 * (14e-6 + node_s) + 2 * 2**29 / cards
    assert cost.seconds == pytest.approx(expected) and cost.bound == "nic"
    node = one(costs_of(cluster, 64, "nvls"), "all_reduce", 2**29, np.arange(8))
    assert node.bound == "node" and node.latency_s == 25e-6


def test_sharp_sends_half_of_what_trees_send() -> None:
    cluster = find_system("h100_cluster")
    assert cluster.network
    sharp = replace(cluster, network=replace(cluster.network, in_switch=True))
    cost = one(costs_of(sharp, 64, "sharp"), "all_reduce", 2**33, np.arange(64))
    node_Bps = 455 / (2 * 7 / 8) / 450 * cluster.node.device_Bps
    cards = cluster.network.efficiency * 8 * cluster.network.nic_Bps
    slower = min(node_Bps, cards)
    expected = 25e-6 + 2 * (14e-6 + cluster.network.leaf_latency_s) + 2**33 / slower
    assert cost.seconds == pytest.approx(expected)
    alone = np.arange(0, 64, 8)  # one rank a node: nothing to reduce inside
    cost = one(costs_of(sharp, 64, "sharp"), "all_reduce", 2**33, alone)
    assert cost.seconds == pytest.approx(expected + 2**33 / (cards / 8) - 2**33 / slower)
    assert cost.bound == "nic"


def test_sharp_without_nvls_has_rings_inside() -> None:
    sharp = plain(in_switch=True)
    cost = one(costs_of(sharp, 8, "sharp"), "all_reduce", 1e-3, np.arange(8))
    assert cost.seconds == pytest.approx(25e-6 + 2 * 3 * 1e-6 + 2 * 1e-6 + 1e-3 / 40, rel=1e-6)


def test_a_rack_of_72_uses_rings() -> None:
    rack = costs_of(find_system("gb300_nvl72"), 72)
    assert one(rack, "all_reduce", 2**32, np.arange(72)).algorithm == "ring/Simple"
    assert one(rack, "all_reduce", 2**24, np.arange(72)).algorithm != "nvls"
    assert one(rack, "all_reduce", 2**24, np.arange(8)).algorithm == "nvls"


def test_a_torus_uses_rings_along_its_dimensions() -> None:
    """A 4x4x4 slice of a v5p: all 64 chips, and 4 in a row."""
    costs = costs_of(find_system("tpu_v5p"), 64)
    node = find_system("tpu_v5p").node
    assert node.peer_Bps
    link = node.peer_Bps * node.efficiency
    every = one(costs, "all_reduce", 1e9, np.arange(64))
    hops_s = 2 * 6 * node.latency_s
    assert every.seconds == pytest.approx(hops_s + 2 * 63 / 64 * 1e9 / (6 * link))
    assert every.algorithm == "torus" and every.bound == "node"
    row = one(costs, "all_gather", 1e9, np.arange(4))
    assert row.seconds == pytest.approx(2 * node.latency_s + 3 / 4 * 1e9 / (2 * link))
    next_one = costs.collective("permute", 1e9, "f", np.array([[0, 1], [0, 4], [0, 5]]), ())
    hops = np.array([1, 1, 2])
    np.testing.assert_allclose(next_one.seconds, hops * (node.latency_s + 1e9 / link))
    odd = one(costs, "all_reduce", 1e9, [0, 1, 2, 3, 4, 5])  # one row and a half: no box
    assert odd.algorithm == "torus" and odd.seconds > row.seconds


def test_another_placement_changes_the_result() -> None:
    system = find_system("leonardo")
    seconds = {
        at: one(costs_of(system, 64, at=at), "all_reduce", 1e3, np.arange(64)).seconds
        for at in ("", "intra-group", "inter-group")
    }
    assert seconds[""] < seconds["intra-group"] < seconds["inter-group"]


def test_every_kind_names_what_bounds_it() -> None:
    for name in ("leonardo", "alps", "lumi_g", "jupiter", "gb200_racks", "tpu_v6e", "laptop"):
        system = find_system(name)
        devices = min(system.devices, 256)
        costs = costs_of(system, devices)
        for kind in KINDS:
            ranks = np.arange(devices)
            groups = ranks.reshape(-1, 2) if kind == "permute" else ranks[None]
            for nbytes in (8, 1e9):
                for cost in costs.collective(kind, nbytes, "f", groups, ()).costs:
                    assert cost.bound in ("latency", "node", "nic", "leaf", "global")
                    assert 0 < cost.latency_s <= cost.seconds < math.inf


def test_a_1024_rank_all_reduce_is_quick() -> None:
    """Under .1 s; a wide margin is left for a busy machine."""
    system = find_system("leonardo")
    placement = place(of_system(system), system, 1024)
    start = time.perf_counter()
    one(SystemCosts(system, placement), "all_reduce", 2**20, np.arange(1024))
    assert time.perf_counter() - start < 0.1
