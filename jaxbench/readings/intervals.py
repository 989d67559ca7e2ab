"""Sets of time as unions of half-open intervals [start, end): what overlap is measured with.

A device that does two things at once is busy once: durations may never be added up, their union
may. A `Union` is a sorted list of intervals that neither overlap nor touch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

Interval = tuple[float, float]
Union = list[Interval]


def union(intervals: Iterable[Interval]) -> Union:
    """Return the union of intervals; empty ones vanish, ValueError if one ends before it starts."""
    merged: Union = []
    for start, end in sorted(intervals):
        if end < start:
            raise ValueError(f"an interval ends at {end}, before its start at {start}")
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def total(of: Union) -> float:
    """Return the length of a union, in the unit of its numbers."""
    return sum(end - start for start, end in of)


def intersect(left: Union, right: Union) -> Union:
    """Return what lies in both unions."""
    both: Union = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            both.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return both


def subtract(left: Union, right: Union) -> Union:
    """Return what lies in `left` and not in `right`."""
    rest: Union = []
    for start, end in left:
        first = bisect_right(right, start, key=lambda hole: hole[1])
        last = bisect_left(right, end, key=lambda hole: hole[0])
        for hole_start, hole_end in right[first:last]:
            if hole_start > start:
                rest.append((start, hole_start))
            start = max(start, hole_end)
        if start < end:
            rest.append((start, end))
    return rest
