"""Every metric a record may hold: its unit and its meaning.

A metric is a row here; `metric` refuses a name without one, so that the records and this
table can't drift apart. An unknown value is None, never 0.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxbench.errors import unknown


class Metric(NamedTuple):
    """What a number in `metrics` of a record means."""

    unit: str
    meaning: str


METRICS: dict[str, Metric] = {
    "step_s": Metric("s", "median over the timed steps of the slowest rank's time for one step"),
    "wanted_compute_s": Metric("s", "compute of the busiest rank in a step, as the plan has it"),
    "exposed_s": Metric("s", "step_s less compute_s (or wanted_compute_s where not decomposed)"),
    "throughput": Metric("samples/s", "samples of the global batch divided by step_s"),
    # The decomposition, from variants of the program; see decomposition.py
    "compute_s": Metric("s", "median over devices of the step without collectives"),
    "skew_s": Metric("s", "slowest device less the median one, without collectives"),
    "bubble_s": Metric("s", "idle time of the pipeline schedule, in closed form from compute_s"),
    "transfer_exposed_s": Metric("s", "full step less the one whose collectives carry 1 element"),
    "latency_s": Metric("s", "the rest of the step whose collectives carry 1 element"),
    "transfer_hidden_s": Metric("s", "transfer without compute less transfer_exposed_s"),
    "communication_relevance": Metric("1", "(step - compute) / step: bubble and skew included"),
    "profile_exposed_s": Metric("s", "collectives not behind compute, from the profile's spans"),
    "profile_transfer_s": Metric("s", "profile_exposed_s without waiting for peers"),
    "communication_share": Metric("1", "(step - compute - bubble - skew) / step"),
    # Collectives one by one; see microbenchmark.py
    "collective_s": Metric("s", "one collective among many in a row: no dispatch, no compute"),
    "algorithmic_bandwidth_Bps": Metric("B/s", "size of a collective divided by collective_s"),
    "bus_bandwidth_Bps": Metric("B/s", "algorithmic bandwidth times the bus factor of nccl-tests"),
    "step_p95_s": Metric("s", "95th percentile of the steps behind step_s; null below n = 20"),
    "step_p99_s": Metric("s", "99th percentile of the steps behind step_s; null below n = 100"),
}


def metric(
    name: str,
    value: float | None,
    *,
    ci_low: float | None = None,
    ci_high: float | None = None,
    n: int = 0,
) -> dict[str, float | int | str | None]:
    """Return one entry of a record's `metrics`: {value, unit, ci_low, ci_high, n}.

    `n` is the number of samples behind the value, 0 for one that was not measured.
    Raises KeyError for a name that has no row in METRICS.
    """
    if name not in METRICS:
        raise KeyError(unknown("metric", name, METRICS))
    unit = METRICS[name].unit
    return {"value": value, "unit": unit, "ci_low": ci_low, "ci_high": ci_high, "n": n}
