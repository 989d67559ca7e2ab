"""Profiles as XLA's CPU backend leaves them: operations on threads, ends apart from beginnings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jaxbench.errors import InputError, RunError
from jaxbench.readings.plan import Plan
from jaxbench.readings.profile import read_profile
from jaxbench.readings.profile_cpu import PLANE
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

SLEEP = 'custom-call(%x), custom_call_target="jaxbench_sleep"'
ASKED, OVERHEAD = 1000, 100


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(strategy="dp", mesh="data=2", buckets=2)


@pytest.fixture(scope="module")
def text(plan: Plan) -> str:
    """A program with a sleep, a loop and a large product as payloads, and two all-reduces."""
    config = f"backend_config={{nanoseconds = {ASKED} : i64, overhead_ns = {OVERHEAD} : i64}}"
    lines = [
        f"%ffi_call.5 = f32[1]{{0}} {SLEEP}, {scope('compute forward', 'ffi_call')}, {config}",
        f"%while.5 = f32[1]{{0}} while(%x), body=%b, {scope('compute backward 1', 'while')}",
        f"%dot.5 = f32[9,9]{{1,0}} dot(%x, %x), {scope('compute backward 0', 'dot_general')}",
    ]
    for number, site in enumerate(plan.sites):
        size = f"f32[{site.elements}]{{0}}"
        about = f"channel_id=1, replica_groups={{{{0,1}}}}, {scope(site.label, 'psum')}"
        lines += [
            f"%buffer.{number} = {size} parameter({number + 1})",
            f"%psum.{number} = {size} all-reduce(%buffer.{number}), {about}",
        ]
    return program_text(lines)


def thunk(name: str, device: int, start: int, end: int, *, run: int = -7) -> E:
    key = 1000 * device + 100 * (run + 9) + sum(map(ord, name))
    stats = {"hlo_op": name, "hlo_module": MODULE, "run_id": run, "device_ordinal": device}
    return E(name, start, end, {**stats, "_pt": 0, "_p": key})


def ended(of: E, at: int) -> E:
    return E(f"end: {of.name}", at, at + 1, {"_ct": 0, "_c": of.stats["_p"]})


def inline(of: E) -> list[E]:
    """A synchronous operation."""
    return [of, ended(of, of.end - 1)]


def device(number: int, wakes: int, told: bool = True) -> dict[str, list[E]]:
    """A device that sleeps from 0, reduces bucket 0 meanwhile, and bucket 1 after waking.

    The thread that ends the sleep says so when it has returned from the second all-reduce.
    """
    sleep = thunk("ffi_call.5", number, 0, 5)
    first = thunk("psum.0", number, 100 + 50 * number, 500)
    second = thunk("psum.1", number, wakes + 10, wakes + 900)
    around = E("ThunkExecutor::Execute", wakes, wakes + 950)
    end = [ended(sleep, wakes + 960)] if told else []
    return {
        f"tf_XLAPjRtCpuClient/{number}": [sleep, *inline(first)],
        f"python {number}": [E("idle", 0, 20), around, *inline(second), *end],
    }


def read(folder: Path, plan: Plan, text: str, lines: Lines, steps: int = 1) -> ProfileReading:
    planes = {"/host:metadata": {}, PLANE: lines, "Task Environment": {}}
    return read_profile(
        write_profile(folder, planes),
        text=text,
        plan=plan,
        platform="cpu",
        ranks={0: 0, 1: 1},
        steps=steps,
    )


def test_a_sleep_hides_nothing_of_what_runs_after_it(tmp_path: Path, plan: Plan, text: str) -> None:
    found = read(tmp_path, plan, text, {**device(0, wakes=950), **device(1, wakes=950)})
    np.testing.assert_allclose(found.compute_s, 950e-9)
    np.testing.assert_allclose(found.shares.total_s, [[(400 + 890) * 1e-9, (350 + 890) * 1e-9]])
    np.testing.assert_allclose(found.shares.exposed_s, 890e-9)
    np.testing.assert_allclose(found.shares.waiting_s, 0, atol=1e-15)
    np.testing.assert_allclose(found.rest_s, 10e-9)
    assert found.labels[0].skew_s == pytest.approx(50e-9)


@pytest.mark.parametrize("told", [True, False], ids=["late", "never told"])
def test_a_sleep_is_no_longer_than_asked(tmp_path: Path, plan: Plan, text: str, told: bool) -> None:
    found = read(
        tmp_path, plan, text, {**device(0, wakes=1400, told=told), **device(1, wakes=1700)}
    )
    np.testing.assert_allclose(found.compute_s, ASKED * 1e-9)
    # The second all-reduce of rank 0 begins 300 ns before that of rank 1.
    np.testing.assert_allclose(found.shares.waiting_s, [[300e-9, 0]], atol=1e-15)
    np.testing.assert_allclose(found.shares.transfer_s, [[590e-9, 890e-9]])


def test_a_loop_on_its_thread_lasts_as_long_as_its_event(
    tmp_path: Path, plan: Plan, text: str
) -> None:
    lines = {
        f"thread {n}": [
            *inline(thunk("while.5", n, 0, 800)),
            *inline(thunk("psum.0", n, 700, 900)),
            *inline(thunk("psum.1", n, 900, 1000)),
        ]
        for n in (0, 1)
    }
    found = read(tmp_path, plan, text, lines)
    np.testing.assert_allclose(found.compute_s, 800e-9)
    np.testing.assert_allclose(found.shares.hidden_s, 100e-9)


def test_a_product_on_other_threads_ends_when_one_of_them_goes_on(
    tmp_path: Path, plan: Plan, text: str
) -> None:
    lines: dict[str, list[E]] = {}
    for n in (0, 1):
        product = thunk("dot.5", n, 0, 10)
        lines[f"caller {n}"] = [product]
        lines[f"helper {n}"] = [
            E("something earlier", 20_000, 20_100),
            E("ThunkExecutor::Execute", 100_000, 290_000),
            *inline(thunk("psum.0", n, 100_100, 200_000)),
            *inline(thunk("psum.1", n, 200_010, 280_000)),
            ended(product, 290_010),
        ]
    found = read(tmp_path, plan, text, lines)
    np.testing.assert_allclose(found.compute_s, 100_000e-9)
    np.testing.assert_allclose(found.shares.hidden_s, 0, atol=1e-15)


def both(*, run: int = -7, after: int = 0) -> dict[str, list[E]]:
    return {
        f"thread {n} of {run}": [
            *inline(thunk("psum.0", n, after + 10, after + 20, run=run)),
            *inline(thunk("psum.1", n, after + 20, after + 40, run=run)),
        ]
        for n in (0, 1)
    }


def test_steps_are_runs_in_order_of_time(tmp_path: Path, plan: Plan, text: str) -> None:
    lines = {**both(run=3, after=1000), **both(run=5)}
    found = read(tmp_path, plan, text, lines, steps=2)
    assert found.shares.total_s.shape == (2, 2)
    assert found.warnings == (
        "the profile has no operation of a payload, so all communication counts as exposed",
    )
    with pytest.raises(RunError, match="2 executions .* where 3 were recorded"):
        read(tmp_path, plan, text, lines, steps=3)


def test_a_dropped_event_is_told(tmp_path: Path, plan: Plan, text: str) -> None:
    lines = both()
    lines["thread 1 of -7"] = lines["thread 1 of -7"][:2]
    label = plan.sites[1].label
    with pytest.raises(RunError, match=f"0 events of all_reduce '{label}' on rank 1"):
        read(tmp_path, plan, text, lines)


def test_an_event_too_many_is_told(tmp_path: Path, plan: Plan, text: str) -> None:
    lines = {**both(), "more": [thunk("psum.1", 0, 50, 60)]}
    with pytest.raises(RunError, match="2 events of all_reduce .* on rank 0"):
        read(tmp_path, plan, text, lines)


def test_an_unknown_layout_is_told_with_what_was_found(
    tmp_path: Path, plan: Plan, text: str
) -> None:
    bare = {"tf_XLAEigen/5": [E("psum.0", 0, 9, {"hlo_op": "psum.0", "hlo_module": MODULE})]}
    told = r"no run_id, device_ordinal, _p.*'/host:CPU' \(tf_XLAEigen\)"
    with pytest.raises(RunError, match=told):
        read(tmp_path, plan, text, bare)


def test_collectives_that_end_elsewhere_are_told(tmp_path: Path, plan: Plan, text: str) -> None:
    done = text.replace("\n}\n", "\n  %psum-done = f32[1]{0} all-reduce-done(%psum.0)\n}\n")
    with pytest.raises(RunError, match=r"asynchronous collectives \(psum-done\)"):
        read(tmp_path, plan, done, both())


def test_a_profile_without_device_events_is_bad_input(
    tmp_path: Path, plan: Plan, text: str
) -> None:
    with pytest.raises(InputError, match="no events with the names of the program's operations"):
        read(tmp_path, plan, text, {"python": [E("PjitFunction", 0, 9)]})
    foreign = [thunk("psum.0", 0, 0, 9)]
    foreign = [E(e.name, e.start, e.end, {**e.stats, "hlo_module": "jit_other"}) for e in foreign]
    with pytest.raises(InputError, match="has those of jit_other"):
        read(tmp_path, plan, text, {"thread": foreign})
    with pytest.raises(InputError, match="unknown platform 'npu'"):
        read_profile("x", text=text, plan=plan, platform="npu", ranks={}, steps=1)
