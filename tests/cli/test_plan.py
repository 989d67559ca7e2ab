"""`jaxbench plan` end to end: the examples of its help, both formats, several runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from jaxbench.cli import plan
from jaxbench.cli.main import main

EXAMPLES = re.findall(r"^  jaxbench (plan .*)$", plan.__doc__ or "", re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_work(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(example)) == 0
    assert capsys.readouterr().out


def test_json_is_one_document_per_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--runs=tiny_dp,tiny_fsdp", "--format=json"]) == 0
    plans = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [{row["kind"] for row in one if row["elements"] is not None} for one in plans]
    assert kinds == [{"all_reduce"}, {"all_gather", "reduce_scatter", "all_reduce"}]


def test_text_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    paper = "--flagfile=flags/paper_dp_pp_tp_llama3_70b.flags"
    assert main(["plan", paper, "--mesh=data=7,pipeline=8,tensor=4"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("dp_pp_tp llama3_70b, data=7,pipeline=8,tensor=4, bfloat16")
    assert "2,204,803,328" in text
    assert max(map(len, text.splitlines())) > 100


def test_a_reader_that_stops_is_no_failure() -> None:
    words = ["plan", "--runs=" + ",".join(["tiny_dp"] * 200)]
    code = "import sys; from jaxbench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert command.stdout is not None and command.stderr is not None
    command.stdout.read(10)
    command.stdout.close()
    assert b"Error" not in command.stderr.read()
    command.stderr.close()
    assert command.wait() == 0
