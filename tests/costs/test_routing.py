"""Routes: bytes are conserved, hashes stick, and what adaptive routing makes of idle links."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from jaxbench.costs.links import Links
from jaxbench.costs.routing import ROUTINGS, Flows, adaptive_capacity, route
from jaxbench.topology.hierarchy import of_system
from tests.costs.small_systems import small_system

SYSTEM = small_system()  # 3 groups of 2 leaves of 2 nodes of 4 devices
TOPOLOGY = of_system(SYSTEM)
LINKS = {routing: Links(SYSTEM, TOPOLOGY, split) for routing, split in ROUTINGS.items()}


def flows_of(rows: list[tuple[int, int, int, int, float]], **flags: Any) -> Flows:
    """Return flows from (source node, its device, target node, its device, amount)."""
    source, device, target, its_device, amount = map(np.array, zip(*rows, strict=True))
    yes = np.ones(len(rows), bool)
    rails, outside = flags.get("rails", yes), flags.get("outside", yes)
    return Flows(source, device, target, its_device, amount.astype(float), rails, outside)


def named(flows: Flows, routing: str = "minimal", seed: int = 0) -> dict[str, float]:
    link, amount = route(flows, LINKS[routing], seed)
    names = [LINKS[routing].name(int(number)) for number in link]
    assert len(set(names)) == len(names)
    return dict(zip(names, amount.tolist(), strict=True))


def test_within_a_leaf_only_the_cards_are_used() -> None:
    assert named(flows_of([(0, 1, 1, 2, 5.0)])) == {"n01 card 1 out": 5.0, "n02 card 2 in": 5.0}


def test_within_a_group_the_uplinks_too() -> None:
    assert named(flows_of([(0, 0, 2, 0, 5.0)])) == {
        "n01 card 0 out": 5.0,
        "n03 card 0 in": 5.0,
        "leaf0 up": 5.0,
        "leaf1 down": 5.0,
    }


def test_between_groups_the_link_between_them_in_this_direction() -> None:
    assert named(flows_of([(0, 0, 11, 3, 5.0), (1, 0, 10, 3, 2.0)])) == {
        "n01 card 0 out": 5.0,
        "n02 card 0 out": 2.0,
        "n12 card 3 in": 5.0,
        "n11 card 3 in": 2.0,
        "leaf0 up": 7.0,
        "leaf5 down": 7.0,
        "group0 to group2": 7.0,
    }


def test_a_reduction_in_the_switches_loads_cards_and_uplinks_apart() -> None:
    off, on = np.array([False]), np.array([True])
    flow = [(0, 0, 2, 0, 5.0)]
    assert set(named(flows_of(flow, outside=off))) == {"n01 card 0 out", "n03 card 0 in"}
    assert set(named(flows_of(flow, rails=off, outside=on))) == {"leaf0 up", "leaf1 down"}


@st.composite
def many_flows(draw: st.DrawFn) -> Flows:
    count = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    source = rng.integers(0, TOPOLOGY.nodes, count)
    target = (source + rng.integers(1, TOPOLOGY.nodes, count)) % TOPOLOGY.nodes
    devices = rng.integers(0, 4, (2, count))
    yes = np.ones(count, bool)
    return Flows(source, devices[0], target, devices[1], rng.uniform(1, 9, count), yes, yes)


@settings(max_examples=100, deadline=None)
@given(many_flows(), st.sampled_from(sorted(ROUTINGS)), st.integers(0, 5))
def test_bytes_are_conserved(flows: Flows, routing: str, seed: int) -> None:
    """Every flow is once on each kind of link that its ends need."""
    links = LINKS[routing]
    link, amount = route(flows, links, seed)
    leaf, group = TOPOLOGY.leaf, TOPOLOGY.group
    off_leaf = flows.amount[leaf[flows.source] != leaf[flows.target]].sum()
    off_group = flows.amount[group[flows.source] != group[flows.target]].sum()
    kinds = [flows.amount.sum()] * 2 + [off_leaf] * 2 + [off_group]
    for kind, expected in enumerate(kinds):
        inside = (link >= links.starts[kind]) & (link < links.starts[kind + 1])
        assert amount[inside].sum() == pytest.approx(expected, rel=1e-12)
    # and what leaves a group to another is what its flows to it are
    between = np.zeros(links.count)
    between[link] = amount
    table = between[links.global_links].reshape(3, 3, -1).sum(axis=2)
    for a in range(3):
        for b in range(3):
            here = (group[flows.source] == a) & (group[flows.target] == b) & (a != b)
            assert table[a, b] == pytest.approx(flows.amount[here].sum(), rel=1e-12)


def test_a_hashed_flow_sticks_to_one_link_and_the_seed_chooses_it() -> None:
    flow = flows_of([(0, 0, 11, 3, 5.0)])
    taken = {tuple(sorted(named(flow, "static", seed))) for seed in range(20)}
    assert all(len(names) == 5 for names in taken)
    assert named(flow, "static", 3) == named(flow, "static", 3)
    assert len({name for names in taken for name in names if "group0 to" in name}) == 4


def test_hashes_spread_over_all_links_and_collide() -> None:
    """Four flows on four links collide nearly always (3/32 don't); 4000 are spread evenly."""
    rows = [(0, d, 11, d, 1.0) for d in range(4)]
    worst = [
        max(v for name, v in named(flows_of(rows), "static", seed).items() if "group0 to" in name)
        for seed in range(200)
    ]
    assert 0.03 < np.mean(np.array(worst) == 1) < 0.2
    assert max(worst) >= 3
    rng = np.random.default_rng(0)
    count = 4000
    yes = np.ones(count, bool)
    flows = Flows(
        np.zeros(count, int),
        rng.integers(0, 10**6, count) % 4,
        np.full(count, 11),
        np.arange(count),
        np.ones(count),
        np.zeros(count, bool),
        yes,
    )
    loads = [v for name, v in named(flows, "static").items() if "group0 to" in name]
    assert len(loads) == 4 and max(loads) / min(loads) < 1.2


def test_stages_hash_independently() -> None:
    """A flow's link up says nothing about its link between groups."""
    rows = [(0, d % 4, 11, d // 4, 1.0) for d in range(16)]
    pairs = set()
    for seed in range(30):
        for row in rows:
            names = named(flows_of([row]), "static", seed)
            pairs.add(tuple(n.split("link ")[1] for n in names if "up" in n or "group0" in n))
    assert len(pairs) == 8 * 4


# --- adaptive ---


def uniform(groups: int, value: float) -> np.ndarray:
    table = np.full((groups, groups), value)
    np.fill_diagonal(table, 0)
    return table


def test_a_single_overloaded_pair_uses_all_idle_groups() -> None:
    """With G groups there are G-2 others, each with a whole path: G-1 links' worth."""
    for groups in (2, 3, 5, 20):
        demand = np.zeros((groups, groups))
        demand[0, 1] = 1e6
        got = adaptive_capacity(demand, uniform(groups, 10.0))
        assert got[0, 1] == pytest.approx(10.0 * (groups - 1))


def test_no_more_than_wanted_is_taken() -> None:
    demand = np.zeros((4, 4))
    demand[0, 1] = 14.0
    got = adaptive_capacity(demand, uniform(4, 10.0))
    assert got[0, 1] == pytest.approx(14.0)
    assert got[0, 2] == got[2, 1] == pytest.approx(8.0)  # two others carry 2 each
    assert got[2, 3] == 10.0


def test_without_excess_nothing_changes() -> None:
    capacity = uniform(5, 10.0)
    assert adaptive_capacity(uniform(5, 10.0), capacity) is capacity


def test_hosts_keep_what_they_want() -> None:
    demand = np.zeros((3, 3))
    demand[0, 1], demand[0, 2] = 100.0, 9.0
    got = adaptive_capacity(demand, uniform(3, 10.0))
    assert got[0, 1] == pytest.approx(11.0)
    assert got[0, 2] == pytest.approx(9.0)


@st.composite
def demands(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    groups = draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([2.0, 10.0, 40.0]))
    demand = rng.uniform(0, scale, (groups, groups)) * (rng.random((groups, groups)) < 0.6)
    np.fill_diagonal(demand, 0)
    return demand, uniform(groups, 10.0)


@settings(max_examples=300, deadline=None)
@given(demands())
def test_never_worse_than_minimal_and_never_more_than_the_links_hold(
    case: tuple[np.ndarray, np.ndarray],
) -> None:
    demand, capacity = case
    got = adaptive_capacity(demand, capacity)
    before = np.minimum(demand, capacity)
    after = np.minimum(demand, got)
    assert (after >= before * (1 - 1e-9)).all()
    # what goes over two links takes from both: the sum of all links is the bound
    detours = np.maximum(after - capacity, 0).sum()
    assert before.sum() + 2 * detours <= capacity.sum() * (1 + 1e-9)
    # and leaving or entering a group is possible over its own links only
    assert (after.sum(axis=0) <= capacity.sum(axis=0) * (1 + 1e-9)).all()
    assert (after.sum(axis=1) <= capacity.sum(axis=1) * (1 + 1e-9)).all()


def best_carried(demand: np.ndarray, capacity: np.ndarray) -> float:
    """Return the most that one- and two-link routes carry when pairs within their own links'
    capacity are served in full: a linear program."""
    groups = len(demand)
    pairs = [(a, b) for a in range(groups) for b in range(groups) if a != b]
    routes = [(a, b, via) for a, b in pairs for via in range(groups) if via != b]  # via a: direct
    rows, limits = [], []
    for a, b in pairs:
        rows.append([(s, t) == (a, b) for s, t, _ in routes])
        limits.append(demand[a, b])
        rows.append(
            [
                (via == s and (s, t) == (a, b)) or (via != s and (a, b) in ((s, via), (via, t)))
                for s, t, via in routes
            ]
        )
        limits.append(capacity[a, b])
        rows.append([-1.0 * ((s, t) == (a, b) and via == s) for s, t, via in routes])
        limits.append(-min(demand[a, b], capacity[a, b]))
    result = linprog([-1.0] * len(routes), np.array(rows, float), limits)
    assert result.status == 0
    return -result.fun


def test_close_to_the_optimum_over_many_demands() -> None:
    """The heuristic never beats the linear program, and carries nearly as much."""
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(60):
        groups = int(rng.integers(3, 6))
        demand = rng.uniform(0, 30, (groups, groups)) * (rng.random((groups, groups)) < 0.5)
        np.fill_diagonal(demand, 0)
        capacity = uniform(groups, 10.0)
        got = np.minimum(demand, adaptive_capacity(demand, capacity)).sum()
        best = best_carried(demand, capacity)
        assert got <= best * (1 + 1e-9)
        shares.append(got / best if best else 1.0)
    print(f"carried, of the optimum: mean {np.mean(shares):.3f}, worst {min(shares):.3f}")
    assert min(shares) > 0.85 and np.mean(shares) > 0.97
