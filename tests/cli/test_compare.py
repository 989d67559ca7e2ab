"""`jaxbench compare` as a person calls it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from jaxbench.cli import compare
from jaxbench.cli.main import main
from jaxbench.measure.record import FILE_NAME, append_record
from tests.measure.comparison_records import record

EXAMPLES = re.findall(r"^  jaxbench compare (.*)$", compare.__doc__ or "", re.MULTILINE)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in a folder with the results that the examples name."""
    monkeypatch.chdir(tmp_path)
    for name, level in (("before", 1.0), ("after", 1.2), ("results", 1.0), ("other_results", 1.0)):
        for run in range(3):
            append_record(name, record(level * (1 + 0.01 * run)))


def test_the_examples_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLES) == 2
    for example in EXAMPLES:
        assert main(["compare", *shlex.split(example)]) == 0
    text, document = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert "b takes 20 % longer" in text
    told = json.loads(document)
    assert (told["a"], told["b"], told["warnings"]) == ("results", "other_results", [])
    (row,) = told["rows"]
    assert row["verdict"] == "no difference shown" and row["ci_low"] < 1 < row["ci_high"]
    assert (row["runs"], row["steps"], row["run_variance_known"]) == ([3, 3], [30, 30], True)


@pytest.mark.parametrize(
    "words",
    [
        ["before", "after", "--format=json"],
        ["--format", "json", "before", "after"],
        ["before", "--format=json", "after"],
        ["--format=json", "--", "before", "after"],
    ],
)
def test_flags_and_files_in_any_order(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["a"], told["b"]) == ("before", "after")


def test_all_that_limits_a_comparison_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    append_record("before", record(buckets=3))
    append_record("before", {**record(), "partial": True})
    append_record("after", record(buckets=5, environment={"host": "two"}))
    append_record("after", record(1.21, environment={"host": "two"}))
    append_record("other_results", record(mesh="data=4", environment={"host": "two"}))
    with (Path("after") / FILE_NAME).open("a") as file:
        file.write('{"schema": 1, "to')
    assert main(["compare", "before", "after"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "median step; a: before, b: after"
    assert re.match(
        r"dp tiny data=2 buckets=50 +3 +4 +1.01 s +1.21 s +1\.\d+ +1\.\d+ \.\. 1\.\d+ +b takes",
        lines[3],
    )
    assert lines[4:] == [
        "only in a: dp tiny data=2 buckets=3 (1 run)",
        "only in b: dp tiny data=2 buckets=5 (1 run)",
        "left out: 1 partial record of a (before)",
        "different: host: a has one; b has one, two",
        "warning: after/runs.jsonl line 6 is not a whole record: skipped",
    ]


def test_a_difference_of_one_configuration_is_told_with_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, host in (("before", "one"), ("after", "two")):
        append_record(name, record(buckets=3, environment={"host": host}))
    assert main(["compare", "before", "after"]) == 0
    out = capsys.readouterr().out
    assert "different: dp tiny data=2 buckets=3: host: a has one; b has two" in out


def test_many_rows_and_many_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("p", "q"):
        for buckets in range(1, 21):
            append_record(name, record(buckets=buckets))
    with (Path("q") / FILE_NAME).open("a") as file:
        file.write("nonsense\n" * 30)
    assert main(["compare", "p", "q"]) == 0
    out = capsys.readouterr().out
    assert "note: of 20 equal configurations, 1 show a difference by chance" in out
    assert out.count("warning: ") == 11 and "warning: and 20 more such lines" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "compare takes 2 arguments, A B; got none"),
        (["before"], "compare takes 2 arguments, A B; got 1: before"),
        (["before", "after", "results"], "got 3: before after results"),
        (["before", "nonesuch"], "can't read results 'nonesuch': it isn't there"),
        (["before", "."], "can't read results '.': it has no runs.jsonl"),
        (["before", "after", "--format=xml"], "unknown format 'xml'; known: json, text"),
        (["before", "after", "--steps=3"], "compare has no flag '--steps'"),
        (["before", "after", "--fromat=json"], "did you mean '--format'?"),
        (["before", "after", "--format"], "Missing value for --format"),
        (["before", "--nonesuch", "3", "after"], "unknown flag '--nonesuch'"),
        (["before", __file__], "has no records of runs to compare"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *words]) == 2
    output = capsys.readouterr()
    assert output.out == "" and len(output.err.splitlines()) == 1
    assert text in output.err


def test_nothing_in_common_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    append_record("alone", record(buckets=3))
    assert main(["compare", "before", "alone"]) == 2
    assert capsys.readouterr().err == (
        "jaxbench compare: no configuration is both in 'before' and in 'alone': "
        "a has 'dp tiny data=2 buckets=50'; b has 'dp tiny data=2 buckets=3'\n"
    )


def test_both_files_faults_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "x", "y"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "jaxbench compare: 2 faults:",
        "  can't read results 'x': it isn't there",
        "  can't read results 'y': it isn't there",
    ]
