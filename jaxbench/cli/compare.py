"""say of two sets of results, configuration by configuration, whether b is slower than a.

A and B are results files, or folders that have a runs.jsonl. Records with the same experiment
(apart from seed, steps and the like) are runs of one configuration; a ratio is b's median step
over a's, with a confidence interval in which runs are resampled, or the steps of a single run.
Several runs a side are needed to tell a difference of a or b from one between any two runs.

examples:
  jaxbench compare before/runs.jsonl after/runs.jsonl
  jaxbench compare results other_results --format=json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from jaxbench.cli.command import read_call
from jaxbench.errors import InputError, unknown

FORMATS = ("text", "json")
FLAGS = ("format", "flagfile")
ARGUMENTS = ("A", "B")
STARTS_BACKEND = False


class Asked(NamedTuple):
    """What a call asks for: two results files or folders, and how to say it."""

    a: str
    b: str
    form: str


def main(words: Sequence[str]) -> int:
    """Print the comparison; return 0 whatever it says."""
    asked = read(words)

    from jaxbench.measure.comparison import compare, read_side
    from jaxbench.report.compare_table import print_comparison

    sides, faults = [], []
    for path in (asked.a, asked.b):
        try:
            sides.append(read_side(path))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    comparison = compare(*sides)
    if asked.form == "json":
        print(json.dumps(comparison.to_json()))
    else:
        print_comparison(comparison)
    return 0


def read(words: Sequence[str]) -> Asked:
    """Return what the words ask for; InputError with all that is wrong."""
    call = read_call("compare", words, FLAGS, ARGUMENTS)
    faults = list(call.faults)
    if call.values["format"] not in FORMATS:
        faults.append(unknown("format", call.values["format"], FORMATS))
    if faults:
        raise InputError(faults)
    return Asked(call.arguments[0], call.arguments[1], call.values["format"])
