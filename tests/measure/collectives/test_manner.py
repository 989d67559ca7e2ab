"""What is between two collectives: pauses that no number holds, and buffers that take turns."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax.sharding import AxisType, Mesh

from jaxbench.jaxprs import equations
from jaxbench.measure.collectives import bench as microbenchmark
from jaxbench.measure.collectives import job
from jaxbench.measure.collectives.bench import (
    CHAIN,
    FORMS,
    Measured,
    chain_length,
    measure_cells,
    needed_bytes,
)
from jaxbench.measure.collectives.cells import make_cell
from jaxbench.measure.collectives.manner import Manner
from jaxbench.measure.collectives.program import VERBS, build_program
from jaxbench.measure.comparison import configuration
from jaxbench.program import trace
from jaxbench.readings.ranks import Ranks
from jaxbench.readings.sites import KINDS, find_sites

MANNER = Manner(messages=3, pause_s=0.02)
CELL = make_cell("all_reduce", "data", 2, "float32", 64)


@pytest.fixture
def mesh() -> Mesh:
    return jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])


@pytest.fixture(autouse=True)
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microbenchmark, "CHAIN", (6, 6))


def test_pauses_are_in_no_number() -> None:
    """0.5 ms each, 0.2 ms of dispatch and pauses of 20 ms: a chain of five takes 102.7 ms."""
    m = Measured(CELL, MANNER, executions=5)
    m.samples_s = {"full": [[0.0207]] * 12, "chained": [[0.1027]] * 12}
    assert m.step.value == pytest.approx(0.0007)
    assert m.collective.value == pytest.approx(0.0005)
    assert job.cell_metrics(m)["step_s"]["value"] == pytest.approx(0.0007)


@pytest.mark.parametrize("kind", list(VERBS))
def test_all_messages_take_turns_and_each_execution_has_its_pause(kind: str, mesh: Mesh) -> None:
    cell = make_cell(kind, "data", 2, "float32", 64)
    traced = trace(build_program(cell, 6, manner=MANNER), mesh)
    sites = find_sites(traced.closed, Ranks((("data", 2),)))
    assert [site.trips for site in sites] == [2, 2, 2]
    operands = {e.invars[0] for e in equations(traced.closed.jaxpr) if e.primitive.name in KINDS}
    assert len(operands) == 3
    pauses = [e for e in equations(traced.closed.jaxpr) if e.primitive.name == "compute"]
    assert [p.params["seconds"] for p in pauses] == [MANNER.pause_s] * 3
    once = trace(build_program(cell, 1, manner=MANNER), mesh)
    assert len(once.program.buffers) == len(traced.program.buffers) == 3


def test_what_is_measured_is_checked_and_paused(mesh: Mesh) -> None:
    (m,) = measure_cells([CELL], mesh, steps=2, manner=MANNER)
    assert (m.failure, m.complete, m.wrong, m.executions) == (None, True, 0, 6)
    assert min(m.samples_s["full"])[0] > 0.9 * MANNER.pause_s
    assert min(m.samples_s["chained"])[0] > 0.9 * 6 * MANNER.pause_s
    assert max(m.steps_s) == pytest.approx(max(m.samples_s["full"])[0] - MANNER.pause_s)
    assert m.payload in ("sleep", "matmul")
    assert all(m.checks["compiled"][form]["equal"] for form in FORMS)


@pytest.mark.parametrize("message", range(3))
def test_a_wrong_value_of_any_message_is_found(
    message: int, mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = microbenchmark.make_buffers

    def spoiled(program: Any, mesh: Mesh) -> list[jax.Array]:
        made = original(program, mesh)
        if len(program.buffers) == 3:  # not the check of every value, which has one
            buffer = made[1 + message]
            made[1 + message] = jax.device_put(buffer.at[3].add(1), buffer.sharding)
        return made

    monkeypatch.setattr(microbenchmark, "make_buffers", spoiled)
    (m,) = measure_cells([CELL], mesh, steps=1, manner=Manner(messages=3))
    assert m.failure is not None and "values are wrong" in m.failure


def test_a_chain_is_of_whole_turns() -> None:
    for seconds in (0.0, 0.001, 10.0):
        for messages in (1, 3, 4, 300):
            length = chain_length(seconds, messages)
            assert length % messages == 0 and length >= CHAIN[0]
            assert length < microbenchmark.CHAIN[1] + messages


def test_every_message_needs_memory(mesh: Mesh) -> None:
    one, four = (needed_bytes([CELL], mesh, messages) for messages in (1, 4))
    assert four - one == 3 * CELL.bytes


def test_records_of_the_default_manner_compare_with_those_that_had_none() -> None:
    before = {"experiment": {"kind": "all_reduce", "bytes": 64}}
    in_a_row, other = (
        {"experiment": {**before["experiment"], **vars(manner)}} for manner in (Manner(), MANNER)
    )
    assert configuration(in_a_row) == configuration(before) != configuration(other)
