"""The tables of a simulation: what is merged into a row, and what a reader is told."""

from __future__ import annotations

import pytest

from jaxbench.readings.predict import predict
from jaxbench.readings.simulate import Semantics
from jaxbench.report.simulate_table import merge, print_predictions
from tests.cases import case, experiment
from tests.simple_costs import TwoTiers

AXIS = Semantics("axis")


def test_uses_that_differ_in_their_label_only_are_one_row() -> None:
    p = predict(experiment(strategy="dp", mesh="data=4", buckets=10), TwoTiers(), AXIS)
    assert len(p.simulation.uses) == 10
    assert len({use.elements for use in p.simulation.uses}) == 2  # they don't divide
    (line,) = merge(p.simulation.uses)
    assert line.count == 10
    total = sum(use.seconds for use in p.simulation.uses)
    assert line.seconds == pytest.approx(total, rel=1e-4)
    assert line.labels == tuple(f"gradient {k}" for k in reversed(range(10)))


@pytest.mark.parametrize("name", ["pp-uneven", "ep-dense-layers", "tp-sequence", "fsdp-4x3"])
def test_counts_are_those_of_the_plan(name: str) -> None:
    """Where stages differ, the maximum of a sum isn't the sum of the maxima."""
    p = predict(case(name), TwoTiers(outside=1.0), AXIS)
    counts: dict[tuple[str, ...], int] = {}
    for line in merge(p.simulation.uses):
        counts[line.read[:2]] = counts.get(line.read[:2], 0) + line.count
    planned: dict[tuple[str, ...], int] = {}
    for row in p.plan.rows:
        planned[row.kind, row.axis] = planned.get((row.kind, row.axis), 0) + row.count
    assert counts == planned


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    one = predict(
        experiment(strategy="dp", mesh="data=4", buckets=10), TwoTiers(), AXIS, described="here"
    )
    alone = predict(case("dp-1"), TwoTiers(), Semantics("one"))
    print_predictions([one, alone])
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].startswith("step = compute + bubble + skew + transfer + latency")
    assert lines[3].split()[:3] == ["dp", "tiny", "data=4"]
    assert lines[4].split()[:3] == ["dp", "tiny", "data=1"]
    assert "here; a communication stream per mesh axis" in text
    assert "gradient 9, gradient 8, gradient 7, gradient 6 and 6 more" in text
    assert "no collectives" in text
    assert "one communication stream" in text
