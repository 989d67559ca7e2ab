"""predict the step of strategies, or of a function of yours, on any system; needs no devices.

The program that would run is followed through time on all ranks. Its collectives take what the
links of the system allow, where the ranks are placed.

examples:
  jaxbench simulate --system=jupiter --flagfile=flags/paper_dp_pp_tp_llama3_70b.flags --devices=2400
  jaxbench simulate --system=leonardo --runs=paper_dp_vit_h14 --devices=64 --placement=inter-group
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxbench.cli.command import read_command
from jaxbench.cli.fits import read_fits_flag
from jaxbench.cli.flags import EXPERIMENT_FLAGS, WHERE_FLAGS
from jaxbench.cli.own_program import is_own_program, simulate_own_program
from jaxbench.errors import InputError, unknown

if TYPE_CHECKING:  # JAX is imported when it is needed
    from jaxbench.readings.predict import Prediction

FORMATS = ("text", "json")
FILES = ("timeline", "chakra")
FLAGS = (*EXPERIMENT_FLAGS, *WHERE_FLAGS, "fits", *FILES, "runs", "format", "flagfile")
STARTS_BACKEND = False


def main(words: Sequence[str]) -> int:
    """Print the prediction of each experiment: tables, or one JSON document per line."""
    if is_own_program(words):
        return simulate_own_program(words)
    command = read_command("simulate", words, FLAGS)
    values, experiments = command.values, command.experiments
    faults = list(command.faults)
    if values["format"] not in FORMATS:
        faults.append(unknown("format", values["format"], FORMATS))
    fits, fit_faults = read_fits_flag(values["fits"])
    faults += [*fit_faults, *file_faults(values, len(experiments))]
    if faults:
        raise InputError(faults)

    from jaxbench.readings.predict import predict_system
    from jaxbench.readings.ranks import Ranks
    from jaxbench.report.simulate_table import print_predictions
    from jaxbench.report.timeline import representative_ranks

    predictions = []
    for _, experiment in experiments:
        record = representative_ranks(Ranks(experiment.mesh)) if values["timeline"] else ()
        try:
            predictions.append(
                predict_system(
                    experiment,
                    experiment.system,
                    **{name: values[name] for name in WHERE_FLAGS},
                    fits=fits,
                    record=record,
                )
            )
        except InputError as error:
            faults += [fault for fault in error.faults if fault not in faults]
    if faults:
        raise InputError(faults)
    for prediction in predictions:
        write_files(prediction, values["timeline"], values["chakra"])
    if values["format"] == "json":
        for prediction in predictions:
            print(json.dumps(prediction.to_json()))
    else:
        print_predictions(predictions)
    return 0


def file_faults(values: dict[str, str], experiments: int) -> list[str]:
    """Return why --timeline or --chakra can't be written."""
    from jaxbench.report.chakra import chakra_faults
    from jaxbench.report.timeline import timeline_faults

    faults = [
        f"--{name} takes one experiment, but --runs names {experiments}"
        for name in FILES
        if values[name] and experiments > 1
    ]
    faults += timeline_faults(values["timeline"]) if values["timeline"] else []
    return faults + (chakra_faults(values["chakra"]) if values["chakra"] else [])


def write_files(prediction: Prediction, timeline: str, chakra: str) -> None:
    """Write the timeline to a file and the program as Chakra traces to a folder, where named."""
    from jaxbench.readings.ranks import Ranks
    from jaxbench.report.chakra import write_chakra
    from jaxbench.report.timeline import write_timeline

    ranks, title = Ranks(prediction.experiment.mesh), prediction.experiment.describe()
    closed = prediction.traced.closed
    if timeline:
        write_timeline(
            timeline, prediction.simulation, ranks, prediction.semantics, closed, title=title
        )
    if chakra:
        write_chakra(chakra, prediction.experiment.strategy, closed, ranks)
