"""`jaxbench collectives`: its flags and faults, and the whole of it as a process."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import jaxbench
from jaxbench.cli import collectives
from jaxbench.cli.main import main
from jaxbench.errors import InputError
from jaxbench.measure.collectives.fit_file import read_fits
from jaxbench.measure.collectives.manner import Manner
from jaxbench.measure.collectives.request import Request, read_ranks
from jaxbench.measure.record import FIELDS, read_records

ROOT = Path(jaxbench.__file__).resolve().parent.parent
EXAMPLES = re.findall(r"^  jaxbench collectives (.*)$", collectives.__doc__ or "", re.MULTILINE)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether results can be written is tried in the current folder."""
    monkeypatch.chdir(tmp_path)


def read(*words: str) -> Request:
    return collectives.read(words)[0]


def faults(*words: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(*words)
    return list(caught.value.faults)


def test_defaults() -> None:
    request, form = collectives.read(["--devices=4"])
    assert form == "text"
    assert request.kinds == ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")
    assert request.sizes == tuple(8 * 8**k for k in range(8))
    assert (request.axes, request.dtypes) == (("data",), ("bfloat16",))
    assert (request.steps, request.warmup, request.seed) == (10, 2, 0)
    assert (request.devices, request.ranks, request.fit, request.out) == (4, None, None, "results")
    assert request.manner == Manner(messages=1, pause_s=0.0)


def test_a_grid() -> None:
    request = read(
        "--mesh=data=2,tensor=4",
        "--axis=tensor,data",
        "--kinds=all",
        "--dtype=float32, bfloat16,float32",
        "--min_bytes=1K",
        "--max_bytes=1MB",
        "--factor=4",
        "--messages=3",
        "--pause_s=2e-3",
    )
    assert request.manner == Manner(3, 0.002)
    assert request.axes == ("tensor", "data") and len(request.kinds) == 7
    assert request.dtypes == ("float32", "bfloat16")
    assert request.sizes == (1024, 4096, 16384, 65536, 262144)
    assert (request.devices, request.mesh_size) == (8, 8)


def test_all_axes_with_more_than_one_rank() -> None:
    assert read("--mesh=pipeline=3,tensor=1,data=2").axes == ("data", "pipeline")


@pytest.mark.parametrize(
    ("words", "mesh", "devices"),
    [
        ("--ranks=0-3", {"data": 4}, 4),
        ("--ranks=4-7", {"data": 4}, 8),
        ("--ranks=1,3,5 --devices=8", {"data": 3}, 8),
        ("--ranks=0-7 --mesh=tensor=4", {"data": 2, "tensor": 4}, 8),
    ],
)
def test_ranks_make_up_the_mesh(words: str, mesh: dict[str, int], devices: int) -> None:
    request = read(*words.split())
    assert {axis: size for axis, size in request.mesh if size > 1} == mesh
    assert request.devices == devices


def test_ranks_keep_their_order() -> None:
    assert read_ranks("5, 1-3 ,0") == (5, 1, 2, 3, 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "the number of ranks is missing: give --devices=8"),
        ("--devices=1", "one rank has nobody to communicate with; give --devices=2 or more"),
        ("--devices=0", "--devices is 0; it must be at least 1"),
        ("--devices=x", "--devices is 'x'; it must be a whole number"),
        ("--devices=4 --kinds=allreduce", "unknown kind of collective 'allreduce'; did you mean"),
        ("--devices=4 --dtype=int8", "unknown dtype 'int8'"),
        ("--devices=4 --axis=tensor", "axis 'tensor' has one rank"),
        ("--devices=4 --axis=tensro", "unknown mesh axis 'tensro'; did you mean 'tensor'?"),
        ("--devices=4 --mesh=data=3", "--mesh=data=3 makes 3 ranks, but --devices is 4"),
        ("--devices=4 --mesh=date=4", "unknown mesh axis 'date'"),
        ("--ranks=0-3 --mesh=data=3", "--mesh=data=3 makes 3 ranks, but --ranks names 4"),
        ("--ranks=0-3 --mesh=tensor=3", "takes a multiple of 3 ranks, but --ranks names 4"),
        ("--ranks=0-4 --devices=4", "--ranks names 4; the ranks are 0 to 3"),
        ("--ranks=3-0", "--ranks is '3-0'; it must be ranges that go upwards"),
        ("--ranks=0,1,1", "--ranks is '0,1,1'; it must be ranks that are named once each"),
        ("--ranks=0-", "it must be ranks and ranges of ranks, as in 0-3 or 0,2,4-6"),
        ("--devices=4 --min_bytes=0", "--min_bytes is '0'; it must be at least 1 byte"),
        ("--devices=4 --max_bytes=8Q", "--max_bytes is '8Q'; it must be whole bytes with a unit"),
        ("--devices=4 --min_bytes=1M --max_bytes=1K", "more than --max_bytes of 1,024"),
        ("--devices=4 --messages=0", "--messages is '0'; it must be a whole number from 1 to 9999"),
        ("--devices=4 --pause_s=5ms", "--pause_s is '5ms'; it must be a number of seconds from 0"),
        ("--devices=4 --pause_s=-1", "--pause_s is '-1'; it must be a number of seconds from 0"),
        ("--devices=4 --pause_s=nan", "--pause_s is 'nan'; it must be a number of seconds from 0"),
        ("--devices=4 --factor=1", "--factor is '1'; it must be a whole number of at least 2"),
        ("--devices=4 --steps=0", "--steps is 0; it must be at least 1"),
        ("--devices=4 --warmup=1", "--warmup is 1; it must be at least 2"),
        ("--devices=4 --padding=some", "unknown padding 'some'"),
        ("--devices=4 --format=csv", "unknown format 'csv'; known: json, nccl, text"),
        ("--devices=4 --out=/proc/results", "can't write results to '/proc/results'"),
        ("--devices=4 --fit=/proc/fits.json", "can't write fits to '/proc/fits.json'"),
        ("--devices=4 --strategy=dp", "collectives has no flag '--strategy'"),
        ("--devices=4 --max_byte=8", "unknown flag '--max_byte'; did you mean '--max_bytes'?"),
        ("--devices=4 --flagfile=nonesuch.flags", "unknown flagfile 'nonesuch.flags'"),
        ("--devices=4 --ranks=0-99999 --min_bytes", "Missing value for --min_bytes"),
    ],
)
def test_one_fault_is_told_once(words: str, told: str, tmp_path: Path) -> None:
    found = faults(*words.split())
    assert told in found[0] and len(found) == (2 if "99999" in words else 1)
    assert list(tmp_path.iterdir()) == []


def test_all_faults_are_told_together() -> None:
    words = "--devices=4 --kinds=gather --dtype=f32 --factor=0 --steps=-1 --axis=expert --format=x"
    assert len(faults(*words.split())) == 6


def test_a_flagfile_serves_this_command_too() -> None:
    request = read("--flagfile=flags/tiny_dp.flags", "--steps=3")
    assert (request.steps, request.dtypes) == (3, ("float32",))
    assert request.mesh_size == request.devices > 1


def test_the_examples_of_the_help_are_right() -> None:
    assert len(EXAMPLES) == 2
    for example in EXAMPLES:
        read(*shlex.split(example))


def test_faults_are_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collectives", "--devices=4", "--factor=1"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("jaxbench collectives: --factor is '1'")


def test_the_whole(tmp_path: Path) -> None:
    ours = ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS", "JAXBENCH_ENVIRONMENT_SET")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    words = (
        "--devices=3 --kinds=all_reduce,broadcast --dtype=float32 --max_bytes=512 --steps=3 "
        "--format=nccl --fit=fits.json"
    )
    done = subprocess.run(
        [sys.executable, "-m", "jaxbench", "collectives", *words.split()],
        cwd=tmp_path,
        env={**env, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [row[:5] for row in rows] == [
        ["8", "2", "float", "sum", "-1"],
        ["64", "16", "float", "sum", "-1"],
        ["512", "128", "float", "sum", "-1"],
        ["8", "2", "float", "none", "0"],
        ["64", "16", "float", "none", "0"],
        ["512", "128", "float", "none", "0"],
    ]
    assert all(row[8] == "0" for row in rows)
    assert done.stdout.count("# Avg bus bandwidth    : ") == 2
    records, warnings = read_records(tmp_path / "results")
    assert warnings == [] and len(records) == 6
    for record in records:
        assert list(record) == list(FIELDS)
        assert record["checks"]["plan_equals_compiled"] and record["checks"]["values_ok"]
        assert record["command"][:2] == ["jaxbench", "collectives"]
        assert len(record["samples"]["full"]) == len(record["samples"]["chained"]) == 3
        assert record["environment"]["variables"]["MALLOC_ARENA_MAX"] == "1"
    fits = read_fits(tmp_path / "fits.json")["fits"]
    assert [fit["kind"] for fit in fits] == ["all_reduce", "broadcast"][: len(fits)]
    assert json.loads(json.dumps(fits)) == fits
