"""Records as `jaxbench run` writes them, of steps that nobody measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxbench.experiment import Experiment
from jaxbench.measure.record import FIELDS, make_record

ENVIRONMENT = {
    "versions": {"jaxbench": "0.1.0", "python": "3.11.7", "jax": "0.10.2"},
    "platform": "cpu",
    "device_kind": "cpu",
    "host": "one",
    "git_revision": None,
    "variables": {"XLA_FLAGS": "--xla_a=1 --xla_b"},
}
ROW = {"kind": "all_reduce", "axis": "data", "group_size": 2, "count": 4, "elements": 100}


def record(
    median_s: float = 1.0, steps: int = 10, environment: dict[str, Any] | None = None, **flags: Any
) -> dict[str, Any]:
    """Return a record of a run with steps around a median, with other flags or surroundings."""
    given = {"strategy": "dp", "model": "tiny", "mesh": "data=2", "payload": "none", **flags}
    experiment = Experiment.from_flags({name: str(value) for name, value in given.items()})
    seconds = median_s * (1 + 0.002 * np.linspace(-1, 1, steps))
    empty = {name: None for name in FIELDS if name not in ("schema", "id", "time", "partial")}
    return make_record(
        **{
            **empty,
            "experiment": experiment.to_dict(),
            "environment": {**ENVIRONMENT, **(environment or {})},
            "plan": [ROW],
            "calibration": {"payload": experiment.payload},
            "samples": {"full": [[s] for s in seconds.tolist()]},
        }
    )
