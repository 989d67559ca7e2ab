"""All flags of all subcommands, and how a list of words becomes their values.

A flag is a row of FLAGS and has one meaning in every subcommand that takes it. Values are
strings as given, checked where they are used, so that all faults are told at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from absl import flags as absl_flags


class Flag(NamedTuple):
    """One flag; `default` None is shown as the default of the experiment's field."""

    help: str
    default: str | None = None
    boolean: bool = False


FLAGS: dict[str, Flag] = {
    # What is run
    "strategy": Flag("dp, fsdp, dp_pp, dp_pp_tp or dp_pp_ep"),
    "model": Flag("row of the model catalog, such as llama3_8b; an unknown one lists all"),
    "hardware": Flag("device whose compute time is imitated, such as a100_80"),
    "system": Flag("machine of meshes/, such as dgx_a100; implies --hardware"),
    "mesh": Flag("axis sizes, as in data=2,pipeline=4; without data, data = devices / product"),
    "devices": Flag("number of ranks; on CPU, as many virtual devices"),
    "axis_order": Flag("rank order of the mesh axes, outermost first"),
    "batch": Flag("samples per data-parallel rank and step"),
    "seq_len": Flag("tokens per sample; the model's if not given"),
    "dtype": Flag("element type of parameters and activations; collectives: one or several"),
    "grad_dtype": Flag("element type of gradients on the wire; --dtype if not given"),
    # Options of strategies
    "buckets": Flag("dp: gradient buckets"),
    "units": Flag("fsdp: units of parameters"),
    "reshard_after_forward": Flag("fsdp: gather again in the backward pass", boolean=True),
    "microbatches": Flag("dp_pp*: microbatches per step"),
    "schedule": Flag("dp_pp*: gpipe, 1f1b or interleaved"),
    "chunks": Flag("dp_pp*: chunks of layers per stage (interleaved)"),
    "head_placement": Flag("dp_pp*: embedding and head 'even' over stages, or at the 'ends'"),
    "sequence_parallel": Flag("dp_pp_tp: all-gather and reduce-scatter", boolean=True),
    "top_k": Flag("experts per token; the model's if not given"),
    # Time and scale
    "convention": Flag("'true', or 'dlnetbench' for the original's formulas"),
    "mfu": Flag("model FLOPs utilisation; the hardware's if not given"),
    "memory_efficiency": Flag("share of the memory bandwidth that is reached"),
    "recompute": Flag("full recomputation: backward 3 x forward, not 2 x", boolean=True),
    "forward_s": Flag("forward seconds of the whole model, instead of the timing model's"),
    "backward_s": Flag("backward seconds of the whole model, beside --forward_s"),
    "time_scale": Flag("factor on all compute seconds"),
    "size_scale": Flag("factor on all element counts"),
    "padding": Flag("of shards: 'exact', or to 'tpu' tiles (1.7 % at most from 123,000 elements)"),
    # The run
    "payload": Flag("what stands for compute: auto, matmul, sleep or none"),
    "steps": Flag("timed steps"),
    "warmup": Flag("steps before them, at least 2"),
    "min_seconds": Flag("seconds of timed steps to take at least, beside --steps"),
    "until_ci": Flag("more steps until the median's interval is within this share, as in 2%"),
    "max_steps": Flag("steps after which --until_ci is given up"),
    "profile": Flag(
        "record and read an XLA trace of some steps after the timed ones", boolean=True
    ),
    "decompose": Flag("measure the variants that say where the time goes", boolean=True),
    "inject_delay": Flag("extra compute of ranks a step, as in 3:500 (rank:microseconds)"),
    "seed": Flag("seed of everything random"),
    "expect_devices": Flag("fail unless JAX has exactly this many devices"),
    "runs": Flag("flagfiles to run in turn, as in tiny_dp,tiny_fsdp; other flags apply to each"),
    "out": Flag("folder of the results; one JSON line per run is added to runs.jsonl", "results"),
    # Many processes
    "processes": Flag("start so many processes on this host, each with a share of the devices"),
    "coordinator": Flag("host:port of process 0, where neither srun nor Open MPI tells"),
    "num_processes": Flag("how many processes there are, beside --coordinator"),
    "process_id": Flag("number of this process, from 0, beside --coordinator"),
    "coordinator_port": Flag("port of process 0 under srun and Open MPI; else a hash of the job"),
    "device_order": Flag("ranks by 'nearness' (switch, then host) or by 'process'", "nearness"),
    "align_steps": Flag("start every step at the same moment on all processes", "true", True),
    "silence_s": Flag("seconds without a sign of life after which a process is lost", "10"),
    "stage_limits": Flag("seconds that stages may take, as in start=120,compile=3600,step=600"),
    # Collectives one by one
    "kinds": Flag(
        "collectives to time; broadcast, reduce and all are known too",
        "all_reduce,all_gather,reduce_scatter,all_to_all,permute",
    ),
    "axis": Flag("mesh axes to communicate over; all with more than one rank if not given"),
    "ranks": Flag("devices that make up the mesh, as in 0-3 or 0,2,4-6; the first if not given"),
    "min_bytes": Flag("smallest message; K, M, G are powers of two, kB, MB, GB of ten", "8"),
    "max_bytes": Flag("largest message", "16M"),
    "factor": Flag("from one message size to the next", "8"),
    "messages": Flag("buffers that take turns, so that caches needn't hold the next one", "1"),
    "pause_s": Flag("seconds every rank computes before each collective, as in a step", "0"),
    "fit": Flag("file to write latency and bandwidth of every collective to, as JSON"),
    # Sweeps
    "repetitions": Flag("runs of each cell, each in a process of its own", "1"),
    "cell_timeout_s": Flag("seconds after which a run is ended and the next one begins"),
    "skip_invalid": Flag("leave out cells that make no sense, and say why", boolean=True),
    "export": Flag("table of one row per run to write, ending in .csv or .parquet"),
    "export_only": Flag("run nothing: show and export what --out has", boolean=True),
    # Simulation
    "placement": Flag("where ranks are: a class such as inter-group, or nodes:n[1-4,9]"),
    "topology": Flag(
        "file of `scontrol show topology`, topology.conf or topology.yaml (FILE:NAME for one of "
        "several), instead of the system's own network"
    ),
    "partition_nodes": Flag("nodes of --topology that may be used, as a Slurm hostlist"),
    "algorithm": Flag("of collectives: auto (the cheapest), or one for all that have it", "auto"),
    "comm_streams": Flag("axis (collectives of different axes overlap) or one; by hardware"),
    "fits": Flag(
        "what jaxbench collectives --fit wrote, instead of formulas: FILE,FILE or TIER:FILE"
    ),
    "timeline": Flag("file to write the simulated timeline to, a Perfetto or Chrome trace (JSON)"),
    "chakra": Flag("folder to write the plan to as Chakra execution traces, one file a rank"),
    "explain": Flag("show the timeline of the winner", boolean=True),
    "top": Flag("rows of the ranking to show", "10"),
    "conventions": Flag("timing conventions to ask the paper's claims under", "true,dlnetbench"),
    # Slurm
    "script": Flag("file to write the job script to; standard output if not given"),
    "submit": Flag("submit the job script with sbatch", boolean=True),
    "array": Flag("a sweep as a job array, one task a run, not one after the other", boolean=True),
    "account": Flag("Slurm account of the job; a placeholder if not given"),
    "partition": Flag("Slurm partition of the job; the system's if not given"),
    "qos": Flag("Slurm quality of service; what the system needs for that size if not given"),
    "time_limit": Flag("time limit of the job, as sbatch takes it", "00:30:00"),
    "per_node": Flag("devices to use on each node; all of the system's if not given"),
    "cpus_per_task": Flag("CPUs of each process; the system's share if not given"),
    # Output
    "format": Flag("text or json; collectives: nccl too, as nccl-tests prints it", "text"),
    "fom": Flag(
        "end with a line per run for other programs: FOM status=ok ... step_s=...", boolean=True
    ),
    # Input
    "flagfile": Flag("file of flags, such as flags/quickstart.flags; the command line overrides"),
}

# absl would expand flagfiles in place, so that a flag's position decided what overrides.
_OWN_READER = ("flagfile",)

# Not fields of an experiment.
_COLLECTIVES = (
    "kinds",
    "axis",
    "ranks",
    "min_bytes",
    "max_bytes",
    "factor",
    "messages",
    "pause_s",
    "fit",
)
SWEEP_FLAGS = ("repetitions", "cell_timeout_s", "skip_invalid", "export", "export_only")
WHERE_FLAGS = ("placement", "topology", "partition_nodes", "algorithm", "comm_streams")
_SIMULATION = (
    *WHERE_FLAGS,
    *("fits", "timeline", "chakra", "explain", "top", "conventions"),
)
PROCESS_FLAGS = (
    "processes",
    "coordinator",
    "num_processes",
    "process_id",
    "coordinator_port",
    "device_order",
    "align_steps",
    "silence_s",
    "stage_limits",
)
SLURM_FLAGS = (
    "script",
    "submit",
    "array",
    "account",
    "partition",
    "qos",
    "time_limit",
    "per_node",
    "cpus_per_task",
)
COMMAND_FLAGS = (
    *("runs", "out", "format", "fom", "flagfile"),
    *(*PROCESS_FLAGS, *_COLLECTIVES, *SWEEP_FLAGS, *_SIMULATION, *SLURM_FLAGS),
)
EXPERIMENT_FLAGS = tuple(name for name in FLAGS if name not in COMMAND_FLAGS)


class Parsed(NamedTuple):
    """Flag values by name, and what was wrong with the words."""

    values: dict[str, str]
    faults: list[str]


def parse_words(words: Sequence[str], *, where: str = "") -> Parsed:
    """Read flags in any of absl's spellings: --a=b, --a b, -a=b, --boolean, --noboolean.

    The last one of a name wins. `where` is put before each fault, such as a file and line.
    """
    registry = _absl_registry()
    faults: list[str] = []
    # absl would take --undefok and drop the flags it names: here nothing is dropped silently.
    if any(word.lstrip("-").partition("=")[0] == "undefok" for word in words):
        faults.append(f"{where}unknown flag '--undefok'")
        words = [word for word in words if "undefok" not in word]
    try:
        rest = registry(["jaxbench", *words], known_only=True)[1:]
    except absl_flags.Error as error:  # the last word lacks its value
        faults.append(f"{where}{str(error).replace('flag --', '--')}")
        rest = registry(["jaxbench", *words[:-1]], known_only=True)[1:]
    previous = ""
    for word in rest:
        if word.startswith("-") and word != "-":
            faults.append(where + unknown_flag(word.lstrip("-").partition("=")[0]))
        elif not previous.startswith("-") or "=" in previous:  # else an unknown flag's value
            faults.append(f"{where}unexpected argument '{word}'; flags are written --name=value")
        previous = word
    values = {name: str(registry[name].value) for name in registry if registry[name].present}
    return Parsed(values, faults)


def split_flagfiles(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words without their --flagfile=name or --flagfile name, and those names."""
    rest: list[str] = []
    names: list[str] = []
    words = list(words)
    while words:
        word = words.pop(0)
        flag, equals, name = word.partition("=")
        if flag not in ("--flagfile", "-flagfile"):
            rest.append(word)
        elif equals:
            names.append(name)
        else:
            names.append(words.pop(0) if words else "")
    return rest, names


def split_arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that are flags or their values, and those that stand alone.

    After '--' all stand alone. An unknown flag is taken to have a value.
    """
    flags: list[str] = []
    alone: list[str] = []
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--":
            return flags, alone + words
        if not word.startswith("-") or word == "-":
            alone.append(word)
            continue
        flags.append(word)
        name = word.lstrip("-")
        boolean = any(row.boolean and name in (n, f"no{n}") for n, row in FLAGS.items())
        if "=" not in name and not boolean and words and not words[0].startswith("-"):
            flags.append(words.pop(0))
    return flags, alone


def read_boolean(name: str, text: str, faults: list[str]) -> bool:
    """Return what a boolean flag's value says ('' is False); add a fault if it says neither."""
    if text.lower() not in ("", "true", "false", "1", "0", "yes", "no"):
        faults.append(f"--{name} is '{text}'; it must be true or false")
    return text.lower() in ("true", "1", "yes")


def unknown_flag(name: str) -> str:
    """Return the fault for a flag that no subcommand has, with the nearest one."""
    spellings = [*FLAGS, *(f"no{n}" for n, flag in FLAGS.items() if flag.boolean)]
    near = difflib.get_close_matches(name.replace("-", "_"), spellings, n=1)
    return f"unknown flag '--{name}'" + (f"; did you mean '--{near[0]}'?" if near else "")


def foreign_flags(command: str, names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Return a fault for each flag that `command` doesn't take, though another one does."""
    taken = set(taken)
    return [f"{command} has no flag '--{name}'" for name in names if name not in taken]


def _absl_registry() -> absl_flags.FlagValues:
    registry = absl_flags.FlagValues()
    registry.set_gnu_getopt(True)
    for name, row in FLAGS.items():
        if name in _OWN_READER:
            continue
        flag = absl_flags.Flag(
            parser=absl_flags.ArgumentParser(),
            serializer=absl_flags.ArgumentSerializer(),
            name=name,
            default=None,
            help_string=row.help,
            boolean=row.boolean,
        )
        absl_flags.DEFINE_flag(flag, flag_values=registry, module_name="jaxbench")
    return registry
