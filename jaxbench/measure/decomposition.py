"""Where the time of a step goes: the difference between variants of the same program.

All parts are taken round by round (the variants of a round ran within one second or so of each
other), so that slow drifts of a machine cancel; their medians and intervals are over rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.measure.metrics import metric
from jaxbench.measure.statistics import median

Samples = Mapping[str, Sequence[Sequence[float]]]  # {variant: [rounds][processes]} seconds
Ready = Mapping[str, Sequence[Sequence[float]]]  # {variant: [rounds][devices]} seconds


def decompose(samples: Samples, ready: Ready, bubble_share: float) -> dict[str, dict[str, Any]]:
    """Return the metrics of a decomposition by name.

    `bubble_share` is the idle time of a rank's pipeline over its compute: (p-1)/(vM). A part is
    printed as it comes out, below zero too: that says how far the estimate can be trusted.
    """
    rounds = min(len(taken) for taken in samples.values())
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    for k in range(rounds):
        step = {variant: max(taken[k]) for variant, taken in samples.items()}
        compute = statistics.median(ready["compute_only"][k])
        skew = max(ready["compute_only"][k]) - compute
        bubble = compute * bubble_share
        exposed = step["full"] - step["sync_only"]
        hidden = step["comm_only"] - step["latency_only"] - exposed
        values = {
            "compute_s": compute,
            "skew_s": skew,
            "bubble_s": bubble,
            "transfer_exposed_s": exposed,
            "latency_s": step["sync_only"] - compute - skew - bubble,
            "transfer_hidden_s": hidden,
            "communication_relevance": (step["full"] - compute) / step["full"],
            "communication_share": (step["full"] - compute - skew - bubble) / step["full"],
        }
        for name, value in values.items():
            parts[name].append(value)
    return {name: _summary(name, values) for name, values in parts.items()}


def none() -> dict[str, dict[str, Any]]:
    """Return the metrics of a decomposition that wasn't measured: all null."""
    return {name: metric(name, None) for name in PARTS}


PARTS = (
    "compute_s",
    "skew_s",
    "bubble_s",
    "transfer_exposed_s",
    "latency_s",
    "transfer_hidden_s",
    "communication_relevance",
    "communication_share",
)


def warnings(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say which parts can't be: below zero by more than their interval."""
    told = []
    for name in ("transfer_exposed_s", "latency_s", "transfer_hidden_s"):
        high = metrics[name]["ci_high"]
        if high is not None and high < 0:
            told.append(
                f"{name} is {metrics[name]['value']:.3g} s, below 0 beyond its interval: the "
                "variants don't add up here (see --payload, --steps)"
            )
    return told


def _summary(name: str, values: Sequence[float]) -> dict[str, Any]:
    found = median(values)
    return metric(name, found.value, ci_low=found.ci_low, ci_high=found.ci_high, n=found.n)
