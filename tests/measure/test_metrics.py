"""Metrics are rows: a number without a row can't be recorded."""

from __future__ import annotations

import pytest

from jaxbench.measure.metrics import METRICS, metric


def test_a_metric_has_the_unit_of_its_row() -> None:
    assert metric("step_s", 0.5, ci_low=0.4, ci_high=0.6, n=10) == {
        "value": 0.5,
        "unit": "s",
        "ci_low": 0.4,
        "ci_high": 0.6,
        "n": 10,
    }


def test_what_is_not_known_is_none() -> None:
    assert metric("step_s", None) == {
        "value": None,
        "unit": "s",
        "ci_low": None,
        "ci_high": None,
        "n": 0,
    }


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError, match="step_s"):
        metric("step", 1.0)


@pytest.mark.parametrize("name", METRICS)
def test_suffix_and_unit_agree(name: str) -> None:
    row = METRICS[name]
    assert row.meaning
    for suffix, unit in (("_s", "s"), ("_bytes", "B"), ("_Bps", "B/s")):
        assert name.endswith(suffix) == (row.unit == unit)
