"""A cell's level and its scaling efficiency, from runs whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jaxbench.experiment import Experiment
from jaxbench.measure.metrics import METRICS, metric
from jaxbench.measure.sweeps.grid import experiment_key
from jaxbench.measure.sweeps.results import Result
from jaxbench.measure.sweeps.scaling import efficiencies, summarise


def a_run(steps: list[float], share: float | None = None, **flags: Any) -> Result:
    """Return a run with these steps, in seconds, of one slow and one fast process."""
    base = {"strategy": "dp", "model": "tiny", "devices": 2}
    texts = {name: str(value) for name, value in {**base, **flags}.items()}
    experiment = Experiment.from_flags(texts)
    settings = experiment.to_dict()
    middle = float(np.median(steps))
    metrics = {
        **{name: metric(name, None) for name in METRICS},
        "step_s": metric("step_s", middle, ci_low=min(steps), ci_high=max(steps), n=len(steps)),
        "throughput": metric("throughput", experiment.batch * experiment.axis("data") / middle),
        "communication_share": metric("communication_share", share),
    }
    samples = {"full": [[s / 2, s] for s in steps]}
    record = {"experiment": settings, "samples": samples, "metrics": metrics}
    return Result(experiment_key(settings), "done", settings, record, 1)


def runs(count: int, level: float, spread: float, seed: int, **flags: Any) -> list[Result]:
    """Return runs whose medians vary by `spread` (relative) around `level`."""
    random = np.random.default_rng(seed)
    levels = level * np.exp(spread * random.standard_normal(count))
    return [a_run(list(v * np.exp(0.01 * random.standard_normal(10))), **flags) for v in levels]


def test_one_run_has_its_own_interval() -> None:
    (cell,) = summarise([a_run([0.1, 0.2, 0.3], share=0.25)])
    assert (cell.step_s.value, cell.step_s.ci_low, cell.step_s.ci_high) == (0.2, 0.1, 0.3)
    assert cell.throughput == pytest.approx(32 / 0.2)
    assert cell.runs == [[0.1, 0.2, 0.3]] and cell.communication_share == 0.25


def test_several_runs_have_one_of_their_spread() -> None:
    (cell,) = summarise(runs(8, 0.1, 0.05, seed=1))
    step = cell.step_s
    assert step.ci_low and step.ci_high and step.value
    assert step.ci_low < 0.1 < step.ci_high
    assert 0.04 < (step.ci_high - step.ci_low) / step.value < 0.20  # 2 * 2.36 * 0.05 / sqrt(8)
    medians = [np.median(run) for run in cell.runs]
    assert step.value == pytest.approx(float(np.exp(np.mean(np.log(medians)))))
    assert cell.communication_share is None


def test_only_whole_runs_count() -> None:
    good, bad = a_run([0.1] * 6), a_run([9.0] * 6)
    failed = Result(bad.key, "failed", bad.experiment, bad.record, 2)
    lost = Result(bad.key, "timeout", bad.experiment, None, 3)
    (cell,) = summarise([good, failed, lost])
    assert cell.runs == [[0.1] * 6]
    assert summarise([failed, lost]) == []


def test_efficiency_is_the_throughput_per_device_against_the_smallest() -> None:
    """Weak scaling: twice the devices do twice the samples, here in 1.25 of the time."""
    results = [
        *runs(6, 0.125, 0.02, seed=3, devices=4),
        *runs(6, 0.1, 0.02, seed=2, devices=2),
        *runs(6, 0.2, 0.02, seed=4, devices=8),
    ]
    cells = summarise(results)
    found = efficiencies(cells)
    small = next(c for c in cells if c.experiment["devices"] == 2)
    assert set(found) == {c.key for c in cells} - {small.key}
    for cell, truth in zip((cells[0], cells[2]), (0.8, 0.5), strict=True):
        efficiency = found[cell.key]
        low, high = efficiency.ratio.ci_low, efficiency.ratio.ci_high
        assert efficiency.base_devices == 2 and low and high
        assert low < truth < high and high / low < 1.15
        assert cell.throughput and small.throughput
        per_device = cell.throughput / small.throughput * 2 / cell.experiment["devices"]
        assert efficiency.ratio.value == pytest.approx(per_device)


def test_with_one_run_a_side_the_interval_is_unknown() -> None:
    results = [a_run([0.1] * 9), *runs(5, 0.1, 0.01, seed=1, devices=4)]
    (efficiency,) = efficiencies(summarise(results)).values()
    assert efficiency.ratio.value == pytest.approx(1, rel=0.02)
    assert (efficiency.ratio.ci_low, efficiency.ratio.ci_high) == (None, None)


def test_only_cells_that_differ_in_the_data_axis_alone_are_compared() -> None:
    steps = [0.1] * 6
    results = [
        a_run(steps, devices=2, buckets=1),
        a_run(steps, devices=4, buckets=2),
        a_run(steps, strategy="dp_pp", mesh="pipeline=2", devices=4, buckets=1),
        a_run(steps, strategy="dp_pp", mesh="pipeline=4", devices=8, buckets=1),
        a_run(steps, strategy="dp_pp", mesh="pipeline=2", devices=8, buckets=1, expect_devices=8),
    ]
    cells = summarise(results)
    assert list(efficiencies(cells)) == [cells[4].key]
    assert efficiencies(cells)[cells[4].key].base_devices == 4
