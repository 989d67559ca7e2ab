"""Collectives on a torus: closed forms, link loads counted part by part, and who is on a box."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

from jaxbench.costs import torus
from jaxbench.costs.torus import Side
from jaxbench.costs.torus_box import boxes_of
from jaxbench.topology.torus import Slice

RING, LINE = Side(8, 1, True), Side(8, 1, False)


def test_one_ring_uses_both_ways() -> None:
    assert torus.gather([RING], 8e9, 1e-6, 100e9) == (4e-6, pytest.approx(7e9 / 200e9))
    assert torus.all_reduce([RING], 8e9, 1e-6, 100e9) == (8e-6, pytest.approx(14e9 / 200e9))


def test_a_line_has_one_way_past_its_ends() -> None:
    assert torus.gather([LINE], 8e9, 1e-6, 100e9) == (7e-6, pytest.approx(7e9 / 100e9))


def test_dimensions_add_up() -> None:
    cube = [Side(4, 1, True)] * 3
    terms = torus.all_reduce(cube, 1e9, 1e-6, 100e9)
    assert terms.transfer_s == pytest.approx(2 * 63 / 64 * 1e9 / 600e9)
    assert terms.latency_s == pytest.approx(2 * 3 * 2 * 1e-6)


def test_ranks_apart_share_the_links_with_those_in_between() -> None:
    near, apart = torus.gather([Side(4, 1, True)], 1e9, 0, 1e9), [Side(4, 2, True)]
    assert torus.gather(apart, 1e9, 0, 1e9).seconds == pytest.approx(2 * near.seconds)


@pytest.mark.parametrize(
    ("ranks", "closed"),
    [(2, False), *((n, closed) for n in (4, 6, 8, 16) for closed in (True, False))],
)
def test_all_to_all_loads_the_busiest_link_as_the_formula_says(ranks: int, closed: bool) -> None:
    """Every part takes the shortest way; where both are as long, half takes each."""
    load: defaultdict[tuple[int, int], float] = defaultdict(float)
    for source, target in itertools.permutations(range(ranks), 2):
        right = (target - source) % ranks
        ways = {+1: right, -1: ranks - right}
        if not closed:
            ways = {+1: right} if target > source else {-1: ranks - right}
        shortest = min(ways.values())
        taken = [step for step, length in ways.items() if length == shortest]
        for step in taken:
            at = source
            for _ in range(shortest):
                load[at, step] += 1 / len(taken)
                at = (at + step) % ranks
    terms = torus.all_to_all([Side(ranks, 1, closed)], ranks, 0.0, 1.0)  # parts of one byte
    assert terms.transfer_s == pytest.approx(max(load.values()))


def test_a_message_goes_over_every_link_between() -> None:
    assert torus.send(3, 1e9, 1e-6, 1e9) == (pytest.approx(3e-6), pytest.approx(3.0))


def box_of(groups: list[list[int]], sides: tuple[int, ...], wraps: int | None) -> tuple[Side, ...]:
    which, boxes = boxes_of(np.array(groups), Slice(sides, wraps))
    assert len(set(which.tolist())) == 1
    return boxes[which[0]]


CUBE = (4, 4, 4)
CASES = [
    (list(range(64)), (Side(4, 1, True),) * 3),
    (list(range(4)), (Side(4, 1, True),)),
    (list(range(2)), (Side(2, 1, False),)),
    (list(range(16)), (Side(4, 1, True),) * 2),
    (list(range(8)), (Side(2, 1, False), Side(4, 1, True))),
    (list(range(0, 64, 16)), (Side(4, 1, True),)),
    ([0, 2], (Side(2, 2, True),)),
    ([0, 2, 8, 10], (Side(2, 2, True), Side(2, 2, True))),
    ([0, 1, 3], ()),  # not evenly apart
    ([0, 5], ()),  # a diagonal
    ([0, 1, 2, 3, 4, 5], ()),  # one row and a half
]


@pytest.mark.parametrize(("ranks", "sides"), CASES, ids=str)
def test_groups_are_boxes_where_they_are(ranks: list[int], sides: tuple[Side, ...]) -> None:
    assert box_of([ranks], CUBE, 4) == sides


def test_a_side_closes_only_where_the_slice_does() -> None:
    assert box_of([[0, 1, 2, 3]], (4,), None) == (Side(4, 1, False),)
    assert box_of([[0, 1, 2, 3]], (4, 1), 4) == (Side(4, 1, True),)
    assert box_of([[0, 1, 2, 3]], (6,), 4) == (Side(4, 1, False),)


def test_every_group_of_a_mesh_on_a_slice_is_the_same_box() -> None:
    ranks = np.arange(64).reshape(4, 2, 8)
    for groups, count in ((ranks.reshape(-1, 8), 8), (ranks.transpose(1, 2, 0).reshape(-1, 4), 4)):
        which, boxes = boxes_of(groups, Slice(CUBE, 4))
        assert {boxes[i] for i in which} == {boxes[which[0]]}
        assert math.prod(side.ranks for side in boxes[which[0]]) == count
