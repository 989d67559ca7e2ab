"""Seconds at any size from those measured: on the points, between them, beyond them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench.costs.fitted_series import Series, read_series, rising
from tests.costs.fits_file import SIZES, fit_of


def series_of(**fields: Any) -> Series:
    series, faults = read_series(fit_of(**fields), "fit 1")
    assert series is not None and not faults
    return series


@pytest.mark.parametrize("nbytes", [1, 8, 100, 4096, 1e6, 16777216, 1e9])
def test_times_on_a_line_give_the_line(nbytes: float) -> None:
    assert series_of().seconds(nbytes) == pytest.approx(50e-6 + nbytes / 2e9, rel=1e-12)


def test_measured_sizes_give_what_was_measured() -> None:
    """However far from the line they are: a change of algorithm is kept."""
    times = [10e-6, 11e-6, 11e-6, 15e-6, 90e-6, 95e-6, 2e-3, 9e-3]
    series = series_of(time_s=times)
    assert [series.seconds(nbytes) for nbytes in SIZES] == pytest.approx(times)
    assert series.seconds((4096 + 32768) / 2) == pytest.approx((15e-6 + 90e-6) / 2)


def test_a_larger_size_that_was_quicker_counts_as_noise() -> None:
    series = series_of(bytes=[10, 20, 30], time_s=[1e-3, 3e-3, 2e-3])
    assert series.time_s == pytest.approx((1e-3, 2.5e-3, 2.5e-3))


def test_below_the_smallest_size_is_between_the_latency_and_its_time() -> None:
    series = series_of(bytes=[1000, 2000], time_s=[3e-6, 5e-6], latency_s=1e-6)
    assert series.seconds(0) == 1e-6 and series.seconds(500) == pytest.approx(2e-6)
    unknown = series_of(bytes=[1000, 2000], time_s=[3e-6, 5e-6], latency_s=None)
    assert unknown.base_s == 0 and unknown.seconds(500) == pytest.approx(1.5e-6)


def test_a_latency_above_the_smallest_time_is_cut_to_it() -> None:
    assert series_of(latency_s=1.0, time_s=[1e-6] * 8).base_s == 1e-6


def test_beyond_the_largest_size_the_bandwidth_counts() -> None:
    series = series_of(time_s=[1e-3] * 8)
    assert series.seconds(16777216 + 2e9) == pytest.approx(1e-3 + 1)
    level = series_of(time_s=[1e-3] * 8, bandwidth_Bps=None)
    assert level.seconds(2 * 16777216) == pytest.approx(2e-3)


def test_sizes_in_any_order_and_twice() -> None:
    series = series_of(bytes=[100, 10, 100], time_s=[4e-6, 1e-6, 6e-6], latency_s=None)
    assert series.bytes == (10, 100) and series.time_s == pytest.approx((1e-6, 5e-6))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([1, 3, 2], [1, 2.5, 2.5]),
        ([3, 2, 1], [2, 2, 2]),
        ([1, 5, 3, 1, 9], [1, 3, 3, 3, 9]),
    ],
)
def test_what_falls_is_pooled(values: list[float], expected: list[float]) -> None:
    assert rising(values) == pytest.approx(tuple(expected))


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20))
def test_pooled_values_rise_and_keep_their_sum(values: list[float]) -> None:
    pooled = rising(values)
    assert np.all(np.diff(pooled) >= -1e-12)
    assert sum(pooled) == pytest.approx(sum(values))


@given(
    st.lists(st.floats(1e-6, 1), min_size=len(SIZES), max_size=len(SIZES)),
    st.floats(0, 9),
    st.floats(1, 100),
    st.sampled_from([None, 1e9]),
)
def test_more_bytes_are_never_faster(
    times: list[float], digits: float, factor: float, bandwidth_Bps: float | None
) -> None:
    series, nbytes = series_of(time_s=times, bandwidth_Bps=bandwidth_Bps), 10**digits
    assert series.seconds(nbytes * factor) >= series.seconds(nbytes) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": None}, "kind is None"),
        ({"axis": ""}, "axis is ''"),
        ({"group_size": 1}, "group_size is 1; it must be a whole number of at least 2"),
        ({"groups": 2.5}, "groups is 2.5"),
        ({"latency_s": -1}, "latency_s is -1"),
        ({"bandwidth_Bps": "fast"}, "bandwidth_Bps is 'fast'"),
        ({"bytes": []}, "bytes is []"),
        ({"time_s": [1, float("nan")]}, "time_s is [1, nan]"),
        ({"time_s": [1.0, 2.0]}, "bytes has 8 entries, time_s 2"),
    ],
)
def test_what_is_wrong_is_told(fields: dict[str, Any], words: str) -> None:
    series, faults = read_series({**fit_of(), **fields}, "fit 7")
    assert series is None
    assert len(faults) == 1 and faults[0].startswith("fit 7: ") and words in faults[0]
