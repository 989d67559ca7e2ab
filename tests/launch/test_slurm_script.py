"""Job scripts: their whole text, what they do when run by a false srun, and what is refused.

JAXBENCH_WRITE_GOLDEN=1 writes the texts anew; read the difference before it is committed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbench.catalog.systems import find_system, system_names
from jaxbench.cli import slurm
from jaxbench.cli.main import guarded
from jaxbench.errors import InputError
from jaxbench.launch.slurm_script import Job, Step, choice_faults, job_script
from jaxbench.launch.slurm_systems import (
    GENERIC,
    SLURM_SYSTEMS,
    find_slurm_system,
    slurm_system_names,
)

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = re.findall(r"^  jaxbench slurm (.+)$", slurm.__doc__ or "", re.MULTILINE)

CASES: dict[str, str] = {
    "leonardo": "--system=leonardo --flagfile=flags/quickstart.flags --devices=256",
    "leonardo_large": "--system=leonardo --flagfile=flags/paper_dp_pp_tp_llama3_70b.flags "
    "--devices=1024 --account=my_project --time_limit=2:00:00",
    "alps": "--system=alps --flagfile=flags/quickstart.flags --devices=64 --account=g123",
    "jupiter": "--system=jupiter --flagfile=flags/paper_fsdp_llama3_8b.flags --devices=64",
    "lumi_g": "--system=lumi_g --flagfile=flags/quickstart.flags --devices=128",
    "generic_gpu": "--system=generic_gpu --flagfile=flags/tiny_dp.flags --devices=32 --per_node=4 "
    "--cpus_per_task=12 --partition=gpu --qos=high --account=me --silence_s=60",
    "generic_cpu": "--system=generic_cpu --flagfile=flags/quickstart.flags --devices=8",
    "sweep": "--system=leonardo --flagfile=flags/tiny_dp.flags --devices=64|128 --repetitions=2 "
    "--account=me --out=/scratch/me/results",
    "array": "--system=lumi_g --strategy=dp --model=tiny --devices=64 --buckets=1|8 --array",
}


def script(words: str) -> str:
    return job_script(slurm.read(shlex.split(words.replace("|", "'|'"))).job)


@pytest.mark.parametrize("name", CASES)
def test_the_whole_text(name: str) -> None:
    path, text = GOLDEN / f"{name}.sh", script(CASES[name])
    if os.environ.get("JAXBENCH_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_every_system_has_a_text() -> None:
    named = {words.split()[0].partition("=")[2] for words in CASES.values()}
    assert named == {*SLURM_SYSTEMS, *GENERIC}
    assert {path.stem for path in GOLDEN.glob("*.sh")} == {*CASES}


@pytest.mark.parametrize("name", CASES)
def test_bash_can_read_it(name: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script(CASES[name]), text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", CASES)
def test_sbatch_would_see_every_directive(name: str) -> None:
    """It stops reading at the first command; comments and blank lines are no commands."""
    lines = script(CASES[name]).splitlines()
    first = next(k for k, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first:])
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert all(re.fullmatch(r"--[\w-]+(=\S+)?", option) for option in options)
    assert len({option.partition("=")[0] for option in options}) == len(options)
    comments = [line for line in lines if line.startswith("# ") and "Written by" not in line]
    assert all(len(line) <= 100 for line in comments)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples(example: str) -> None:
    assert slurm.read(shlex.split(example)).job.steps


# Where the numbers come from


@pytest.mark.parametrize("row", [*SLURM_SYSTEMS.values(), *GENERIC.values()], ids=lambda r: r.name)
def test_everything_has_a_source_and_a_reason(row: slurm.SlurmSystem) -> None:
    for line in (*row.directives, *row.srun, *row.environment):
        assert line.why and line.source, line
        assert not line.why.endswith(".") and line.text.isprintable()
    told = {"partition": row.partition, "sizes": row.sizes, "account": row.account}
    assert {*row.sources} == {"cpus_per_task", *(key for key, value in told.items() if value)}
    assert [size.nodes for size in row.sizes] == sorted({size.nodes for size in row.sizes})
    assert row.srun and row.environment[0].text.startswith("JAX_PLATFORMS=")


@pytest.mark.parametrize("name", SLURM_SYSTEMS)
def test_counts_are_those_of_the_system(name: str) -> None:
    system, row = find_system(name), find_slurm_system(name)
    assert (row.nodes, row.devices_per_node) == (system.nodes, system.devices_per_node)
    assert (row.most_nodes or 0) <= system.nodes
    assert row.partition == system.slurm.get("partition", row.partition)


def test_any_system_but_tpus_is_known() -> None:
    for name in system_names():
        if name.startswith("tpu"):
            with pytest.raises(InputError, match=f"system '{name}' has no Slurm; known: alps, "):
                find_slurm_system(name)
        else:
            assert find_slurm_system(name).name == name
    assert find_slurm_system("h100_node").platform == "cuda"
    assert find_slurm_system("laptop").platform == "cpu"
    assert "generic_gpu" in slurm_system_names() and "tpu_v5p" not in slurm_system_names()


# What is refused


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        (
            "--system=leonrdo --strategy=dp --model=tiny --devices=8",
            ["unknown system 'leonrdo'; did you mean 'leonardo'? known: alps, "],
        ),
        (
            "--strategy=dp --model=tiny --devices=8",
            ["slurm needs --system, the cluster; unknown system ''; known: alps, "],
        ),
        (
            "--system=leonardo --strategy=dp --model=tiny --devices=257",
            [
                "257 devices don't make whole nodes of leonardo, which have 4 each; "
                "nearest: 256 (64 nodes) and 260 (65 nodes)"
            ],
        ),
        (
            "--system=lumi_g --strategy=dp --model=tiny --devices=3",
            ["3 devices don't make whole nodes of lumi_g, which have 8 each; nearest: 8 (1 node)"],
        ),
        (
            "--system=leonardo --strategy=dp --model=tiny --devices=1028",
            [
                "1,028 devices are 257 nodes; a job on partition boost_usr_prod can have 256: "
                "1,024 devices"
            ],
        ),
        (
            "--system=leonardo --partition=other --strategy=dp --model=tiny --devices=3457 "
            "--per_node=1",
            ["3,457 devices are 3,457 nodes; a job on leonardo can have 3,456: 3,456 devices"],
        ),
        (
            "--system=alps --strategy=dp --model=tiny --devices=10 --per_node=5",
            ["--per_node is 5; a node of alps has 4"],
        ),
        (
            "--system=generic_cpu --strategy=dp --model=tiny --devices=8|7",
            ["7 devices don't make whole nodes of generic_cpu, which have 2 each; nearest: "],
        ),
        (
            "--system=leonardo --strategy=dp --model=tiny --devices=8 --account=a;b --qos=$(x) "
            "--partition=a,b --time_limit=1h --per_node=0 --cpus_per_task=x --array=maybe "
            "--script=/proc/none/job.sh",
            [
                "--array is 'maybe'; it must be true or false",
                "--per_node is '0'; it must be a whole number from 1 to 10,000",
                "--cpus_per_task is 'x'; it must be a whole number from 1 to 10,000",
                "can't write the script to '/proc/none/job.sh': No such file or directory",
                "--account is 'a;b'; a name has letters, digits and _ . @ + - only",
                "--partition is 'a,b'; a name has ",
                "--qos is '$(x)'; a name has ",
                "--time_limit is '1h'; it must be minutes, or as in 02:30:00 or 1-12:00:00 ",
            ],
        ),
        (
            "--system=leonrdo --strategy=dpp --model=tiny --devices=9 --time_limit=soon --script=/",
            [
                "unknown system 'leonrdo'; did you mean 'leonardo'?",
                "unknown strategy 'dpp'",
                "--script is '/', a folder; name a file in it",
                "--time_limit is 'soon'",
            ],
        ),
        (
            "--system=leonardo --strategy=dp --model=tiny --devices=8 --submit",
            [
                "--submit needs --account on leonardo",
                "--submit needs sbatch, which is not on the PATH: call it on a login node",
            ],
        ),
        (
            "--system=leonardo --strategy=dp --model=tiny --format=json",
            ["slurm has no flag '--format'", "the number of ranks is missing"],
        ),
        (
            "--system=leonardo --strategy=dp --model=tiny --devices=8 --out='a\nrm'",
            ["flags have characters that can't be printed; a job script can't hold them"],
        ),
        (
            "--system=leonardo --strategy=dp --model=tiny --devices=8 --processes=2 "
            "--coordinator=n1:4000 --num_processes=8 --process_id=0",
            [
                "a job script takes no --processes, --coordinator, --num_processes, --process_id: "
                "srun starts the processes, one per device"
            ],
        ),
        (
            "--system=leonardo --strategy=dp --model=tiny --devices=8|16 --processes=2 "
            "--coordinator_port=abc",
            ["a job script takes no --processes: srun", "--coordinator_port is 'abc'; it must be"],
        ),
        (
            "--system=leonardo --strategy=dp --model=tiny --devices=8 --time_limit=1",
            ["--time_limit is '1'; it must be at least 3 minutes, as in 00:03:00: Slurm sends"],
        ),
    ],
)
def test_all_that_is_wrong_is_told_at_once(
    words: str,
    faults: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    split = shlex.split(re.sub(r"[|;]|\$\(x\)", lambda found: f"'{found[0]}'", words))
    assert guarded("slurm", slurm, split) == 2  # type: ignore[arg-type]
    output = capsys.readouterr()
    told = output.err.splitlines()
    assert output.out == ""
    if len(faults) > 1:
        assert told.pop(0) == f"jaxbench slurm: {len(told)} faults:"
    assert len(told) == len(faults), told
    for fault in faults:
        assert any(fault in line for line in told), (fault, told)


def test_a_generic_system_in_a_flagfile(tmp_path: Path) -> None:
    (tmp_path / "x.flags").write_text("--system=generic_cpu\n--strategy=dp\n--model=tiny\n")
    with pytest.raises(InputError, match="--system=generic_cpu belongs on the command line"):
        slurm.read([f"--flagfile={tmp_path}/x.flags", "--devices=8"])


@pytest.mark.parametrize(
    "limit", "30 5:00 0:30:00 100:00:00 2-0 2-12:30 1-0:0:0 3 0:03:00 0-0:3 0".split()
)
def test_time_limits_are_sbatch_s(limit: str) -> None:
    job = Job(system=GENERIC["generic_cpu"], steps=(), time_limit=limit)
    assert choice_faults(job) == []


@pytest.mark.parametrize("limit", ["1", "2", "2:59", "0:02:59", "0-0:2", "0-0:1:60"])
def test_jobs_are_not_ended_as_they_begin(limit: str) -> None:
    """SIGTERM comes 60 s before the limit, or up to 60 s earlier still."""
    (fault,) = choice_faults(Job(system=GENERIC["generic_cpu"], steps=(), time_limit=limit))
    assert f"--time_limit is '{limit}'; it must be at least 3 minutes" in fault


# What the script does: run by bash, with a false srun that notes how it is called


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Path]:
    """A folder with srun and jaxbench; srun exits with the codes in `codes`, one a call."""
    for name in ("srun", "jaxbench"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            "#!/bin/bash\n"
            f'printf "%s\\0" "$@" >>"{tmp_path}/calls"; printf "\\n" >>"{tmp_path}/calls"\n'
            f'env | grep -E "^(JAX|NCCL|FI|MPICH|CUDA)_" | sort >"{tmp_path}/env"\n'
            f'code=$(head -1 "{tmp_path}/codes"); sed -i 1d "{tmp_path}/codes"\n'
            'exit "${code:-0}"\n'
        )
        path.chmod(0o755)
    (tmp_path / "codes").write_text("")
    yield tmp_path


def execute(bench: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{bench}/bin:{os.environ['PATH']}"
    return subprocess.run(
        ["bash"],
        input=text,
        cwd=bench,
        env={"PATH": path, **env},
        capture_output=True,
        text=True,
        timeout=20,
    )


def calls(bench: Path) -> list[list[str]]:
    return [line.split("\0")[:-1] for line in (bench / "calls").read_text().split("\n")[:-1]]


def test_one_run(bench: Path) -> None:
    done = execute(bench, script(CASES["alps"]))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (call,) = calls(bench)
    assert call[:5] == [
        "--nodes=16",
        "--ntasks=64",
        "--ntasks-per-node=4",
        "--cpus-per-task=72",
        "--kill-on-bad-exit=1",
    ]
    assert call[call.index("jaxbench") :] == [
        *("jaxbench", "run", "--flagfile=flags/quickstart.flags", "--system=alps"),
        *("--devices=64", "--expect_devices=64", "--out=results"),
    ]
    env = (bench / "env").read_text().splitlines()
    assert "NCCL_NET=AWS Libfabric" in env and "NCCL_PROTO=^LL128" in env
    assert len(env) == len(SLURM_SYSTEMS["alps"].environment)


@pytest.mark.parametrize(("per_node", "seen"), [("", "0,1,2,3"), ("1", "0"), ("2", "0,1")])
def test_processes_of_jupiter_see_the_devices_that_are_used(
    bench: Path, per_node: str, seen: str
) -> None:
    words = CASES["jupiter"] + (f" --per_node={per_node}" if per_node else "")
    assert execute(bench, script(words)).returncode == 0
    assert f"CUDA_VISIBLE_DEVICES={seen}" in (bench / "env").read_text().splitlines()


def test_a_failed_run_is_the_job_s_failure(bench: Path) -> None:
    (bench / "codes").write_text("7\n")
    assert execute(bench, script(CASES["leonardo"])).returncode == 7


def test_a_sweep_goes_on_after_a_failure(bench: Path) -> None:
    (bench / "codes").write_text("0\n1\n")
    done = execute(bench, script(CASES["sweep"]))
    assert (done.returncode, done.stdout) == (1, "1 of 4 runs failed\n")
    made = calls(bench)
    assert sorted(call[0] for call in made) == ["--nodes=16"] * 2 + ["--nodes=32"] * 2
    for call in made:
        nodes, devices = int(call[0].partition("=")[2]), int(call[1].partition("=")[2])
        assert devices == 4 * nodes and f"--devices={devices}" in call
        assert call[-1] == "--out=/scratch/me/results"
    (bench / "codes").write_text("")
    assert execute(bench, script(CASES["sweep"])).returncode == 0


def test_a_sweep_stops_when_the_job_is_ended(bench: Path) -> None:
    (bench / "codes").write_text("0\n143\n")
    done = execute(bench, script(CASES["sweep"]))
    assert done.returncode == 143 and len(calls(bench)) == 2
    assert done.stderr == "terminated: the runs that are left are not started\n"


def test_the_words_of_a_sweep_are_those_that_jaxbench_sweep_knows(bench: Path) -> None:
    """So `jaxbench sweep` finds the records, and doesn't run these cells again."""
    from jaxbench.cli import sweep

    execute(bench, script(CASES["sweep"]))
    cells = sweep.read(
        ["--system=leonardo", "--flagfile=flags/tiny_dp.flags", "--devices=64|128"]
    ).cells
    made = {tuple(call[call.index("run") + 1 : -1]) for call in calls(bench)}
    assert made == {tuple(cell.words) for cell in cells}


def test_an_array_s_task_does_its_own_part(bench: Path) -> None:
    text = script(CASES["array"])
    assert "#SBATCH --array=0-1\n" in text
    for task in ("0", "1"):
        assert execute(bench, text, SLURM_ARRAY_TASK_ID=task).returncode == 0
    first, second = calls(bench)
    assert {word for word in first + second if "buckets" in word} == {"--buckets=1", "--buckets=8"}
    assert (first[-1], second[-1]) == ("--out=results/0", "--out=results/1")
    done = execute(bench, text, SLURM_ARRAY_TASK_ID="2")
    assert (done.returncode, done.stderr) == (2, "there is no task 2\n")


def test_it_says_that_jaxbench_is_missing(bench: Path) -> None:
    (bench / "bin" / "jaxbench").unlink()
    done = subprocess.run(
        ["/bin/bash"],
        input=script(CASES["generic_cpu"]),
        env={"PATH": str(bench / "bin")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and not (bench / "calls").exists()
    assert done.stderr.startswith("jaxbench is not on the PATH: load it in the lines above")


@settings(max_examples=40)
@given(
    st.lists(
        st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=9)
    )
)
def test_flags_arrive_as_they_were_given(words: list[str]) -> None:
    steps = (Step(tuple(words), 2), Step((*words, "x"), 4))
    for chosen in (steps[:1], steps):
        job = Job(system=GENERIC["generic_cpu"], steps=chosen, out="a 'b' $c")
        if choice_faults(job):  # some spaces can't be printed
            return
        text = "srun() { printf '%s\\0' \"$@\"; echo; }\njaxbench() { :; }\n" + job_script(job)
        done = subprocess.run(["bash"], input=text, capture_output=True, text=True, timeout=20)
        said = done.stdout.split("\n")[: len(chosen)]
        for line, step in zip(said, chosen, strict=True):
            call = line.split("\0")[:-1]
            assert call[call.index("run") + 1 :] == [*step.words, "--out=a 'b' $c"]


# The command


def test_it_prints_or_writes_the_script(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(CASES["leonardo"])
    assert guarded("slurm", slurm, words) == 0  # type: ignore[arg-type]
    output = capsys.readouterr()
    assert output.out == (GOLDEN / "leonardo.sh").read_text()
    assert output.err == ("note: put your account in place of FILL_IN_ACCOUNT, or give --account\n")
    monkeypatch.chdir(tmp_path)
    assert guarded("slurm", slurm, [*words, "--script=job.sh", "--account=me"]) == 0  # type: ignore[arg-type]
    output = capsys.readouterr()
    assert (output.out, output.err) == ("script: job.sh\n", "")
    assert "#SBATCH --account=me\n" in (tmp_path / "job.sh").read_text()
    assert os.access(tmp_path / "job.sh", os.X_OK)
    assert [path.name for path in tmp_path.iterdir()] == ["job.sh"]


def test_devices_that_would_idle_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded("slurm", slurm, shlex.split(CASES["sweep"].replace("|", "'|'"))) == 0  # type: ignore[arg-type]
    assert "note: runs take 16 to 32 nodes and every one waits for 32" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "job.sh"])
def test_submitting(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/sh\ncat ${1:--} >given\necho "Submitted batch job 17"\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    words = [
        *shlex.split(CASES["generic_cpu"]),
        "--submit",
        *([f"--script={name}"] if name else []),
    ]
    assert guarded("slurm", slurm, words) == 0  # type: ignore[arg-type]
    said = capsys.readouterr().out.splitlines()
    assert said == ([f"script: {name}"] if name else []) + ["Submitted batch job 17"]
    assert "srun --nodes=4 --ntasks=8" in (tmp_path / "given").read_text()

    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n")
    assert guarded("slurm", slurm, words) == 1  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert told == "jaxbench slurm: sbatch refused: sbatch: error: invalid partition\n"
