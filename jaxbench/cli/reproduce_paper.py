"""ask the simulator for every claim of arXiv 2609.00817 and write a page; needs no devices.

examples:
  jaxbench reproduce-paper
  jaxbench reproduce-paper --conventions=true --out=results --format=json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxbench.cli.command import read_call
from jaxbench.cli.flagfile import override, read_run
from jaxbench.cli.flags import EXPERIMENT_FLAGS
from jaxbench.errors import InputError, unknown
from jaxbench.experiment import Experiment

FORMATS = ("text", "json")
FLAGS = ("conventions", "out", "format", "flagfile")
STARTS_BACKEND = False
PAGE = "paper.md"


def main(words: Sequence[str]) -> int:
    """Write the page to `--out`/paper.md and print the verdicts; return 0 whatever they are."""
    call = read_call("reproduce-paper", words, FLAGS)
    faults = list(call.faults)

    from jaxbench.measure.record import writable_faults
    from jaxbench.readings.paper.campaign import CONVENTIONS, Campaign
    from jaxbench.readings.paper.claims import ask_all, to_json
    from jaxbench.report.paper_page import page

    conventions = [c.strip() for c in call.values["conventions"].split(",") if c.strip()]
    faults += [unknown("convention", c, CONVENTIONS) for c in conventions if c not in CONVENTIONS]
    if not conventions:
        faults.append(f"--conventions is empty; known: {', '.join(CONVENTIONS)}")
    if call.values["format"] not in FORMATS:
        faults.append(unknown("format", call.values["format"], FORMATS))
    faults += writable_faults(call.values["out"])
    if faults:
        raise InputError(faults)
    answers = {}
    for convention in conventions:
        print(f"asking 20 claims under convention {convention} ...", file=sys.stderr, flush=True)
        answers[convention] = to_json(ask_all(Campaign(experiment, convention)))
    path = Path(call.values["out"]) / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(answers), encoding="utf-8")
    if call.values["format"] == "json":
        print(json.dumps(answers))
        return 0
    for convention, rows in answers.items():
        for row in rows:
            print(f"{convention:10} {row['claim']:2}  {row['verdict']}: {row['said']}")
    print(f"page: {path}")
    return 0


def experiment(name: str, flags: Mapping[str, str]) -> Experiment:
    """Return the experiment of a paper's flagfile with other flags over it."""
    given = override(read_run(f"paper_{name}").values, flags)
    return Experiment.from_flags({key: given[key] for key in EXPERIMENT_FLAGS if key in given})
