"""say what strategies will communicate, compute and keep in memory; needs no devices.

Of a shard_map function of yours, too: jaxbench plan module:function (see examples/).

examples:
  jaxbench plan --flagfile=flags/tiny_dp.flags
  jaxbench plan --flagfile=flags/paper_dp_pp_tp_llama3_70b.flags --devices=1024 --format=json
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from jaxbench.cli.command import read_command
from jaxbench.cli.flags import EXPERIMENT_FLAGS
from jaxbench.cli.own_program import is_own_program, plan_own_program
from jaxbench.errors import InputError, unknown

FORMATS = ("text", "json")
FLAGS = (*EXPERIMENT_FLAGS, "runs", "format", "flagfile")
STARTS_BACKEND = False


def main(words: Sequence[str]) -> int:
    """Print the plan of each experiment: text, or one JSON document per line."""
    if is_own_program(words):
        return plan_own_program(words)
    command = read_command("plan", words, FLAGS)
    format_ = command.values["format"]
    faults = list(command.faults)
    if format_ not in FORMATS:
        faults.append(unknown("format", format_, FORMATS))
    if faults:
        raise InputError(faults)

    from jaxbench.readings.plan import plan_experiment
    from jaxbench.report.plan_text import render

    for index, (_, experiment) in enumerate(command.experiments):
        plan = plan_experiment(experiment)
        if format_ == "json":
            print(json.dumps(plan.to_json()))
        else:
            print(*([""] if index else []), render(plan), sep="\n")
    return 0
