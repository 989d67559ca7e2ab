"""Profiles as TPUs are described to leave them: modules, operations, and what runs beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxbench.errors import InputError, RunError
from jaxbench.readings.plan import Plan
from jaxbench.readings.profile import read_profile
from jaxbench.readings.profile_reading import ProfileReading
from tests.readings.profile_inputs import (
    MODULE,
    E,
    Lines,
    make_plan,
    program_text,
    scope,
    write_profile,
)

MODULES, OPS, ASYNC = "XLA Modules", "XLA Ops", "Async XLA Ops"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(strategy="dp", mesh="data=2", buckets=2)


@pytest.fixture(scope="module")
def text(plan: Plan) -> str:
    """A program with a payload, a synchronous all-reduce and an asynchronous one."""
    first, second = (f"f32[{site.elements}]{{0:T(1024)}}" for site in plan.sites)
    groups = "channel_id=1, replica_groups={{0,1}}"
    synchronous, asynchronous = (scope(site.label, "psum") for site in plan.sites)
    return program_text(
        [
            f"%fusion.9 = f32[1]{{0}} fusion(%x), calls=%dot, {scope('compute forward', 'dot')}",
            f"%a = {first} parameter(1)",
            f"%b = {second} parameter(2)",
            f"%psum.7 = {first} all-reduce(%a), {groups}, {synchronous}",
            f"%all-reduce-start = {second} all-reduce-start(%b), {groups}, {asynchronous}",
            f"%all-reduce-done.4 = {second} all-reduce-done(%all-reduce-start), {asynchronous}",
        ]
    )


def printed(name: str, start: int, end: int) -> E:
    """An event called as its instruction is printed."""
    return E(f"%{name} = f32[500000]{{0:T(1024)}} some-opcode(f32[1] %x), more={{}}", start, end)


# Started at 0, computing until 100, waited for until 130; then a synchronous one until 150.
CORE = [
    printed("all-reduce-start", 0, 1),
    printed("fusion.9", 1, 100),
    printed("all-reduce-done.4", 100, 130),
    printed("psum.7", 130, 150),
]
TIMELY = [E("all-reduce-start", 0, 120)]
PAIRED = [
    E("all-reduce-start", 0, 1, {"flow": 77}),
    E("all-reduce-done.4", 110, 120, {"flow": 77}),
]


def tpu(apart: list[E] | None) -> Lines:
    lines = {
        "Steps": [E("0", 0, 150)],
        MODULES: [E("jit_other(3)", -0, 0), E(f"{MODULE}(1234567)", 0, 150)],
        OPS: [*CORE, printed("psum.7", 900, 950)],  # of another execution
    }
    return lines if apart is None else {**lines, ASYNC: [*apart, E("copy-start.2", 5, 90)]}


def read(
    folder: Path, plan: Plan, text: str, lines: Lines, second: Lines | None = None, steps: int = 1
) -> ProfileReading:
    planes = {
        "/device:TPU:0": lines,
        "/device:TPU:1": second or lines,
        "/device:TPU:0 SparseCore 0": {},
    }
    return read_profile(
        write_profile(folder, planes),
        text=text,
        plan=plan,
        platform="tpu",
        ranks={0: 0, 1: 1},
        steps=steps,
    )


@pytest.mark.parametrize(
    ("apart", "until"), [(TIMELY, 120), (PAIRED, 120), (None, 130)], ids=["one", "pair", "none"]
)
def test_an_asynchronous_collective_lasts_as_long_as_it_is_under_way(
    tmp_path: Path, plan: Plan, text: str, apart: list[E] | None, until: int
) -> None:
    found = read(tmp_path, plan, text, tpu(apart))
    np.testing.assert_allclose(found.shares.total_s, (until + 20) * 1e-9)
    np.testing.assert_allclose(found.shares.hidden_s, 99e-9)
    np.testing.assert_allclose(found.shares.exposed_s, (until - 100 + 1 + 20) * 1e-9)
    np.testing.assert_allclose(found.compute_s, 99e-9)
    assert [label.count for label in found.labels] == [(1, 1), (1, 1)]
    assert found.labels[0].execution_s == pytest.approx(20e-9)


def test_every_step_is_an_execution(tmp_path: Path, plan: Plan, text: str) -> None:
    def twice(events: list[E]) -> list[E]:
        return events + [E(e.name, e.start + 1000, e.end + 1000) for e in events]

    lines = {MODULES: twice([E(f"{MODULE}(1)", 0, 150)]), OPS: twice(CORE), ASYNC: twice(TIMELY)}
    found = read(tmp_path, plan, text, lines, steps=2)
    np.testing.assert_allclose(found.shares.total_s, [[140e-9] * 2] * 2)
    with pytest.raises(RunError, match="2 executions where 3 were recorded"):
        read(tmp_path, plan, text, lines, steps=3)


def test_a_dropped_event_is_told(tmp_path: Path, plan: Plan, text: str) -> None:
    less = {**tpu(TIMELY), OPS: CORE[:-1]}
    with pytest.raises(RunError, match=r"0 events of all_reduce .* on rank 1.* the plan has 1"):
        read(tmp_path, plan, text, tpu(TIMELY), less)


@pytest.mark.parametrize("missing", [MODULES, OPS])
def test_an_unknown_layout_is_told_with_what_was_found(
    tmp_path: Path, plan: Plan, text: str, missing: str
) -> None:
    lines = {("Else" if name == missing else name): e for name, e in tpu(TIMELY).items()}
    with pytest.raises(RunError, match=rf"no line {missing} in '/device:TPU:0'.*Else"):
        read(tmp_path, plan, text, lines)


def test_a_profile_without_the_devices_or_the_program_is_bad_input(
    tmp_path: Path, plan: Plan, text: str
) -> None:
    with pytest.raises(InputError, match="no plane '/device:TPU:n' with events"):
        read(tmp_path, plan, text, {})
    with pytest.raises(InputError, match="no events in the line 'XLA Modules'"):
        read(tmp_path, plan, text, {**tpu(TIMELY), MODULES: []})
    with pytest.raises(InputError, match="has those of jit_other"):
        read(tmp_path, plan, text, {**tpu(TIMELY), MODULES: [E("jit_other(3)", 0, 150)]})
