"""Words become flag values in all of absl's spellings; every wrong word is told."""

from __future__ import annotations

from dataclasses import fields

import pytest

from jaxbench.cli.flags import (
    EXPERIMENT_FLAGS,
    FLAGS,
    Parsed,
    foreign_flags,
    parse_words,
    read_boolean,
    split_arguments,
    split_flagfiles,
)
from jaxbench.experiment import Experiment


def test_flags_are_the_fields_of_an_experiment() -> None:
    assert set(EXPERIMENT_FLAGS) == {f.name for f in fields(Experiment)} - {"notes"}
    for f in fields(Experiment):
        assert f.name == "notes" or FLAGS[f.name].boolean == (f.type == "bool")


@pytest.mark.parametrize(
    "words",
    [["--batch=4"], ["--batch", "4"], ["-batch=4"], ["--batch=9", "--batch=4"]],
)
def test_spellings(words: list[str]) -> None:
    assert parse_words(words) == Parsed({"batch": "4"}, [])


def test_booleans() -> None:
    for word, value in {"--recompute": "true", "--norecompute": "false"}.items():
        assert parse_words([word, "--batch=4"]) == Parsed({"recompute": value, "batch": "4"}, [])
    assert parse_words(["--recompute=perhaps"]).values == {"recompute": "perhaps"}
    faults: list[str] = []
    meanings = {"": False, "true": True, "False": False, "1": True, "no": False}
    assert {text: read_boolean("fom", text, faults) for text in meanings} == meanings
    assert faults == [] and not read_boolean("fom", "perhaps", faults)
    assert faults == ["--fom is 'perhaps'; it must be true or false"]


def test_every_wrong_word_is_told_and_the_rest_is_read() -> None:
    words = ["--bathc=4", "--steps", "3", "file", "--stesp", "5", "--norecompoot", "--devices=2"]
    values, faults = parse_words([*words, "--mesh"], where="a.flags line 1: ")
    assert values == {"steps": "3", "devices": "2"}
    assert sorted(faults) == sorted(
        "a.flags line 1: " + fault
        for fault in (
            "unknown flag '--bathc'; did you mean '--batch'?",
            "unexpected argument 'file'; flags are written --name=value",
            "unknown flag '--stesp'; did you mean '--steps'?",
            "unknown flag '--norecompoot'; did you mean '--norecompute'?",
            "Missing value for --mesh",
        )
    )


def test_a_hyphen_is_corrected() -> None:
    assert parse_words(["--size-scale=2"]).faults == [
        "unknown flag '--size-scale'; did you mean '--size_scale'?"
    ]


def test_absl_s_own_escape_is_not_taken() -> None:
    values, faults = parse_words(["--undefok=nonesuch", "--nonesuch=1", "--batch=4"])
    assert values == {"batch": "4"}
    assert faults == ["unknown flag '--undefok'", "unknown flag '--nonesuch'"]


def test_flagfiles_are_taken_out() -> None:
    words = ["--flagfile=a", "--batch=4", "--flagfile", "b", "-flagfile=c"]
    assert split_flagfiles(words) == (["--batch=4"], ["a", "b", "c"])


def test_a_flag_of_another_command() -> None:
    assert foreign_flags("plan", ["out", "batch"], ["batch"]) == ["plan has no flag '--out'"]


@pytest.mark.parametrize(
    ("words", "flags", "alone"),
    [
        (["a", "--steps=3", "b"], ["--steps=3"], ["a", "b"]),
        (["--steps", "3", "a"], ["--steps", "3"], ["a"]),
        (["--recompute", "a", "--norecompute", "-"], ["--recompute", "--norecompute"], ["a", "-"]),
        (["--steps", "--batch", "4", "a"], ["--steps", "--batch", "4"], ["a"]),
        (
            ["--flagfile", "f", "--nonesuch", "3", "a"],
            ["--flagfile", "f", "--nonesuch", "3"],
            ["a"],
        ),
        (["a", "--", "-b", "--steps=3"], [], ["a", "-b", "--steps=3"]),
        (["a", "--steps"], ["--steps"], ["a"]),
    ],
)
def test_words_that_stand_alone(words: list[str], flags: list[str], alone: list[str]) -> None:
    assert split_arguments(words) == (flags, alone)
