"""check this installation and machine, and say what is wrong and what to do about it.

JAX is tried in processes of their own, so that a backend that hangs or aborts is told too.
A row is ok, a warning (runs work, but their times may not be what they should) or wrong.

examples:
  jaxbench doctor
  jaxbench doctor --out=/scratch/results --format=json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from jaxbench.cli.command import read_call
from jaxbench.errors import InputError, unknown

FORMATS = ("text", "json")
FLAGS = ("out", "format", "flagfile")
STARTS_BACKEND = False


class Asked(NamedTuple):
    """What a call asks for: where results would go, and how to say it."""

    out: str
    form: str


def main(words: Sequence[str]) -> int:
    """Print a row per check; return 0 if nothing is wrong, else 1."""
    asked = read(words)

    from jaxbench.launch.doctor import examine
    from jaxbench.table import print_table

    findings = examine(asked.out)
    counts = {s: sum(f.state == s for f in findings) for s in ("ok", "warning", "wrong")}
    if asked.form == "json":
        print(json.dumps({"checks": [f._asdict() for f in findings], "counts": counts}))
    else:
        print_table(("check", "", "found", "what to do"), findings)
        print(", ".join(f"{count} {state}" for state, count in counts.items()))
    return 1 if counts["wrong"] else 0


def read(words: Sequence[str]) -> Asked:
    """Return what the words ask for; InputError with all that is wrong."""
    call = read_call("doctor", words, FLAGS)
    faults = list(call.faults)
    if call.values["format"] not in FORMATS:
        faults.append(unknown("format", call.values["format"], FORMATS))
    if faults:
        raise InputError(faults)
    return Asked(call.values["out"], call.values["format"])
