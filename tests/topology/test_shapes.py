"""Shapes of many groups at once equal a slow count, one rank after the other."""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.catalog.systems import find_system
from jaxbench.topology.build import placed
from jaxbench.topology.placement import Placement, place
from jaxbench.topology.shape import Shape
from jaxbench.topology.torus import Slice, slice_of
from tests.topology.made_topologies import TOPOLOGIES, system_of


def slow_shape(placement: Placement, ranks: list[int]) -> Shape:
    """The definition of a shape, word by word."""
    domains = Counter(int(placement.domain[rank]) for rank in ranks)
    leaves = {int(placement.leaf[rank]) for rank in ranks}
    groups = {int(placement.group[rank]) for rank in ranks}
    if len(set(ranks)) == 1:
        tier = "self"
    elif len(domains) == 1:
        tier = "node"
    elif len(leaves) == 1:
        tier = "leaf"
    else:
        tier = "group" if len(groups) == 1 else "global"
    hops = 1
    if placement.torus is not None:
        after = [*ranks[1:], ranks[0]]
        hops = max([1, *(way(placement.torus, a, b) for a, b in zip(ranks, after, strict=True))])
    most = max(domains.values())
    return Shape(len(ranks), len(domains), most, len(leaves), len(groups), tier, hops)


def way(torus: Slice, start: int, end: int) -> int:
    """Links between two ranks, found by walking over all links from one of them."""
    places = list(itertools.product(*map(range, torus.sides)))  # in rank order
    distance, queue = {places[start]: 0}, deque([places[start]])
    while queue:
        here = queue.popleft()
        for dimension, side in enumerate(torus.sides):
            for step in (-1, 1):
                there = list(here)
                there[dimension] += step
                if torus.wraps and side % torus.wraps == 0:
                    there[dimension] %= side
                if 0 <= there[dimension] < side and tuple(there) not in distance:
                    distance[tuple(there)] = distance[here] + 1
                    queue.append(tuple(there))
    return distance[places[end]]


def assert_as_slow(placement: Placement, groups: np.ndarray) -> None:
    which, shapes = placement.shapes(groups)
    assert len(set(shapes)) == len(shapes)
    assert [shapes[number] for number in which] == [
        slow_shape(placement, group) for group in groups.tolist()
    ]


@given(TOPOLOGIES, st.data())
def test_shapes_are_those_of_a_slow_count(topology, data: st.DataObject) -> None:
    per_node = data.draw(st.integers(1, 3))
    devices = topology.nodes * per_node
    order = data.draw(st.permutations(topology.names))
    placement = place(topology, system_of(topology, per_node), devices, f"nodes:{','.join(order)}")
    size = data.draw(st.integers(1, devices))
    ranks = data.draw(st.permutations(range(devices)))
    assert_as_slow(placement, np.array(ranks[: devices // size * size]).reshape(-1, size))
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, devices - 1)] * 2), min_size=1))
    assert_as_slow(placement, np.array(pairs))  # a rank may send to itself


@pytest.mark.parametrize("sides", [(4, 4), (4, 3), (2, 3, 4), (8,), (1, 5)])
@given(st.data())
def test_shapes_on_a_torus(sides: tuple[int, ...], data: st.DataObject) -> None:
    devices = int(np.prod(sides))
    zeros = np.zeros(devices, np.int64)
    wraps = data.draw(st.sampled_from([None, 2, 4]))
    placement = Placement(zeros, zeros, zeros, zeros, zeros, "made", Slice(sides, wraps))
    ranks = data.draw(st.permutations(range(devices)))
    size = data.draw(st.integers(1, devices))
    assert_as_slow(placement, np.array(ranks[: devices // size * size]).reshape(-1, size))


@pytest.mark.parametrize(
    ("system", "devices"), [("gb200_racks", 288), ("gb300_nvl72", 72), ("tpu_v5p", 128)]
)
def test_domains_count_as_nodes(system: str, devices: int) -> None:
    _, placement = placed(find_system(system), devices)
    for groups in (
        np.arange(devices).reshape(1, -1),
        np.arange(devices).reshape(-1, 8),
        np.arange(devices).reshape(8, -1).T,
    ):
        assert_as_slow(placement, groups)


def test_one_domain_is_the_tier_node() -> None:
    _, placement = placed(find_system("tpu_v5p"), 128)
    _, (shape,) = placement.shapes(np.arange(128).reshape(1, -1))
    assert (shape.tier, shape.nodes, shape.per_node) == ("node", 1, 128)


@pytest.mark.parametrize(
    ("devices", "torus", "sides"),
    [
        (1, (16, 20, 28), (1, 1, 1)),
        (64, (16, 20, 28), (4, 4, 4)),
        (128, (16, 20, 28), (4, 4, 8)),
        (8960, (16, 20, 28), (16, 20, 28)),
        (64, (16, 16), (8, 8)),
        (255, (16, 16), (16, 16)),
        (7, (2, 4), (2, 4)),
    ],
)
def test_slices(devices: int, torus: tuple[int, ...], sides: tuple[int, ...]) -> None:
    assert slice_of(devices, torus, 4) == Slice(sides, 4)


@given(st.tuples(st.integers(1, 5), st.integers(1, 5)), st.data())
def test_a_slice_fits_and_is_the_smallest(torus: tuple[int, int], data: st.DataObject) -> None:
    devices = data.draw(st.integers(1, torus[0] * torus[1]))
    a, b = slice_of(devices, torus, None).sides
    assert a <= torus[0] and b <= torus[1]
    boxes = itertools.product(range(1, torus[0] + 1), range(1, torus[1] + 1))
    assert a * b == min(x * y for x, y in boxes if x * y >= devices)


def test_answers_are_kept_and_cannot_be_changed() -> None:
    _, placement = placed(find_system("jupiter"), 64)
    groups = np.arange(64).reshape(8, 8)
    which, shapes = placement.shapes(groups)
    assert placement.shapes(groups.copy())[0] is which
    assert placement.shapes(groups.reshape(4, 16))[1] != shapes  # the same bytes
    with pytest.raises(ValueError, match="read-only"):
        which[0] = 1


def test_no_groups_have_no_shapes() -> None:
    _, placement = placed(find_system("jupiter"), 64)
    which, shapes = placement.shapes(np.zeros((0, 2), np.int64))
    assert len(which) == len(shapes) == 0


@pytest.mark.timed
def test_131072_ranks_take_well_under_a_second() -> None:
    system = find_system("h100_pods")
    ranks = np.arange(131072)
    start = time.process_time()  # other processes on the machine don't count
    _, placement = placed(system, 131072, "intra-group-same-l1-4", seed=1)
    for groups in (
        ranks.reshape(1, -1),
        ranks.reshape(-1, 8),
        ranks.reshape(64, -1).T,
        np.stack([ranks, np.roll(ranks, -8)], axis=1),
    ):
        placement.shapes(groups)
    assert time.process_time() - start < 1.0
