"""The table of one step: every part with its interval, and both estimates side by side."""

from __future__ import annotations

from typing import Any

import pytest

from jaxbench.report.step_table import BESIDE, PARTS, print_step

SECONDS = {
    "step_s": 0.050,
    "compute_s": 0.020,
    "bubble_s": 0.010,
    "skew_s": 0.001,
    "transfer_exposed_s": 0.015,
    "latency_s": 0.003,
    "transfer_hidden_s": -0.002,
    "profile_exposed_s": 0.014,
    "profile_transfer_s": 0.013,
}


def record(pipeline: int = 1, profile: bool = False) -> dict[str, Any]:
    def entry(value: float, unit: str) -> dict[str, Any]:
        return {"value": value, "unit": unit, "ci_low": value - 0.001, "ci_high": None, "n": 12}

    metrics = {name: entry(value, "s") for name, value in SECONDS.items()}
    metrics |= {name: entry(0.4, "1") for name in BESIDE if name.startswith("comm")}
    metrics["step_s"]["ci_high"] = 0.052
    ranks = [[0.018, 0.022], [0.019, 0.023], [0.020, 0.024]]  # [steps][ranks]
    spans = {"step_s": [0.051, 0.055, 0.053], "steps": {"compute_s": ranks}}
    experiment = {"strategy": "dp_pp", "model": "tiny", "mesh": {"pipeline": pipeline}}
    return {"metrics": metrics, "experiment": experiment, "profile": spans if profile else None}


def printed(capsys: pytest.CaptureFixture[str], made: dict[str, Any]) -> dict[str, str]:
    print_step(made)
    return {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[3:]}


def test_every_part_has_a_line_and_they_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, record())
    words = [word for word, _ in (*PARTS.values(), *BESIDE.values())]
    assert {"step", "sum", *words} == set(lines)
    assert "49 ms   98.0 %" in lines["sum"]
    assert "20 ms   40.0 %" in lines["compute"] and " 12 " in lines["compute"]
    assert "49 ms .. 52 ms" in lines["step"]
    assert "-2 ms        -" in lines["hidden"], "what is hidden is no share of the step"


@pytest.mark.parametrize(("pipeline", "transfer"), [(1, "14 ms"), (4, "13 ms")])
def test_the_profile_stands_beside(
    capsys: pytest.CaptureFixture[str], pipeline: int, transfer: str
) -> None:
    lines = printed(capsys, record(pipeline, profile=True))
    assert "53 ms" in lines["step"] and "21 ms" in lines["compute"]
    assert transfer in lines["transfer"]


def test_what_was_not_decomposed_has_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    made = record()
    made["metrics"]["compute_s"]["value"] = None
    assert printed(capsys, made) == {}
