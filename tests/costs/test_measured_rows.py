"""The rows that others measured, by the script that compares them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "compare_costs.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_costs", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its classes look themselves up there
    spec.loader.exec_module(module)
    return module


compare = load()
ROWS = compare.rows()
TARGETS = [row for row in ROWS if row.target is not None]


def test_the_rows_that_must_agree_are_there() -> None:
    named = {(row.name, row.nbytes // 2**20, row.low) for row in TARGETS}
    assert named == {
        ("64xH100", 512, 356),
        ("64xH100", 8192, 387),
        ("GB200 NVL72", 512, 586),
        ("GB200 NVL72", 4096, 839),
    }


@pytest.mark.parametrize("row", TARGETS, ids=lambda row: f"{row.name}-{row.nbytes >> 20}MiB")
def test_measured_rows_are_within_12_percent(row: object) -> None:
    assert not compare.missed(row, compare.predict(row))


@pytest.mark.parametrize("row", TARGETS, ids=lambda row: f"{row.name}-{row.nbytes >> 20}MiB")
def test_a_row_that_is_off_is_seen(row: object) -> None:
    prediction = compare.predict(row)
    for factor in (0.87, 1.14):
        GBps = prediction.GBps / factor
        off = row._replace(low=GBps, high=GBps)  # type: ignore[attr-defined]
        assert compare.missed(off, compare.predict(off))


def test_no_efficiency_of_these_rows_is_read_from_them() -> None:
    assert all("this row" not in row.efficiency for row in TARGETS)
    for row in TARGETS:
        sources = row.system.sources
        for name in ("node.device_Bps", "node.efficiency", "network.efficiency"):
            assert "coreweave" not in sources.get(name, "")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name}-{row.nbytes >> 20}MiB")
def test_every_row_is_predicted_in_bounds(row: object) -> None:
    """No prediction is beyond what the links could carry, nor of another order of magnitude."""
    prediction = compare.predict(row)
    assert 0.8 < prediction.GBps / row.low and prediction.GBps < 4 * row.high  # type: ignore[attr-defined]


def test_with_four_latencies_a_step_it_is_astra_sim() -> None:
    for ranks in compare.ASTRA_SIM_NS:
        assert abs(compare.astra_sim_ratio(ranks, 4) - 1) < 0.02
    ratios = [compare.astra_sim_ratio(ranks, 1) for ranks in (64, 256, 1024)]
    assert ratios == pytest.approx([0.35, 0.27, 0.25], abs=0.006)


def test_the_script_prints_every_row_and_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main() == 0
    printed = capsys.readouterr().out
    for row in ROWS:
        assert row.name in printed
    for ns in compare.ASTRA_SIM_NS.values():
        assert f"{ns:,}" in printed
    assert "2,036 ns" in printed and "missed" not in printed
