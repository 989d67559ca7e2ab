"""run one strategy, or several in turn, on a device mesh; check, time and record them.

Before anything is timed, the collectives that XLA kept are compared with the plan and every
value with its reference. On a machine without accelerators the devices are virtual.

examples:
  jaxbench run --flagfile=flags/quickstart.flags
  jaxbench run --flagfile=flags/tiny_dp.flags --devices=2 --steps=3
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxbench.cli.command import read_command
from jaxbench.cli.flags import EXPERIMENT_FLAGS, PROCESS_FLAGS, read_boolean
from jaxbench.cli.processes import meet, same_experiments
from jaxbench.errors import InputError
from jaxbench.measure.processes import here
from jaxbench.measure.record import FILE_NAME, writable_faults

FLAGS = (*EXPERIMENT_FLAGS, "runs", *PROCESS_FLAGS, "out", "fom", "flagfile")
STARTS_BACKEND = True


def main(words: Sequence[str]) -> int:
    """Run the experiments; return 0 if all are done and their checks passed."""
    command = read_command("run", words, FLAGS)
    out = command.values["out"]
    faults = list(command.faults)
    fom = read_boolean("fom", command.values["fom"], faults)
    code = meet(command.values, "jaxbench run", faults, lambda: writable_faults(out))
    if code is not None:
        return code
    experiments = [experiment for _, experiment in command.experiments]
    same_experiments([experiment.to_dict() for experiment in experiments])

    from jaxbench.launch.start import start

    expected = [e.expect_devices for e in experiments if e.expect_devices is not None]
    faults = []
    try:
        start(max(experiment.devices for experiment in experiments), expected)
    except InputError as error:
        faults += error.faults

    import jax

    from jaxbench.measure.machine import machine_faults

    faults += machine_faults(experiments, jax.devices())
    if faults:
        raise InputError(list(dict.fromkeys(faults)))

    from jaxbench.measure.execute import run_experiments
    from jaxbench.report.figure_of_merit import figure_of_merit
    from jaxbench.report.run_table import print_runs

    records = run_experiments(experiments, out=out, command=["jaxbench", "run", *words])
    if here().index == 0:
        print_runs(records)
        print(f"records: {Path(out) / FILE_NAME}")
        for record in records if fom else ():
            print(figure_of_merit(record))
    return 1 if any(record["partial"] for record in records) else 0
