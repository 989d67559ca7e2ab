"""The job script of a benchmark: a pure function of what is to be run and where.

Steps come one after the other in one job, or each as a task of a job array. Nothing here looks at
the machine: any machine can write the script of any other.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxbench.launch.slurm_systems import MANUAL, Line, SlurmSystem

ACCOUNT_PLACEHOLDER = "FILL_IN_ACCOUNT"
GRACE_S = 60  # before the time limit; Slurm's own KillWait is often 30 s
LEAST_LIMIT_S = 180  # sbatch may signal up to 60 s before GRACE_S
WIDTH = 98
FROM = "source of what follows: "

_NAME = re.compile(r"[\w.@+-]+")  # what Slurm's names are made of
_TIMES = {  # as sbatch reads them, and the seconds of each number
    r"(\d+)": (60,),
    r"(\d+):(\d{1,2})": (60, 1),
    r"(\d+):(\d{1,2}):(\d{1,2})": (3600, 60, 1),
    r"(\d+)-(\d{1,2})": (86400, 3600),
    r"(\d+)-(\d{1,2}):(\d{1,2})": (86400, 3600, 60),
    r"(\d+)-(\d{1,2}):(\d{1,2}):(\d{1,2})": (86400, 3600, 60, 1),
}


@dataclass(frozen=True)
class Step:
    """One `jaxbench run`: its flags without --out, and the devices that it takes."""

    words: tuple[str, ...]
    devices: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the script is to run, and the user's own choices; '' or None means the system's."""

    system: SlurmSystem
    steps: tuple[Step, ...]
    array: bool = False
    account: str = ""
    partition: str = ""
    qos: str = ""
    time_limit: str = "00:30:00"
    per_node: int | None = None
    cpus_per_task: int | None = None
    out: str = "results"
    written_by: str = "jaxbench slurm"

    @property
    def devices_per_node(self) -> int:
        """Devices of a node, each with a process of its own."""
        return self.per_node or self.system.devices_per_node

    def nodes(self, step: Step) -> int:
        """Nodes of a step."""
        return -(-step.devices // self.devices_per_node)

    @property
    def most_nodes(self) -> int:
        """Nodes of the job: of its largest step."""
        return max(map(self.nodes, self.steps))


def choice_faults(job: Job) -> list[str]:
    """Return what is wrong with the user's choices on any cluster."""
    faults = []
    for name in ("account", "partition", "qos"):
        text = getattr(job, name)
        if text and not _NAME.fullmatch(text):
            faults.append(f"--{name} is '{text}'; a name has letters, digits and _ . @ + - only")
    limit = _seconds(job.time_limit)
    if limit is None:
        faults.append(
            f"--time_limit is '{job.time_limit}'; it must be minutes, or as in 02:30:00 or "
            "1-12:00:00 (days-hours:minutes:seconds)"
        )
    elif 0 < limit < LEAST_LIMIT_S:  # 0 is none
        faults.append(
            f"--time_limit is '{job.time_limit}'; it must be at least 3 minutes, as in 00:03:00: "
            "Slurm sends SIGTERM one to two minutes before it"
        )
    words = [word for step in job.steps for word in step.words]
    if not all(text.isprintable() for text in (*words, job.out, job.written_by)):
        faults.append("flags have characters that can't be printed; a job script can't hold them")
    return faults


def _seconds(limit: str) -> int | None:
    """Return a time limit's seconds; None if it is none."""
    for form, units in _TIMES.items():
        if found := re.fullmatch(form, limit, re.ASCII):
            return sum(int(text) * unit for text, unit in zip(found.groups(), units, strict=True))
    return None


def size_faults(job: Job) -> list[str]:
    """Return why the cluster would refuse the job, or leave devices of it idle."""
    faults = []
    per_node, system = job.devices_per_node, job.system
    known = system.nodes is not None  # the generic clusters' nodes are what the user says
    if known and per_node > system.devices_per_node:
        faults.append(
            f"--per_node is {per_node}; a node of {system.name} has {system.devices_per_node}"
        )
    counts = sorted({step.devices for step in job.steps})
    faults += [
        _part_of_a_node(count, per_node, system.name) for count in counts if count % per_node
    ]
    limited = not job.partition and not job.qos
    limit = system.most_nodes if limited else system.nodes
    if limit is not None and job.steps and job.most_nodes > limit:
        where = f"partition {system.partition}" if limited and system.partition else system.name
        faults.append(
            f"{counts[-1]:,} devices are {job.most_nodes:,} nodes; a job on {where} can have "
            f"{limit:,}: {limit * per_node:,} devices"
        )
    return faults


def _part_of_a_node(count: int, per_node: int, name: str) -> str:
    """Say that devices don't make whole nodes, and which numbers nearby do."""
    below, above = count // per_node * per_node, (count // per_node + 1) * per_node
    near = [
        f"{n:,} ({n // per_node:,} {_plural('node', n // per_node)})" for n in (below, above) if n
    ]
    return (
        f"{count:,} devices don't make whole nodes of {name}, which have {per_node} each; "
        f"nearest: {' and '.join(near)}"
    )


def job_script(job: Job) -> str:
    """Return the text of the script; the job has no faults."""
    return "\n".join([*_head(job), "", *_prepare(job), "", *_run(job), ""])


def _head(job: Job) -> Iterator[str]:
    """Yield the first lines: who wrote it, and what sbatch reads."""
    system, nodes = job.system, job.most_nodes
    what = f"{job.devices_per_node * nodes:,} devices, {nodes:,} {_plural('node', nodes)}"
    yield "#!/bin/bash"
    yield f"# jaxbench on {system.title}: {what}"
    yield f"# Written by: {job.written_by}"
    count = len(job.steps)
    yield f"#SBATCH --job-name=jaxbench-{system.name}"
    if system.account or job.account:
        yield f"#SBATCH --account={job.account or ACCOUNT_PLACEHOLDER}"
    if partition := job.partition or system.partition:
        yield f"#SBATCH --partition={partition}"
    if qos := job.qos or ("" if job.partition else system.qos(nodes)):
        yield f"#SBATCH --qos={qos}"
    yield f"#SBATCH --nodes={nodes}"
    yield from _comment("one process per device")
    yield f"#SBATCH --ntasks-per-node={job.devices_per_node}"
    yield f"#SBATCH --cpus-per-task={_cpus(job)}"
    for line, reason in _reasons(system.directives):
        yield from reason
        yield f"#SBATCH {_filled(line, job)}"
    yield f"#SBATCH --time={job.time_limit}"
    yield from _comment(f"SIGTERM {GRACE_S} s before that: what was measured until then is kept")
    yield f"#SBATCH --signal=TERM@{GRACE_S}"
    if job.array:
        yield f"#SBATCH --array=0-{count - 1}"
        yield "#SBATCH --output=jaxbench-%A_%a.out"
    else:
        yield "#SBATCH --output=jaxbench-%j.out"


def _prepare(job: Job) -> Iterator[str]:
    """Yield what comes before the first step."""
    yield "set -euo pipefail"
    yield "# What jaxbench needs; sbatch hands on the environment in which it is called, too."
    for line in job.system.setup:
        yield f"# {line}"
    yield "if ! command -v jaxbench >/dev/null; then"
    yield '    echo "jaxbench is not on the PATH: load it in the lines above this one" >&2'
    yield "    exit 1"
    yield "fi"
    yield ""
    for line, reason in _reasons(job.system.environment):
        yield from reason
        yield f"export {_filled(line, job)}"


def _run(job: Job) -> Iterator[str]:
    """Yield the steps."""
    if len(job.steps) == 1 and not job.array:
        (step,) = job.steps
        yield from _srun_reasons(job)
        yield _command(_srun(job, str(job.nodes(step)), str(step.devices)), step.words, job.out)
        return
    yield from _srun_reasons(job)
    yield "step() { # number of devices, then the flags of one run"
    yield f"    local devices=$1 nodes=$(($1 / {job.devices_per_node}))"
    yield "    shift"
    yield "    " + _joined([*_srun(job, '"$nodes"', '"$devices"'), "jaxbench run", '"$@"'], 4)
    yield "}"
    yield ""
    if job.array:
        yield from _comment(
            "every task has a folder of its own: not all shared file systems lock files"
        )
        yield f'out={shlex.quote(job.out)}/"$SLURM_ARRAY_TASK_ID"'
        yield 'case "$SLURM_ARRAY_TASK_ID" in'
        for number, step in enumerate(job.steps):
            yield f'    {number}) step {step.devices} {shlex.join(step.words)} --out="$out" ;;'
        yield "    *)"
        yield '        echo "there is no task $SLURM_ARRAY_TASK_ID" >&2'
        yield "        exit 2"
        yield "        ;;"
        yield "esac"
        return
    yield "failed=0"
    yield "try() { # a run that fails costs itself only, unless the job is being ended"
    yield "    local code=0"
    yield '    step "$@" || code=$?'
    yield '    if [ "$code" = 143 ]; then'
    yield '        echo "terminated: the runs that are left are not started" >&2'
    yield "        exit 143"
    yield "    fi"
    yield '    if [ "$code" != 0 ]; then'
    yield "        failed=$((failed + 1))"
    yield "    fi"
    yield "}"
    yield ""
    yield f"out={shlex.quote(job.out)}"
    for step in job.steps:
        yield f'try {step.devices} {shlex.join(step.words)} --out="$out"'
    yield f'echo "$failed of {len(job.steps)} runs failed"'
    yield '[ "$failed" = 0 ]'


def _srun(job: Job, nodes: str, tasks: str) -> list[str]:
    """Return srun with its options. Steps don't inherit all of sbatch's, so all are given."""
    return [
        "srun",
        f"--nodes={nodes}",
        f"--ntasks={tasks}",
        f"--ntasks-per-node={job.devices_per_node}",
        f"--cpus-per-task={_cpus(job)}",
        "--kill-on-bad-exit=1",
        *(_filled(line, job) for line in job.system.srun),
    ]


def _srun_reasons(job: Job) -> Iterator[str]:
    """Yield why srun has its options, as comments."""
    why = "a process that fails ends its run: the others would wait for it"
    lines = [Line("--kill-on-bad-exit=1", why, MANUAL), *job.system.srun]
    named = [line._replace(why=f"{line.text.partition('=')[0]}: {line.why}") for line in lines]
    for _, reason in _reasons(named):
        yield from reason


def _command(srun: Sequence[str], words: Sequence[str], out: str) -> str:
    return _joined([*srun, "jaxbench run", *map(shlex.quote, words), f"--out={shlex.quote(out)}"])


def _joined(words: Sequence[str], indent: int = 0) -> str:
    """Join the words of a command, over several lines where one would be too long."""
    lines, last = [], ""
    for word in words:
        if last and len(last) + len(word) + indent + 3 > WIDTH:
            lines.append(last)
            last = "    " + word
        else:
            last = f"{last} {word}" if last else word
    return f" \\\n{' ' * indent}".join([*lines, last])


def _cpus(job: Job) -> int:
    return job.cpus_per_task or job.system.cpus_per_task


def _filled(line: Line, job: Job) -> str:
    per_node = job.devices_per_node
    return line.text.format(per_node=per_node, numbers=",".join(map(str, range(per_node))))


def _reasons(lines: Sequence[Line]) -> Iterator[tuple[Line, list[str]]]:
    """Yield each line with the comments that go before it: the reason, and a new source."""
    source = None
    for line in lines:
        from_there = [] if line.source == source else [*_comment(f"{FROM}{line.source}")]
        source = line.source
        yield line, from_there + [*_comment(line.why)]


def _comment(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, WIDTH - 2, break_long_words=False, break_on_hyphens=False):
        yield f"# {line}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
