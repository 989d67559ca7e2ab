"""Unions of intervals against the plainest model of them: a set of whole units of time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.readings.intervals import Interval, Union, intersect, subtract, total, union

LIMIT = 40

points = st.integers(0, LIMIT)
intervals = st.lists(st.tuples(points, points).map(lambda pair: (min(pair), max(pair))))


def units(of: list[Interval]) -> set[int]:
    """Return every unit of time that one of the intervals covers."""
    return {unit for start, end in of for unit in range(int(start), int(end))}


def is_union(of: Union) -> bool:
    """Whether intervals are sorted, not empty, and neither overlap nor touch."""
    ordered = all(left[1] < right[0] for left, right in zip(of, of[1:], strict=False))
    return ordered and all(start < end for start, end in of)


@given(intervals)
def test_a_union_covers_the_same_units_and_nothing_twice(some: list[Interval]) -> None:
    merged = union(some)
    assert is_union(merged)
    assert units(merged) == units(some)
    assert total(merged) == len(units(some))


@given(intervals, st.randoms())
def test_the_order_and_repetition_of_intervals_do_not_matter(some: list[Interval], random) -> None:
    shuffled = some + some[:3]
    random.shuffle(shuffled)
    assert union(shuffled) == union(some)
    assert union(union(some)) == union(some)


@given(intervals, intervals)
def test_a_union_is_at_most_the_sum_and_at_least_its_parts(
    left: list[Interval], right: list[Interval]
) -> None:
    both = total(union(left + right))
    assert both <= sum(end - start for start, end in left + right)
    assert both >= max(total(union(left)), total(union(right)))
    assert both == total(union(left)) + total(subtract(union(right), union(left)))


@given(intervals, intervals)
def test_exposed_and_hidden_make_the_total(
    communication: list[Interval], compute: list[Interval]
) -> None:
    collectives, busy = union(communication), union(compute)
    exposed, hidden = subtract(collectives, busy), intersect(collectives, busy)
    assert is_union(exposed) and is_union(hidden)
    assert units(exposed) == units(communication) - units(compute)
    assert units(hidden) == units(communication) & units(compute)
    assert total(exposed) + total(hidden) == total(collectives)


@given(intervals, intervals)
def test_an_intersection_is_the_same_from_both_sides(
    left: list[Interval], right: list[Interval]
) -> None:
    assert intersect(union(left), union(right)) == intersect(union(right), union(left))


@given(intervals)
def test_nothing_and_everything(some: list[Interval]) -> None:
    whole: Union = [(0, LIMIT)]
    assert subtract(union(some), []) == union(some) == intersect(union(some), whole)
    assert subtract(union(some), whole) == [] == intersect(union(some), [])


def test_an_interval_that_ends_before_it_starts_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="ends at 1, before its start at 2"):
        union([(0, 5), (2, 1)])
