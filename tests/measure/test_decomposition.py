"""The parts of a step from samples with known answers."""

from __future__ import annotations

import pytest

from jaxbench.measure.decomposition import decompose, none, warnings
from jaxbench.measure.metrics import METRICS

ROUNDS = 8


def samples(**seconds: float) -> dict[str, list[list[float]]]:
    base = {"full": 0.10, "sync_only": 0.08, "compute_only": 0.06}
    base |= {"comm_only": 0.05, "latency_only": 0.01, **seconds}
    return {name: [[s, s / 2] for _ in range(ROUNDS)] for name, s in base.items()}


READY = {"compute_only": [[0.058, 0.060, 0.060, 0.063]] * ROUNDS}


def test_parts_add_up_to_the_step() -> None:
    parts = {name: m["value"] for name, m in decompose(samples(), READY, 0.1).items()}
    assert parts["compute_s"] == 0.060
    assert parts["skew_s"] == pytest.approx(0.003)
    assert parts["bubble_s"] == pytest.approx(0.006)
    assert parts["transfer_exposed_s"] == pytest.approx(0.02)
    assert parts["latency_s"] == pytest.approx(0.08 - 0.069)
    assert parts["transfer_hidden_s"] == pytest.approx(0.04 - 0.02)
    whole = ("compute_s", "skew_s", "bubble_s", "transfer_exposed_s", "latency_s")
    assert sum(parts[name] for name in whole) == pytest.approx(0.10)
    assert parts["communication_relevance"] == pytest.approx(0.4)
    assert parts["communication_share"] == pytest.approx(0.31)


def test_rounds_are_compared_with_themselves() -> None:
    """A drift of the whole machine leaves differences as they are."""
    drifting = {
        name: [[s[0] + 0.01 * k] for k, s in enumerate(taken)] for name, taken in samples().items()
    }
    found = decompose(drifting, READY, 0.0)["transfer_exposed_s"]
    assert found["value"] == pytest.approx(0.02)
    assert found["ci_low"] == pytest.approx(0.02) and found["ci_high"] == pytest.approx(0.02)


def test_an_impossible_part_is_printed_and_told() -> None:
    metrics = decompose(samples(comm_only=0.02), READY, 0.0)
    assert metrics["transfer_hidden_s"]["value"] == pytest.approx(-0.01)
    (told,) = warnings(metrics)
    assert "transfer_hidden_s is -0.01 s, below 0" in told
    assert warnings(decompose(samples(), READY, 0.0)) == []


def test_what_was_not_measured_is_null() -> None:
    assert all(m["value"] is None and m["n"] == 0 for m in none().values())
    assert warnings(none()) == []
    assert none().keys() <= METRICS.keys()
