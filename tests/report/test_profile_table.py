"""The tables that show a profile."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from jaxbench.report.profile_table import print_profile

SHARES = {
    "total_s": [3e-3, 5e-3],
    "exposed_s": [2e-3, 3e-3],
    "hidden_s": [1e-3, 2e-3],
    "waiting_s": [5e-4, 1e-3],
    "transfer_s": [1.5e-3, 2e-3],
}
PROFILE: dict[str, Any] = {
    "path": "results/profile/host.xplane.pb",
    "platform": "cpu",
    "ranks": [4, 5],
    "step_s": [0.01, 0.012, 0.011],
    "median": {},
    "steps": {
        **{name: [values] * 3 for name, values in SHARES.items()},
        "compute_s": [[6e-3, 7e-3]] * 3,
        "rest_s": [[1e-4, 2e-4]] * 3,
    },
    "rows": [
        {
            "id": "all_reduce/data/100",
            "kind": "all_reduce",
            "axis": "data",
            "group_size": 2,
            "bytes_logical": 4_000_000,
            "wire_factor": 1.0,
            "labels": [f"gradient {k}" for k in range(9)],
            "count": [9, 8],
            **SHARES,
            "execution_s": 2e-3,
            "algorithmic_Bps": 2e9,
            "bus_Bps": 3e9,
            "skew_s": 1e-5,
            "skew_max_s": 4e-4,
        }
    ],
    "labels": [],
    "warnings": ["slow"],
}


def test_a_profile_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_profile(PROFILE)
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].startswith("profile of 3 steps of 11 ms,")
    (row,) = [line for line in lines if line.endswith("gradient 0, gradient 1 .. gradient 8")]
    assert row.split()[:2] == ["all_reduce/data/100", "8-9"]
    assert row.split()[2:12] == "4 ms 2.5 ms 750 us 1.75 ms 1.5 ms".split()
    words = [line.split() for line in lines]
    assert "all_reduce/data/100 4 MB 2 ms 2 GB/s 3 GB/s 10 us 400 us".split() in words
    assert "4 3 ms 2 ms 500 us 1.5 ms 1 ms 6 ms 100 us".split() in words
    assert out.endswith(
        "trace: results/profile/host.xplane.pb (XProf), *.trace.json.gz beside it "
        "(https://ui.perfetto.dev)\nwarning: profile: slow\n"
    )


def test_many_ranks_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    many = copy.deepcopy(PROFILE)
    many["ranks"] = list(range(40))
    many["steps"] = {
        name: [[values[0][0] + rank * 1e-3 for rank in range(40)]]
        for name, values in many["steps"].items()
    }
    print_profile(many)
    out = capsys.readouterr().out
    starts = [line.split()[:3] for line in out.splitlines()]
    assert ["least", "3", "ms"] in starts and ["most", "42", "ms"] in starts


def test_what_is_not_known_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    bare = copy.deepcopy(PROFILE)
    bare["step_s"] = []
    unknown = ("execution_s", "algorithmic_Bps", "bus_Bps", "skew_s", "skew_max_s")
    bare["rows"][0].update(dict.fromkeys(unknown))
    print_profile(bare)
    out = capsys.readouterr().out
    assert "steps of -," in out and "  -" in out and "None" not in out
