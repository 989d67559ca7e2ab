"""A placement is of its class, uses each device once, and is refused only where there is none."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.catalog.systems import find_system
from jaxbench.errors import InputError
from jaxbench.topology.hierarchy import Topology, of_system
from jaxbench.topology.placement import Placement, place
from jaxbench.topology.placement_classes import PLACEMENTS
from tests.topology.made_topologies import TOPOLOGIES, made, system_of

CLASSES = pytest.mark.parametrize("name", PLACEMENTS)


def nodes_of(placement: Placement) -> list[int]:
    """The nodes in rank order, each once."""
    return list(dict.fromkeys(placement.node.tolist()))


def assert_whole(placement: Placement, topology: Topology, devices: int, per_node: int) -> None:
    """Rank r is on the (r // per_node)-th node, every device is used once at most."""
    assert placement.ranks == devices
    nodes = np.array(nodes_of(placement))
    assert (placement.node == nodes[np.arange(devices) // per_node]).all()
    assert (placement.local == np.arange(devices) % per_node).all()
    devices_used = set(zip(placement.node.tolist(), placement.local.tolist(), strict=True))
    assert len(devices_used) == devices
    assert (placement.leaf == topology.leaf[placement.node]).all()
    assert (placement.group == topology.group[placement.node]).all()


def is_of_class(topology: Topology, nodes: list[int], name: str) -> bool:
    """The definition: scope, and blocks of k nodes in rank order under one switch."""
    scope, size, _ = PLACEMENTS[name]
    blocks = [nodes[start : start + size] for start in range(0, len(nodes), size)]
    leaves, groups = set(topology.leaf[nodes]), set(topology.group[nodes])
    in_scope = {"leaf": len(leaves) == 1, "group": len(groups) == 1, "system": len(groups) > 1}
    return in_scope[scope] and all(len(set(topology.leaf[block])) == 1 for block in blocks)


def exists(topology: Topology, free: np.ndarray, count: int, name: str) -> bool:
    """Whether any choice of nodes is of a class: all ways to put blocks on leaves, by force."""
    scope, size, _ = PLACEMENTS[name]
    room = np.bincount(topology.leaf[free], minlength=len(topology.leaf_names)).tolist()
    group_of = topology.leaf_group.tolist()
    full, rest = divmod(count, size)
    for dealt in itertools.product(*(range(size_ // size + 1) for size_ in room)):
        if sum(dealt) != full:
            continue
        for last in range(len(room)) if rest else [None]:
            used = [blocks * size for blocks in dealt]
            if last is not None:
                used[last] += rest
            leaves = {leaf for leaf, nodes in enumerate(used) if nodes}
            groups = {group_of[leaf] for leaf in leaves}
            fits = all(u <= r for u, r in zip(used, room, strict=True))
            scopes = {
                "leaf": len(leaves) == 1,
                "group": len(groups) == 1,
                "system": len(groups) > 1,
            }
            if fits and scopes[scope]:
                return True
    return False


SMALL = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=2), min_size=1, max_size=3).map(
    made
)


@st.composite
def jobs(draw: st.DrawFn, topologies: st.SearchStrategy[Topology] = TOPOLOGIES):
    """A topology, which of its nodes are free, and a number of nodes."""
    topology = draw(topologies)
    free = np.array(
        draw(
            st.lists(
                st.booleans() | st.just(True), min_size=topology.nodes, max_size=topology.nodes
            )
        )
    )
    return topology, free, draw(st.integers(1, topology.nodes))


@given(jobs(), st.sampled_from(sorted(PLACEMENTS)), st.integers(0, 3), st.integers(1, 4))
def test_what_is_placed_is_of_its_class(job, name: str, seed: int, per_node: int) -> None:
    topology, free, count = job
    devices = max(1, count * per_node - seed)  # the last node may be used in part
    system = system_of(topology, per_node)
    try:
        placement = place(topology, system, devices, name, seed, free)
    except InputError:
        return
    nodes = nodes_of(placement)
    assert_whole(placement, topology, devices, per_node)
    assert is_of_class(topology, nodes, name)
    assert free[nodes].all()


@given(jobs(SMALL), st.sampled_from(sorted(PLACEMENTS)), st.integers(0, 3))
def test_a_job_is_refused_only_where_it_has_no_place(job, name: str, seed: int) -> None:
    topology, free, count = job
    try:
        place(topology, system_of(topology, 1), count, name, seed, free)
    except InputError as error:
        assert len(error.faults) == 1
        assert not exists(topology, free, count, name)
    else:
        assert exists(topology, free, count, name)


def is_even(counts: list[int], room: list[int]) -> bool:
    """No bin has two more than one that has room left."""
    return all(b + 1 >= a for a in counts for b, r in zip(counts, room, strict=True) if b < r)


@given(TOPOLOGIES, st.integers(2, 20), st.sampled_from([1, 2, 4]), st.integers(0, 3))
def test_inter_group_is_even_over_groups_and_leaves(topology, blocks, size, seed) -> None:
    name = f"inter-group-same-l1-{size}" if size > 1 else "inter-group"
    try:
        placement = place(topology, system_of(topology, 1), blocks * size, name, seed)
    except InputError:
        return
    used = Counter(topology.leaf[nodes_of(placement)].tolist())
    per_leaf = [used[leaf] // size for leaf in range(len(topology.leaf_names))]
    room = (topology.leaf_sizes // size).tolist()
    groups = range(len(topology.group_names))
    members = [np.flatnonzero(topology.leaf_group == group) for group in groups]
    assert is_even(
        [sum(per_leaf[leaf] for leaf in leaves) for leaves in members],
        [sum(room[leaf] for leaf in leaves) for leaves in members],
    )
    for leaves in members:
        assert is_even([per_leaf[leaf] for leaf in leaves], [room[leaf] for leaf in leaves])


@given(TOPOLOGIES, st.data())
def test_by_default_groups_and_then_leaves_are_few(topology: Topology, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, topology.nodes))
    placement = place(topology, system_of(topology, 2), 2 * count)
    assert_whole(placement, topology, 2 * count, 2)
    nodes = nodes_of(placement)
    assert nodes == sorted(nodes)
    groups = set(topology.group[nodes])
    least = fewest(topology.group_sizes.tolist(), count)
    assert len(groups) == least
    if least == 1:
        choices = [
            fewest(topology.leaf_sizes[topology.leaf_group == group].tolist(), count)
            for group in range(len(topology.group_names))
            if topology.group_sizes[group] >= count
        ]
        assert len(set(topology.leaf[nodes])) == min(choices)


def fewest(sizes: list[int], count: int) -> int:
    """The fewest of `sizes` that sum to `count` or more, by force."""
    return next(
        taken
        for taken in range(1, len(sizes) + 1)
        if any(sum(some) >= count for some in itertools.combinations(sizes, taken))
    )


@pytest.mark.parametrize("devices", [1, 4, 5, 64, 960, 964, 2400, 23536])
def test_a_regular_system_is_filled_from_the_first_node_on(devices: int) -> None:
    system = find_system("jupiter")
    placement = place(of_system(system), system, devices)
    assert (placement.node == np.arange(devices) // 4).all()


@CLASSES
def test_a_seed_decides(name: str) -> None:
    system = find_system("leonardo")
    topology = of_system(system)
    first, again, *others = (
        place(topology, system, 40, name, seed).node.tolist() for seed in (0, 0, 1, 2, 3)
    )
    assert first == again
    assert any(other != first for other in others)


def test_nodes_of_a_leaf_are_drawn() -> None:
    topology = made([[50]])
    drawn = [place(topology, system_of(topology), 8, "intra-l1", seed) for seed in range(5)]
    assert len({tuple(nodes_of(placement)) for placement in drawn}) > 1


def test_by_default_the_group_with_the_fewest_leaves_is_taken() -> None:
    for groups in ([[1, 1], [2]], [[1, 1], [2], [1, 3]]):
        topology = made(groups)
        placement = place(topology, system_of(topology), 8)
        assert nodes_of(placement) == [2, 3]


@pytest.mark.parametrize(
    ("name", "leaves", "groups"),
    [
        ("", 3, 1),
        ("intra-group", 15, 1),
        ("intra-group-same-l1-2", 15, 1),
        ("intra-group-same-l1-4", 10, 1),
        ("inter-group", 40, 25),
        ("inter-group-same-l1-2", 20, 20),
        ("inter-group-same-l1-4", 10, 10),
    ],
)
def test_forty_nodes_of_jupiter(name: str, leaves: int, groups: int) -> None:
    system = find_system("jupiter")
    placement = place(of_system(system), system, 160, name)
    assert len(set(placement.leaf)) == leaves
    assert len(set(placement.group)) == groups
    ending = f"40 nodes, {leaves} leaf switches, {groups} group{'s' if groups > 1 else ''}"
    assert placement.description.endswith(ending)
    assert "system jupiter" in placement.description


def test_nodes_are_taken_in_the_order_listed() -> None:
    system = find_system("jupiter")
    placement = place(of_system(system), system, 9, "nodes:n0300,n[0001-0005]")
    assert nodes_of(placement) == [299, 0, 1]
    assert_whole(placement, of_system(system), 9, 4)


def test_scale_up_domains_may_be_larger_than_nodes() -> None:
    racks = find_system("gb200_racks")
    placement = place(of_system(racks), racks, 1440)
    assert (placement.domain == np.arange(1440) // 72).all()
    pod = find_system("tpu_v6e")
    placement = place(of_system(pod), pod, 256)
    assert (placement.domain == 0).all()
    assert placement.torus is not None and placement.torus.sides == (16, 16)
    assert placement.description.endswith("64 nodes, slice of 16x16")


def faults(devices: int, placement: str, free: np.ndarray | None = None) -> tuple[str, ...]:
    topology = made([[4, 3], [2]])
    with pytest.raises(InputError) as caught:
        place(topology, system_of(topology), devices, placement, 0, free)
    return caught.value.faults


@pytest.mark.parametrize(
    ("devices", "placement", "said"),
    [
        (0, "", "--devices is 0; it must be at least 1"),
        (37, "", "need 10 nodes of 4, but made has 9 to use; ask for at most 36 devices"),
        (37, "inter-group", "need 10 nodes of 4, but made has 9 to use; ask for at most 36"),
        (4, "inter-grup", "unknown placement 'inter-grup'; did you mean 'inter-group'?"),
        (17, "intra-l1", "it needs 5 nodes, and under one leaf switch there are at most 4"),
        (32, "intra-group", "it needs 8 nodes, and in one group there are at most 7"),
        (28, "intra-group-same-l1-2", None),
        (28, "intra-group-same-l1-4", None),
        (36, "inter-group-same-l1-4", "9 nodes, and in all there are at most 7 in blocks of 4"),
        (4, "inter-group", "it must be in two groups or more, and its 1 nodes in blocks of 1"),
        (16, "inter-group-same-l1-4", "its 4 nodes in blocks of 4 come to lie in one; made has"),
        (4, "nodes:n9", "n9 is not in made, which has n[0-8]"),
        (8, "nodes:n1", "1 nodes are listed, and the job needs 2"),
        (8, "nodes:n1,n1", "n1 is there twice"),
        (8, "nodes:", "'' is not a node name"),
        (8, "nodes:n[", "'n[' is not a node name"),
    ],
)
def test_what_cannot_be_placed(devices: int, placement: str, said: str | None) -> None:
    if said is None:
        topology = made([[4, 3], [2]])
        place(topology, system_of(topology), devices, placement)
        return
    assert sum(said in fault for fault in faults(devices, placement)) == 1


def test_all_faults_are_told() -> None:
    assert len(faults(0, "nodes:n9,n1,n1")) == 3
    assert len(faults(37, "nodes:n[")) == 2
    assert len(faults(37, "x")) == 2


def test_nodes_that_are_not_free() -> None:
    free = np.arange(9) != 3
    assert faults(8, "nodes:n[2-3]", free) == ("--placement=nodes:n[2-3]: n3 may not be used",)
    assert "made has 8 to use" in faults(36, "", free)[0]
    assert "at most 3" in faults(16, "intra-l1", free)[0]
