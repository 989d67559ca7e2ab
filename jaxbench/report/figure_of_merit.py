"""The figure of merit: one line per run, for the programs that start runs and read their output.

FOM status=ok strategy=dp model=tiny mesh=data=8 ranks=8 ... n=20 step_s=0.0661 ... id=4f0c...

This is a promise, kept from one version to the next:

- A line starts with `FOM ` and is plain text: never styled, cut or wrapped.
- Words `key=value` follow, each after one space; no value has a space in it.
- Keys keep their order. A new one is added at the end; none is renamed or dropped.
- Values are as in JSON, but text without quotes: numbers in SI units and with all digits of the
  record, `true` and `false`, and `null` for what is not known.
- `status` is `ok`; `partial` if the run broke off, so that the numbers are of the steps until then;
  `failed` if a check did not hold or no step was timed.

So ` step_s=(\\S+)` finds the median step in seconds, and `^FOM status=ok ` a run to rely on. The
metrics are those of the record, with the bounds of the step's 95 % interval as step_low_s and
step_high_s. A run that is interrupted, or ended for another process's fault, has no line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from jaxbench.axes import mesh_text

CHECKS = ("values_ok", "plan_equals_compiled")
METRICS = ("throughput", "exposed_s", "communication_share", "communication_relevance")


def figure_of_merit(record: Mapping[str, Any]) -> str:
    """Return the line of a record."""
    experiment, metrics = record["experiment"], record["metrics"]
    step = metrics["step_s"]
    words = {
        "status": status(record),
        "strategy": experiment["strategy"],
        "model": experiment["model"],
        "mesh": mesh_text(experiment["mesh"].items()),
        "ranks": experiment["devices"],
        "processes": record["environment"]["processes"],
        "time_scale": record["scales"]["time_scale"],
        "size_scale": record["scales"]["size_scale"],
        **{name: record["checks"][name] for name in CHECKS},
        "n": step["n"],
        "step_s": step["value"],
        "step_low_s": step["ci_low"],
        "step_high_s": step["ci_high"],
        **{name: metrics[name]["value"] for name in METRICS},
        "id": record["id"],
    }
    return " ".join(["FOM", *(f"{key}={_text(value)}" for key, value in words.items())])


def status(record: Mapping[str, Any]) -> str:
    """Return 'ok', 'partial' or 'failed'."""
    held = [record["checks"][name] for name in CHECKS]
    if False in held or not record["metrics"]["step_s"]["n"]:
        return "failed"
    return "partial" if record["partial"] or None in held else "ok"


def _text(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        value = None  # as the results file has it
    return value if isinstance(value, str) else json.dumps(value)
