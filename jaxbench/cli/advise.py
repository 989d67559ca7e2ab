"""say which strategy and mesh shape trains a model fastest on a system; needs no devices.

Every strategy, mesh shape and option that makes sense is looked at; what fits into memory is
simulated and ranked. A flag that is given stays as it is, such as --batch or --schedule.

examples:
  jaxbench advise --model=llama3_70b --system=alps --devices=512
  jaxbench advise --model=mixtral_8x7b --system=jupiter --devices=256 --strategy=dp_pp_ep --explain
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from jaxbench.axes import STRATEGY_AXES
from jaxbench.catalog.systems import find_system
from jaxbench.cli.command import read_call
from jaxbench.cli.fits import read_fits_flag
from jaxbench.cli.flags import WHERE_FLAGS
from jaxbench.errors import InputError, unknown
from jaxbench.experiment import Experiment
from jaxbench.table import is_terminal

FORMATS = ("text", "json")
EXPERIMENT = (
    "model",
    "system",
    "devices",
    "axis_order",
    "batch",
    "seq_len",
    "dtype",
    "grad_dtype",
    "buckets",
    "units",
    "reshard_after_forward",
    "microbatches",
    "schedule",
    "chunks",
    "head_placement",
    "sequence_parallel",
    "top_k",
    "convention",
    "mfu",
    "memory_efficiency",
    "recompute",
    "forward_s",
    "backward_s",
    "seed",
)
FLAGS = ("strategy", *EXPERIMENT, *WHERE_FLAGS, "fits", "explain", "top", "format", "flagfile")
STARTS_BACKEND = False


def main(words: Sequence[str]) -> int:
    """Print the advice; return 0 also if nothing fits, which is an answer."""
    call = read_call("advise", words, FLAGS)
    values, faults = call.values, list(call.faults)
    if values["format"] not in FORMATS:
        faults.append(unknown("format", values["format"], FORMATS))
    strategies, strategy_faults = read_strategies(values["strategy"])
    top, top_faults = read_top(values["top"])
    fits, fit_faults = read_fits_flag(values["fits"])
    given = {name: values[name] for name in EXPERIMENT if values[name]}
    base, experiment_faults = read_base(given)
    faults += [*strategy_faults, *experiment_faults, *top_faults, *fit_faults]

    from jaxbench.readings.advise import advise, predictor_on

    predictor = None
    if base is not None and not fit_faults:
        where = {name: values[name] for name in WHERE_FLAGS}
        try:
            predictor = predictor_on(values["system"], base, fits, **where)
        except InputError as error:
            faults += error.faults
    if faults or base is None or predictor is None:
        raise InputError(faults)

    system = find_system(values["system"])
    advice = advise(
        base,
        given,
        predictor,
        scale_up=system.devices_per_node * system.node.nodes,
        strategies=strategies,
        progress=_show_progress,
    )
    timeline = None
    if values["explain"] == "true" and advice.winner is not None:
        from jaxbench.readings.ranks import Ranks
        from jaxbench.report.advise_gantt import shown_ranks

        experiment = advice.winner.candidate.experiment
        timeline = predictor(experiment, record=shown_ranks(Ranks(experiment.mesh)))
    if values["format"] == "json":
        print(json.dumps(advice.to_json()))
        return 0
    from jaxbench.report.advise_table import print_advice

    print_advice(advice, top, timeline)
    return 0


def read_strategies(text: str) -> tuple[tuple[str, ...], list[str]]:
    """Return the strategies to try, all if none is named, and what is wrong with the names."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    faults = [
        unknown("strategy", name, STRATEGY_AXES) for name in names if name not in STRATEGY_AXES
    ]
    return names or tuple(STRATEGY_AXES), faults


def read_top(text: str) -> tuple[int, list[str]]:
    """Return how many rows to show, or what is wrong."""
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        return 0, [f"--top is '{text}'; it must be a whole number of at least 1"]
    return int(text), []


def read_base(given: dict[str, str]) -> tuple[Experiment | None, list[str]]:
    """Return the experiment that all candidates are variants of, or what is wrong with it."""
    faults = []
    if "system" not in given:
        faults.append("--system is missing: the machine to train on, as in --system=alps")
    if "devices" not in given:
        faults.append("--devices is missing: how many to train on, as in --devices=512")
    try:
        base = Experiment.from_flags({"strategy": "dp", "devices": "1", **given})
    except InputError as error:
        return None, faults + list(error.faults)
    return (None if faults else base), faults


def _show_progress(simulated: int) -> None:
    if is_terminal(sys.stderr):
        print(f"\r{simulated} simulated", end="\r", file=sys.stderr, flush=True)
