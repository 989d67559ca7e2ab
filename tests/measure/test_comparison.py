"""Two files of records: what is compared with what, and what is told of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxbench.errors import InputError
from jaxbench.measure.comparison import (
    HOW_MEASURED,
    Comparison,
    Side,
    compare,
    configuration,
    read_side,
    steps_of,
)
from jaxbench.measure.record import FILE_NAME, append_record
from tests.measure.comparison_records import ROW, record


def sides(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> Comparison:
    """Compare records as they come back from a file."""
    return compare(*(Side(name, json.loads(json.dumps(r))) for name, r in (("a", a), ("b", b))))


def runs(levels: list[float], **flags: Any) -> list[dict[str, Any]]:
    return [record(level, **flags) for level in levels]


def written(folder: Path, records: list[dict[str, Any]]) -> str:
    for each in records:
        append_record(folder, each)
    return str(folder)


# --- what is the same -----------------------------------------------------------------------------


def test_settings_of_the_measurement_don_t_make_another_configuration() -> None:
    same = [record(), record(seed=3, steps=6, warmup=4, decompose="false", expect_devices=2)]
    comparison = sides(same[:1], same[1:])
    assert len(comparison.rows) == 1 and not comparison.only_a and not comparison.only_b
    fields = set(record()["experiment"])
    assert {"seed", "steps", "warmup"} <= set(HOW_MEASURED) & fields


@pytest.mark.parametrize(
    "flags",
    [{"buckets": 3}, {"dtype": "float32"}, {"mesh": "data=4"}, {"size_scale": 0.5}, {"batch": 32}],
)
def test_any_other_setting_does(flags: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no configuration is both in 'a' and in 'b'") as caught:
        sides([record()], [record(**flags)])
    (fault,) = caught.value.faults
    name, value = next(iter(flags.items()))
    if name != "mesh":
        assert f"{name}={value}" in fault


def test_the_payload_that_ran_counts_and_not_auto() -> None:
    auto = record(payload="auto")
    auto["calibration"] = {"payload": "none"}
    assert configuration(auto) == configuration(record())
    auto["calibration"] = {"payload": "matmul"}
    assert configuration(auto) != configuration(record())


def test_a_record_from_before_a_field_compares() -> None:
    old = record()
    del old["experiment"]["inject_delay"]
    assert configuration(old) == configuration(record())
    assert configuration(old) != configuration(record(inject_delay="1:100"))


# --- verdicts -------------------------------------------------------------------------------------


def test_several_runs_a_side() -> None:
    a, b = [1.0, 1.01, 0.99, 1.0, 1.02], [1.1, 1.11, 1.09, 1.12, 1.1]
    (row,) = sides(runs(a), runs(b)).rows
    assert row.ratio.value == pytest.approx(1.1, abs=0.01)
    assert row.verdict.startswith("b takes 9.9") and row.verdict.endswith(" % longer")
    (back,) = sides(runs(b), runs(a)).rows
    assert back.verdict.endswith(" % less time") and back.ratio.value == pytest.approx(
        1 / (row.ratio.value or 0)
    )
    (equal,) = sides(runs(a), runs(a)).rows
    assert equal.verdict == "no difference shown" and equal.ratio.value == 1


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 5), (5, 1)])
def test_one_run_on_a_side_leaves_the_variance_unknown(a: int, b: int) -> None:
    (row,) = sides(runs([1.0, 1.01, 1.02, 0.99, 0.98][:a]), runs([1.3] * b)).rows
    assert row.verdict == "b takes 30 % longer; run-to-run variance unknown"
    assert not row.variance_known and row.ratio.ci_low is not None
    (row,) = sides(runs([1.0] * a), runs([1.0] * b)).rows
    assert row.verdict == "no difference shown; run-to-run variance unknown"


def test_too_few_steps_of_one_run() -> None:
    (row,) = sides([record(steps=5)], [record(2.0)]).rows
    assert row.steps == (5, 10)
    assert row.verdict == "too few steps to tell; run-to-run variance unknown"
    assert (row.ratio.ci_low, row.to_json()["differs"]) == (None, None)
    assert row.ratio.value == pytest.approx(2.0)


def test_one_step_of_several_runs_is_enough() -> None:
    a, b = ([record(level, steps=1) for level in levels] for levels in ([1, 1.01], [2, 2.01]))
    (row,) = sides(a, b).rows
    assert row.variance_known and row.ratio.differs is not None


def test_steps_are_those_of_the_slowest_rank() -> None:
    two = record()
    two["samples"]["full"] = [[1.0, 3.0], [2.0, 1.0], [1.0, None]]
    assert steps_of(two) == [3.0, 2.0]
    for bad in (None, {}, {"full": 3}, {"full": [1.0]}, {"full": [[0.0]]}, {"full": [["x"]]}):
        assert steps_of({"samples": bad}) == []


# --- what is told ---------------------------------------------------------------------------------


def test_configurations_of_one_side_are_listed_with_what_tells_them_apart() -> None:
    a = [record(), record(buckets=3), record(buckets=3), record(mesh="data=4")]
    comparison = sides(a, [record(), record(buckets=7)])
    assert [row.configuration for row in comparison.rows] == ["dp tiny data=2 buckets=50"]
    assert comparison.only_a == {"dp tiny data=2 buckets=3": 2, "dp tiny data=4": 1}
    assert comparison.only_b == {"dp tiny data=2 buckets=7": 1}
    told = json.loads(json.dumps(comparison.to_json()))
    assert told["only_a"] == comparison.only_a and told["rows"][0]["runs"] == [1, 1]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"versions": {"jax": "0.11.2"}}, "jax: a has 0.10.2; b has 0.11.2"),
        ({"device_kind": "H200"}, "device_kind: a has cpu; b has H200"),
        ({"host": "two"}, "host: a has one; b has two"),
        ({"variables": {"XLA_FLAGS": "--xla_a=2 --xla_b"}}, "XLA_FLAGS --xla_a: a has 1; b has 2"),
        ({"variables": {}}, "XLA_FLAGS --xla_b: a has set; b has not set"),
    ],
)
def test_other_surroundings_are_told(change: dict[str, Any], text: str) -> None:
    (row,) = sides([record()], [record(environment=change)]).rows
    assert text in row.differences


def test_equal_or_unknown_surroundings_are_no_difference() -> None:
    unknown = record(environment={"host": None, "git_revision": "abc", "versions": None})
    (row,) = sides([record()], [unknown]).rows
    assert row.differences == []
    hosts = [record(environment={"host": host}) for host in ("one", "two")]
    (row,) = sides(hosts, hosts[::-1]).rows
    assert row.differences == []
    (row,) = sides(hosts, hosts[:1]).rows
    assert row.differences == ["host: a has one, two; b has one"]


def test_another_plan_or_way_to_measure_is_told() -> None:
    other = record(decompose="false")
    other["plan"] = [{**ROW, "count": 5}]
    (row,) = sides([record()], [other]).rows
    assert [text.partition(":")[0] for text in row.differences] == ["decompose", "plan"]
    assert "a has 4 collectives" in row.differences[1] and "b has 5" in row.differences[1]


# --- files ----------------------------------------------------------------------------------------


def test_partial_records_are_left_out_and_counted(tmp_path: Path) -> None:
    partial = {**record(9.0), "partial": True}
    side = read_side(written(tmp_path, [record(), partial, partial, record()]))
    assert (len(side.records), side.partial, side.warnings) == (2, 2, [])


def test_a_record_counts_once(tmp_path: Path) -> None:
    one = record()
    side = read_side(written(tmp_path, [one, record(), one]))
    assert len(side.records) == 2
    assert side.warnings == [f"{tmp_path} has record {one['id']} twice: counted once"]


def test_a_file_against_its_copy_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, [record(), record()])
    comparison = compare(read_side(path), read_side(str(tmp_path / FILE_NAME)))
    assert comparison.warnings == ["2 records are the very same in a and b"]


def test_torn_and_foreign_lines_are_skipped_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"schema": 1, "experiment": {}}\n{"schema": 1, "exp')
    path = written(tmp_path, [record()])
    side = read_side(path)
    assert len(side.records) == 1 and len(side.warnings) == 2
    assert "line 2 is not a whole record" in side.warnings[0]
    assert "record number 1 has no experiment with steps" in side.warnings[1]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "can't read results"),
        ("", "it is empty"),
        ("hello\nworld\n", "line 1 is not a whole record"),
        ('{"schema": 1, "samples": [], "experiment": 7}\n', "no experiment with steps"),
        (json.dumps({"schema": 1, "partial": True}), "partial ones only"),
    ],
)
def test_a_file_without_anything_to_compare(tmp_path: Path, content: str | None, text: str) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_side(str(path))
    (fault,) = caught.value.faults
    assert text in fault and str(path) in fault


def test_records_of_something_else_don_t_break_it() -> None:
    odd = {"experiment": {"kind": "x", "mesh": [1]}, "samples": {"full": [[1.0]] * 6}}
    odd |= {"environment": 3, "plan": [{"count": "many"}], "calibration": "no"}
    (row,) = sides([odd], [{**odd, "plan": {}, "environment": {"variables": 1}}]).rows
    assert (row.configuration, row.differences) == ("x", [])
