"""Every cost formula against its closed form, and against what the algorithm does step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jaxbench.costs import all_to_all, hierarchical, in_switch, point_to_point, ring, tree
from jaxbench.costs.terms import Terms, in_turn

# Ring all-reduce of 1 MiB at 50 GB/s and 500 ns: ASTRA-sim's analytical backend, nanoseconds.
ASTRA_SIM_NS = {64: 296_896, 256: 1_079_200, 1024: 4_206_616}


@pytest.mark.parametrize("ranks", [64, 256, 1024])
def test_ring_all_reduce_is_the_closed_form(ranks: int) -> None:
    terms = ring.all_reduce(ranks, 1e6, 500e-9, 50e9)
    assert terms.latency_s == 2 * (ranks - 1) * 500e-9
    assert terms.transfer_s == pytest.approx(2 * (ranks - 1) / ranks * 1e6 / 50e9, rel=1e-15)
    assert terms.seconds == terms.latency_s + terms.transfer_s


@pytest.mark.parametrize(("ranks", "ns"), ASTRA_SIM_NS.items())
def test_with_four_latencies_a_step_a_ring_is_as_long_as_in_astra_sim(ranks: int, ns: int) -> None:
    four = ring.all_reduce(ranks, 2**20, 4 * 500e-9, 50e9).seconds
    assert four == pytest.approx(ns * 1e-9, rel=0.02)
    one = ring.all_reduce(ranks, 2**20, 500e-9, 50e9).seconds
    assert 0.24 < one / (ns * 1e-9) < 0.36


@pytest.mark.parametrize("ranks", [2, 3, 8, 100])
def test_ring_gather_is_half_of_an_all_reduce(ranks: int) -> None:
    gather = ring.gather(ranks, 1e6, 1e-6, 1e9)
    assert gather == ((ranks - 1) * 1e-6, (ranks - 1) / ranks * 1e6 / 1e9)
    assert ring.all_reduce(ranks, 1e6, 1e-6, 1e9) == (2 * gather[0], 2 * gather[1])


@pytest.mark.parametrize("hops", [[(4, 1.0)], [(6, 1.0), (2, 5.0)], [(0, 9.0), (2, 1.0), (3, 2.0)]])
def test_a_step_of_unequal_hops_makes_the_last_part_arrive_when_it_does(
    hops: list[tuple[int, float]],
) -> None:
    """Parts walk around the ring at the same time, a hop takes its own latency."""
    edges = [seconds for count, seconds in hops for _ in range(count)]
    n = len(edges)
    arrived = [sum(edges[(start + k) % n] for k in range(n - 1)) for start in range(n)]
    latency_s = ring.gather(n, 0.0, ring.step_over(hops), 1.0).latency_s
    assert latency_s == pytest.approx(max(arrived))


@pytest.mark.parametrize(("per_node", "nodes"), [(8, 1), (1, 16), (4, 8), (8, 1024)])
def test_tree_is_the_closed_form(per_node: int, nodes: int) -> None:
    nbytes = 2.0**30
    terms = tree.all_reduce(per_node, nodes, nbytes, 4e-6, 14e-6, 25e9)
    assert terms.latency_s == pytest.approx(
        2 * ((per_node - 1) * 4e-6 + math.log2(nodes) * 14e-6), rel=1e-15
    )
    assert terms.transfer_s == pytest.approx(2 * nbytes / (0.92 * 25e9), rel=1e-15)


@pytest.mark.parametrize(
    ("nbytes", "share"), [(8, 0.5), (2**20, 0.5), (2**24, 0.75), (2**28, 1.0), (2**34, 1.0)]
)
def test_trees_reach_half_of_their_bandwidth_with_medium_sizes(nbytes: int, share: float) -> None:
    full = 2 * nbytes / (0.92 * 1e9)
    assert tree.all_reduce(1, 2, nbytes, 0, 0, 1e9).transfer_s == pytest.approx(full / share)


def test_medium_sizes_are_never_slower_than_larger_ones() -> None:
    seconds = [tree.all_reduce(1, 2, s, 0, 0, 1e9).seconds for s in np.geomspace(1, 2**31, 500)]
    assert np.all(np.diff(seconds) > 0)


def test_in_switch_is_the_closed_form() -> None:
    assert in_switch.all_reduce(1e9, 25e-6, 200e9) == (25e-6, 1e9 / 200e9)


def test_hierarchical_is_its_phases_one_after_the_other() -> None:
    g, nodes, nbytes = 4, 8, 1e9
    inside = ring.gather(g, nbytes, 1e-6, 400e9)
    between = ring.all_reduce(nodes, nbytes / g, 5e-6, 25e9)
    terms = hierarchical.all_reduce(inside, between)
    assert terms.latency_s == pytest.approx(2 * 3 * 1e-6 + 2 * 7 * 5e-6)
    assert terms.transfer_s == pytest.approx(
        2 * (3 / 4) * nbytes / 400e9 + 2 * (7 / 8) * nbytes / 4 / 25e9
    )
    gather = hierarchical.gather(inside, ring.gather(nodes, nbytes / g, 5e-6, 25e9))
    assert gather.seconds == pytest.approx(terms.seconds / 2)


def test_hierarchical_moves_less_between_nodes_than_one_ring() -> None:
    """A ring through all ranks sends 2(n-1)/n S from node to node, the other 2(N-1)/N S."""
    g, nodes, nbytes, card = 4, 2, 1e9, 25e9
    whole = ring.all_reduce(g * nodes, nbytes, 0, g * card)
    between = ring.all_reduce(nodes, nbytes / g, 0, card)
    assert between.transfer_s / whole.transfer_s == pytest.approx((1 / 2) / (7 / 8))


@pytest.mark.parametrize(
    ("ranks", "per_node", "bounded_inside"), [(8, 8, True), (64, 8, False), (16, 8, True)]
)
def test_pairwise_is_the_closed_form(ranks: int, per_node: int, bounded_inside: bool) -> None:
    nbytes, node, net = 1e8, 30e9, 40e9
    terms = all_to_all.pairwise(ranks, per_node - 1, ranks - per_node, nbytes, 2e-6, node, net)
    inside = (per_node - 1) / ranks * nbytes / node
    outside = (ranks - per_node) / ranks * nbytes / net
    assert terms.latency_s == pytest.approx((ranks - 1) * 2e-6)
    assert terms.transfer_s == pytest.approx(max(inside, outside))
    assert (inside >= outside) == bounded_inside


@pytest.mark.parametrize("ranks", [2, 4, 16, 1024])
def test_bruck_is_the_closed_form_for_powers_of_two(ranks: int) -> None:
    steps = int(math.log2(ranks))
    terms = all_to_all.bruck(ranks, 1e6, 3e-6, 1e9)
    assert terms.latency_s == pytest.approx(steps * 3e-6)
    assert terms.transfer_s == pytest.approx(steps * 1e6 / 2 / 1e9)


@pytest.mark.parametrize("ranks", [2, 3, 5, 6, 7, 8, 12, 24, 100])
def test_bruck_sends_what_the_algorithm_sends(ranks: int) -> None:
    """Every part is moved until it is there, and the parts on the wire are counted."""
    # held[r] are the parts at rank r, as (source, destination)
    held = [{(r, d) for d in range(ranks)} for r in range(ranks)]
    steps = sent = 0
    while any(d != r for r in range(ranks) for _, d in held[r]):
        bit = 1 << steps
        moving = [{(s, d) for s, d in held[r] if (d - r) % ranks & bit} for r in range(ranks)]
        for r in range(ranks):
            held[r] -= moving[r]
        for r in range(ranks):
            held[(r + bit) % ranks] |= moving[r]
        assert len({len(parts) for parts in moving}) == 1
        sent += len(moving[0])
        steps += 1
    terms = all_to_all.bruck(ranks, ranks, 1.0, 1.0)  # parts of one byte
    assert terms == (steps, sent)


def test_point_to_point_is_the_closed_form() -> None:
    assert point_to_point.send(1e6, 2e-6, 25e9) == (2e-6, 1e6 / 25e9)


def test_phases_in_turn_add_up() -> None:
    assert in_turn(Terms(1.0, 2.0), Terms(3.0, 4.0)) == (4.0, 6.0)
    assert in_turn() == (0.0, 0.0)
