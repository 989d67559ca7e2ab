"""What collectives send between ranks, by algorithm: closed forms, and who sends to whom."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.costs.algorithms import ALGORITHMS
from jaxbench.readings.jobs.flows import (
    PATTERNS,
    USUAL,
    RankFlows,
    collective_flows,
    double_tree,
    join,
    make_flows,
)

S = 240.0


def flows_of(kind: str, algorithm: str, domain: list[int], leaf: list[int] | None = None):
    """Return the flows of one group of as many ranks as `domain` is long, in order."""
    ranks = np.arange(len(domain))[None, :]
    leaves = np.array(leaf or domain)
    return collective_flows(kind, [algorithm], ranks, np.array([S]), np.array(domain), leaves)


def out_of(flows: RankFlows, domain: list[int]) -> dict[int, float]:
    sent: Counter[int] = Counter()
    for source, amount in zip(flows.source, flows.amount, strict=True):
        sent[domain[source]] += amount
    return dict(sent)


TWO_BY_FOUR = [0, 0, 0, 0, 1, 1, 1, 1]
THREE_BY_TWO = [0, 0, 1, 1, 2, 2]
UNEVEN = [0, 0, 0, 1, 2, 2]


@pytest.mark.parametrize(("kind", "passes"), [("all_reduce", 2), ("all_gather", 1)])
@pytest.mark.parametrize("domain", [TWO_BY_FOUR, THREE_BY_TWO, UNEVEN, list(range(5))])
def test_a_ring_leaves_every_node_once(kind: str, passes: int, domain: list[int]) -> None:
    n = len(domain)
    expected = passes * (n - 1) / n * S
    assert out_of(flows_of(kind, "ring/Simple", domain), domain) == pytest.approx(
        dict.fromkeys(domain, expected)
    )


def test_a_ring_goes_to_the_next_node_only_and_uses_every_rail() -> None:
    flows = flows_of("reduce_scatter", "ring", THREE_BY_TWO)
    pairs = set(zip(flows.source.tolist(), flows.target.tolist(), strict=True))
    assert pairs == {(0, 2), (1, 3), (2, 4), (3, 5), (4, 0), (5, 1)}
    np.testing.assert_allclose(flows.amount, 5 / 6 * S / 2)


def test_nodes_follow_each_other_by_number_wherever_the_ranks_are() -> None:
    domain = [2, 0, 1]
    flows = flows_of("all_gather", "ring", domain)
    hops = {(domain[s], domain[t]) for s, t in zip(flows.source, flows.target, strict=True)}
    assert hops == {(0, 1), (1, 2), (2, 0)}


@pytest.mark.parametrize(("kind", "passes"), [("all_reduce", 2), ("reduce_scatter", 1)])
def test_hierarchical_counts_nodes(kind: str, passes: int) -> None:
    sent = out_of(flows_of(kind, "hierarchical/LL128", THREE_BY_TWO), THREE_BY_TWO)
    assert sent == pytest.approx(dict.fromkeys((0, 1, 2), passes * 2 / 3 * S))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 200))
def test_two_trees_that_share_no_inner_node(nodes: int) -> None:
    """At most one node may be inside of both (where their number is odd, Sanders et al.)."""
    child, parent = double_tree(nodes)
    inner = []
    for tree in (slice(0, nodes - 1), slice(nodes - 1, None)):
        above = dict(zip(child[tree].tolist(), parent[tree].tolist(), strict=True))
        assert len(above) == nodes - 1  # everyone but the root has one parent
        for node in above:  # and gets to the root
            seen = {node}
            while node in above:
                node = above[node]
                assert node not in seen
                seen.add(node)
        assert max(Counter(above.values()).values()) <= 2
        inner.append(set(above.values()))
    root = set(range(nodes)) - set(child[: nodes - 1].tolist())
    assert len(root) == 1
    both = inner[0] & inner[1]
    assert len(both) <= (1 if nodes % 2 else 0) or nodes == 2


@pytest.mark.parametrize("algorithm", ["tree", "nvls"])
def test_trees_send_at_most_twice_the_vector_out_of_a_node(algorithm: str) -> None:
    for nodes in (2, 3, 4, 7, 16):
        domain = [node for node in range(nodes) for _ in range(2)]
        flows = flows_of("all_reduce", algorithm, domain)
        sent = out_of(flows, domain)
        assert flows.amount.sum() == pytest.approx(2 * (nodes - 1) * S)  # 4 half vectors an edge
        assert max(sent.values()) <= 2 * S * (1 + 1e-12)


def test_switches_that_reduce_are_given_the_vector_once() -> None:
    flows = flows_of("all_reduce", "sharp", [0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1])
    cards = flows.amount[flows.rails]
    assert cards.sum() == pytest.approx(3 * S)  # each node, over its two rails
    np.testing.assert_allclose(cards, S / 2)
    assert not (flows.rails & flows.outside).any()
    above = flows.outside
    assert flows.amount[above].tolist() == [S, S]  # each leaf, whatever its nodes
    assert set(flows.source[above].tolist()) == {0, 4}


def test_pairwise_sends_each_peer_its_part() -> None:
    flows = flows_of("all_to_all", "pairwise", THREE_BY_TWO)
    assert len(flows.source) == 6 * 4
    np.testing.assert_allclose(flows.amount, S / 6)


@pytest.mark.parametrize(("ranks", "halves"), [(8, 3), (4, 2)])
def test_bruck_sends_half_of_the_buffer_in_every_step(ranks: int, halves: int) -> None:
    domain = list(range(ranks))
    flows = flows_of("all_to_all", "bruck", domain)
    assert out_of(flows, domain) == pytest.approx(dict.fromkeys(domain, halves * S / 2))
    apart = {int(t - s) % ranks for s, t in zip(flows.source, flows.target, strict=True)}
    assert apart == {2**j for j in range(halves)}


def test_bruck_of_five_ranks() -> None:
    """Distances 1 to 4: bit 0 in 1 and 3, bit 1 in 2 and 3, bit 2 in 4: five parts of S/5."""
    domain = list(range(5))
    assert out_of(flows_of("all_to_all", "bruck", domain), domain) == pytest.approx(
        dict.fromkeys(domain, S)
    )


def test_a_message_goes_from_source_to_target() -> None:
    pairs = np.array([[0, 1], [1, 2], [2, 3]])
    flows = collective_flows(
        "permute",
        ["point_to_point/Simple"] * 3,
        pairs,
        np.array([1.0, 2.0, 3.0]),
        np.array([0, 0, 1, 1]),
        np.array([0, 0, 0, 0]),
    )
    assert (flows.source.tolist(), flows.target.tolist()) == ([1], [2])
    assert flows.amount.tolist() == [2.0]


@pytest.mark.parametrize("algorithm", sorted(PATTERNS))
def test_nothing_leaves_a_single_domain(algorithm: str) -> None:
    kind = {"pairwise": "all_to_all", "bruck": "all_to_all", "point_to_point": "permute"}
    domain = [7, 7] if algorithm == "point_to_point" else [7] * 4
    assert not len(flows_of(kind.get(algorithm, "all_reduce"), algorithm, domain).source)


def test_every_algorithm_that_crosses_nodes_has_a_pattern() -> None:
    """Those of a torus stay in its domain."""
    names = {name for ways in ALGORITHMS.values() for name in ways}
    assert names == set(PATTERNS) | {"torus"}
    assert set(USUAL) == set(ALGORITHMS)


def test_measured_costs_get_the_usual_pattern() -> None:
    one = flows_of("all_reduce", "measured", THREE_BY_TWO)
    np.testing.assert_array_equal(one.amount, flows_of("all_reduce", "ring", THREE_BY_TWO).amount)


def test_several_groups_and_amounts_at_once() -> None:
    groups = np.array([[0, 2], [1, 3]])
    flows = collective_flows(
        "all_reduce",
        ["ring", "tree"],
        groups,
        np.array([10.0, 0.0]),
        np.array([0, 0, 1, 1]),
        np.array([0, 0, 0, 0]),
    )
    assert set(flows.source.tolist()) == {0, 2}  # the second group sends nothing
    assert flows.amount.sum() == pytest.approx(20.0)


def test_joined_flows_keep_their_bytes_and_kinds() -> None:
    a, b = np.array([0, 1]), np.array([2, 3])
    parts = [
        make_flows(a, b, np.array([1.0, 2.0])),
        make_flows(a, b, np.array([10.0, 20.0])),
        make_flows(a, b, np.array([100.0, 200.0]), rails=False),
    ]
    joined = join(parts)
    kinds = {
        (int(s), bool(r)): v
        for s, r, v in zip(joined.source, joined.rails, joined.amount, strict=True)
    }
    assert kinds == {(0, True): 11.0, (1, True): 22.0, (0, False): 100.0, (1, False): 200.0}
    assert not len(join([]).source)
