"""The table after a run, from records as they are in the file."""

from __future__ import annotations

from typing import Any

import pytest

from jaxbench.measure.metrics import METRICS
from jaxbench.report.run_table import print_runs


def record(**changes: Any) -> dict[str, Any]:
    value = {"unit": "s", "ci_low": None, "ci_high": None, "n": 3}
    base = {
        "experiment": {"strategy": "dp", "model": "tiny", "mesh": {"data": 8, "fsdp": 1}},
        "scales": {"time_scale": 1.0, "size_scale": 1.0},
        "checks": {"plan_equals_compiled": True, "values_ok": True},
        "metrics": {
            "step_s": {**value, "value": 0.0682},
            "wanted_compute_s": {**value, "value": 0.060},
            "compute_s": {**value, "value": None},
            "exposed_s": {**value, "value": 0.0082},
            "throughput": {**value, "value": 1877.0, "unit": "samples/s"},
        },
        "warnings": [],
    }
    return {**base, **changes}


def lines(capsys: pytest.CaptureFixture[str], *records: dict[str, Any]) -> list[str]:
    print_runs(records)
    return capsys.readouterr().out.splitlines()


def test_a_row_says_what_was_measured_and_whether_to_believe_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    header, row = (lines(capsys, record())[i].split() for i in (1, 3))
    assert row[:3] == ["dp", "tiny", "data=8"]
    assert "68.2 ms" in " ".join(row) and "1,877 samples/s" in " ".join(row)
    assert row[-2:] == ["yes", "yes"] and "scaled" not in header


def test_a_failed_check_and_an_unknown_value_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = {"value": None, "unit": "s", "ci_low": None, "ci_high": None, "n": 0}
    metrics = dict.fromkeys(METRICS, unknown)
    failed = {"plan_equals_compiled": False, "values_ok": None}
    row = lines(capsys, record(checks=failed, metrics=metrics))[3].split()
    assert row[3:] == ["-", "-", "-", "-", "-", "NO", "-"]


def test_scales_and_warnings_are_told_with_their_run(capsys: pytest.CaptureFixture[str]) -> None:
    scaled = record(
        scales={"time_scale": 0.01, "size_scale": 1.0}, warnings=["a compute took too long"]
    )
    text = lines(capsys, record(), scaled)
    assert text[1].endswith("scaled") and text[4].endswith("time x 0.01")
    assert text[-1] == "warning: dp tiny data=8: a compute took too long"


def test_a_decomposed_run_shows_the_parts_of_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {name: {"value": 0.001 * k, "unit": "s", "ci_low": None, "ci_high": None, "n": 6}
             for k, name in enumerate(METRICS)}  # fmt: skip
    parts["communication_share"]["value"] = 0.104
    title, header, _, row = lines(capsys, record(metrics=parts))
    assert "compute + bubble + skew + transfer + latency" in title
    assert header.split()[4:13] == "95 % CI compute bubble skew transfer latency hidden".split()
    assert "10.4 %" in row and "exposed" not in header
