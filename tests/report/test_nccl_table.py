"""The tables of collectives: nccl-tests' layout to the character, the same facts for people."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from jaxbench.measure.collectives.kinds import KINDS
from jaxbench.report.nccl_table import FORMATS, average, fit_lines, nccl_text, print_collectives

# A line of nccl-tests' output, out of place, as programs that read it take it apart.
ROW = re.compile(
    r"^\s*(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>\w+)\s+(?P<redop>\w+)\s+(?P<root>-?\d+)"
    r"\s+(?P<time>[\d.]+|N/A)\s+(?P<algbw>[\d.]+|N/A)\s+(?P<busbw>[\d.]+|N/A)"
    r"\s+(?P<wrong>\d+|N/A)$"
)


def number(value: float | None, n: int = 10) -> dict[str, Any]:
    return {"value": value, "unit": "", "ci_low": value, "ci_high": value, "n": n}


def record(kind: str = "all_reduce", nbytes: int = 1 << 20, **changes: Any) -> dict[str, Any]:
    """Return the record of a cell over 4 ranks that took 100 us."""
    time_s = changes.pop("time_s", 100e-6)
    rate = None if time_s is None else nbytes / time_s
    factor = 1.5 if kind == "all_reduce" else 1.0
    experiment = {
        "kind": kind,
        "root": 0 if KINDS[kind].rooted else None,
        "bytes": nbytes,
        "asked_bytes": [nbytes],
        "count": nbytes // 4,
        "dtype": "float32",
        "axis": "data",
        "group_size": 4,
        "groups": 1,
        "mesh": {"data": 4, "tensor": 1},
        "ranks": None,
        "steps": 20,
        "warmup": 2,
    }
    experiment |= {k: changes.pop(k) for k in list(changes) if k in experiment}
    base = {
        "id": "0",
        "experiment": experiment,
        "metrics": {
            "step_s": number(300e-6),
            "step_p95_s": number(400e-6),
            "step_p99_s": number(None),
            "collective_s": number(time_s),
            "algorithmic_bandwidth_Bps": number(rate),
            "bus_bandwidth_Bps": number(None if rate is None else rate * factor),
        },
        "checks": {"wrong": 0},
        "warnings": [],
        "partial": False,
    }
    return {**base, **changes}


FIT = {
    "kind": "all_reduce",
    "dtype": "float32",
    "axis": "data",
    "group_size": 4,
    "latency_s": 20e-6,
    "bandwidth_Bps": 10e9,
    "bus_factor": 1.5,
    "r_squared": 0.9876,
    "residuals": [-0.02, 0.03],
    "note": None,
}


def rows(text: str) -> list[dict[str, str]]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = [ROW.match(line) for line in lines]
    assert all(found)
    return [match.groupdict() for match in found if match]


def test_the_columns_of_nccl_tests() -> None:
    lines = nccl_text([record()], []).splitlines()
    head = lines.index(
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    )
    assert lines[head - 1].split() == ["#", "out-of-place"]
    units = "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
    assert lines[head + 1] == units
    row = "     1048576        262144     float     sum      -1    100.0   10.49   15.73      0"
    assert lines[head + 2] == row
    assert lines[head + 3] == "# Out of bounds values : 0 OK"
    assert lines[head + 4] == "# Avg bus bandwidth    : 15.7286"


def test_rows_can_be_taken_apart() -> None:
    kinds = list(KINDS)
    (*found,) = rows(nccl_text([record(kind) for kind in kinds], []))
    assert [row["redop"] for row in found] == [KINDS[kind].redop for kind in kinds]
    roots = {kind: row["root"] for kind, row in zip(kinds, found, strict=True)}
    assert {kind for kind, root in roots.items() if root == "0"} == {"broadcast", "reduce"}
    types = [record(dtype=d) for d in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")]
    names = ["bfloat16", "half", "f8e4m3", "f8e5m2"]
    assert [row["type"] for row in rows(nccl_text(types, []))] == names


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(1.234567e-6, "1.23"), (56.78e-6, "56.78"), (123.46e-6, "123.5"), (0.0123456, "12346")],
)
def test_times_have_four_digits(seconds: float, shown: str) -> None:
    (row,) = rows(nccl_text([record(time_s=seconds)], []))
    assert row["time"] == shown


def test_each_block_says_what_runs_and_its_factor() -> None:
    text = nccl_text([record(), record("broadcast", groups=2, ranks=[4, 5])], [])
    assert text.count("#       size         count") == 2
    assert "# all_reduce over data=4 of mesh data=4: lax.psum: an all-reduce" in text
    assert "bus factor: 2(n-1)/n = 1.5; iters: 20, warmup iters: 2" in text
    assert "# broadcast over data=4 (2 groups at once) of mesh data=4, ranks 4,5: a select" in text
    assert "bus factor: 1; " in text


def test_the_average_is_of_the_block() -> None:
    records = [record(), record(time_s=200e-6), record("permute")]
    assert average(records[:2]) == pytest.approx((15.72864e9 + 7.86432e9) / 2)
    text = nccl_text(records, [])
    assert "Avg bus bandwidth    : 11.7965" in text and "Avg bus bandwidth    : 10.4858" in text


def test_what_is_not_known_is_not_a_number() -> None:
    failed = record(time_s=None, checks={"wrong": None}, warnings=["failed: out of luck"])
    text = nccl_text([failed], [])
    (row,) = rows(text)
    assert (row["time"], row["algbw"], row["busbw"], row["wrong"]) == ("N/A",) * 4
    assert "# warning: all_reduce of 1 MiB of float32: failed: out of luck" in text
    assert "# Avg bus bandwidth    : N/A" in text
    assert average([failed]) is None


def test_wrong_values_are_counted() -> None:
    text = nccl_text([record(checks={"wrong": 3}), record()], [])
    assert [row["wrong"] for row in rows(text)] == ["3", "0"]
    assert "# Out of bounds values : 3 FAILED" in text


def test_rounded_sizes_are_told() -> None:
    text = nccl_text([record("all_gather", 16, asked_bytes=[8, 16])], [])
    told = "# rounded up to whole, equal parts: all_gather of float32 over data=4: 8 B -> 16 B"
    assert told in text.splitlines()


def test_fits_are_sentences() -> None:
    unknown = {**FIT, "latency_s": None, "note": "add smaller ones"}
    nothing = {**unknown, "bandwidth_Bps": None, "residuals": [], "note": "too few"}
    assert fit_lines([FIT, unknown, nothing]) == [
        "fit all_reduce float32 over data=4: time = 20 us + size / (10 GB/s); "
        "-2% to +3% at 2 sizes",
        "fit all_reduce float32 over data=4: time = size / (10 GB/s); -2% to +3% at 2 sizes; "
        "add smaller ones",
        "fit all_reduce float32 over data=4: -; too few",
    ]


def test_the_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    warned = ["bfloat16 travels as f32 here"]
    records = [record(), record("reduce", 12, asked_bytes=[10], warnings=warned)]
    print_collectives(records, [FIT], "text")
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("all_reduce  float32"))
    for cell in ("1 MiB", "100 us", "300 us", "400 us", "10.5 GB/s", "15.7 GB/s"):
        assert f" {cell} " in row
    assert row.endswith(" 0")
    assert any(line.startswith("reduce: lax.psum: an all-reduce, whose result") for line in lines)
    assert "rounded up to whole, equal parts: reduce of float32 over data=4: 10 B -> 12 B" in lines
    assert "warning: bfloat16 travels as f32 here" in lines
    assert "average bus bandwidth: 7.86 GB/s" in lines
    (fit,) = [line for line in lines if "-2% to +3%" in line]
    for cell in ("20 us", "10 GB/s", "15 GB/s", "0.988"):
        assert f" {cell} " in fit


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_collectives([record(), record("reduce")], [FIT], "json")
    (line,) = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert [cell["bus_factor"] for cell in document["cells"]] == [1.5, 1.0]
    assert document["cells"][0]["metrics"]["collective_s"]["value"] == 100e-6
    assert document["fits"] == [FIT]
    assert document["average_bus_bandwidth_Bps"] == pytest.approx(13.1072e9)
    assert FORMATS == ("text", "nccl", "json")
