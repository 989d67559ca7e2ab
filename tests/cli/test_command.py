"""A call is resolved as a whole: flags, flagfiles, runs, and every fault of all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxbench.cli import plan, run
from jaxbench.cli.command import Command, read_command


def read(*words: str, name: str = "run", taken: tuple[str, ...] = run.FLAGS) -> Command:
    """Resolve a call."""
    return read_command(name, words, taken)


@pytest.mark.parametrize(
    "words",
    [
        ["--flagfile=flags/tiny_dp.flags", "--batch=4"],
        ["--batch=4", "--flagfile=flags/tiny_dp.flags"],
        ["--batch", "4", "--flagfile", "flags/tiny_dp.flags"],
    ],
)
def test_the_command_line_overrides_wherever_it_stands(words: list[str]) -> None:
    ((name, experiment),) = read(*words).experiments
    assert (name, experiment.batch) == ("dp", 4)


def test_a_full_mesh_on_the_command_line() -> None:
    words = ["--flagfile=flags/paper_dp_pp_tp_llama3_70b.flags"]
    ((_, paper),) = read(*words).experiments
    assert (paper.devices, paper.axis("data")) == (224, 7)
    ((_, full),) = read(*words, "--mesh=data=3,pipeline=8,tensor=4").experiments
    assert full.devices == 96
    ((_, more),) = read(*words, "--devices=1024").experiments
    assert (more.devices, more.axis("data")) == (1024, 32)


def test_runs_take_the_other_flags() -> None:
    experiments = read("--runs=tiny_dp,tiny_fsdp", "--steps=3", "--out=elsewhere")
    assert experiments.values["out"] == "elsewhere"
    assert [(name, e.strategy, e.steps) for name, e in experiments.experiments] == [
        ("tiny_dp", "dp", 3),
        ("tiny_fsdp", "fsdp", 3),
    ]


def test_the_quickstart_is_five_runs() -> None:
    names = [name for name, _ in read("--flagfile=flags/quickstart.flags").experiments]
    assert names == ["tiny_dp", "tiny_fsdp", "tiny_dp_pp", "tiny_dp_pp_tp", "tiny_dp_pp_ep"]


def test_defaults_of_the_command_s_own_flags() -> None:
    assert read("--flagfile=flags/tiny_dp.flags").values["out"] == "results"
    assert read("--flagfile=flags/tiny_dp.flags", "--out=").values["out"] == "results"


def test_every_fault_of_every_run_once() -> None:
    command = read(
        "--runs=tiny_dp,tiny_pd,tiny_dp_pp", "--batch=x", "--microbatches=3", "--nonesuch"
    )
    assert command.faults[:2] == [
        "unknown flag '--nonesuch'",
        "--batch is 'x'; it must be a whole number",
    ]
    assert command.faults[2].startswith("unknown run 'tiny_pd'; did you mean 'tiny_dp'? known: ")
    assert len(command.faults) == 3
    command = read("--runs=tiny_dp,tiny_dp_pp", "--microbatches=3")
    assert command.faults == [
        "tiny_dp_pp: --microbatches=3 doesn't divide --batch=16; divisors: 1, 2, 4, 8, 16"
    ]


def test_a_missing_flagfile_is_one_fault() -> None:
    (fault,) = read("--flagfile=flags/nonesuch.flags").faults
    assert fault.startswith("unknown flagfile 'flags/nonesuch.flags'")


def test_a_flagfile_without_a_name_is_no_folder() -> None:
    (fault,) = read("--flagfile=").faults
    assert fault.startswith("unknown flagfile ''; known: flags/")


def test_a_flagfile_serves_all_commands(tmp_path: Path) -> None:
    path = tmp_path / "a.flags"
    path.write_text("--flagfile=flags/tiny_dp.flags\n--out=there\n--format=json\n")
    for name, taken in (("run", run.FLAGS), ("plan", plan.FLAGS)):
        assert read(f"--flagfile={path}", name=name, taken=taken).faults == []
    command = read(f"--flagfile={path}", "--out=x", name="plan", taken=plan.FLAGS)
    assert command.faults == ["plan has no flag '--out'"]
