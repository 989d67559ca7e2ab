"""Profiles of real steps on virtual CPU devices, of every strategy."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxbench.errors import InputError, RunError
from jaxbench.measure import profile
from jaxbench.measure.profile import Cost, Recording, device_numbers, profile_run, record_profile
from jaxbench.payload import native
from jaxbench.payload.interface import Payload
from jaxbench.payload.matmul import Matmul
from jaxbench.payload.sleep import Sleep
from jaxbench.program import trace
from jaxbench.readings.build import Executable, compile_step, make_buffers
from jaxbench.readings.compiler_options import compiler_options
from jaxbench.readings.plan import Plan, build_program, plan_traced
from jaxbench.readings.profile_reading import ProfileReading
from tests.cases import cpu_mesh, experiment

STEPS = 3

# Little enough to send that the machine's noise stays small.
TINY = {"size_scale": 0.02, "microbatches": 4}
STRATEGIES = {
    "dp": {"strategy": "dp", "mesh": "data=4", "buckets": 3, "size_scale": 0.02},
    "fsdp": {"strategy": "fsdp", "mesh": "data=2,fsdp=2", "units": 3, "size_scale": 0.02},
    "dp_pp": {"strategy": "dp_pp", "mesh": "data=2,pipeline=2", **TINY},
    "dp_pp_tp": {"strategy": "dp_pp_tp", "mesh": "pipeline=3,tensor=2", **TINY},
    "dp_pp_ep": {"strategy": "dp_pp_ep", "mesh": "pipeline=2,expert=2", **TINY},
}


def sleep(seconds: float, label: str) -> Payload:
    return Sleep(round(seconds * 1e9), native=native.load().available)


def matmul(seconds: float, label: str) -> Payload:
    return Matmul(20, 64, "float32")


def build(name: str, choose=sleep) -> tuple[Executable, Plan, list[jax.Array]]:
    e = experiment(**STRATEGIES[name])
    mesh = cpu_mesh(e)
    workload, program = build_program(e)
    traced = trace(program, mesh)
    step = compile_step(traced, mesh, choose, compiler_options("cpu"))
    return step, plan_traced(e, workload, traced, 0.0), make_buffers(program, mesh)


def read(folder: Path, name: str, choose=sleep) -> tuple[ProfileReading, Plan]:
    step, plan, state = build(name, choose)
    return profile_run(step, state, plan, STEPS, folder), plan


@pytest.mark.parametrize("name", STRATEGIES)
def test_counts_are_the_plan_s_and_the_shares_add_up(tmp_path: Path, name: str) -> None:
    found, plan = read(tmp_path, name)
    devices = plan.experiment.devices
    assert found.ranks == tuple(range(devices)) and len(found.step_s) == STEPS
    assert {row.id: max(row.count) for row in found.rows} == {r.id: r.count for r in plan.rows}
    assert sum(max(label.count) for label in found.labels) == sum(r.count for r in plan.rows)
    shares = found.shares
    np.testing.assert_allclose(shares.exposed_s + shares.hidden_s, shares.total_s)
    np.testing.assert_allclose(shares.waiting_s + shares.transfer_s, shares.exposed_s)
    for values in (*shares.named().values(), found.compute_s, found.rest_s):
        assert values.shape == (STEPS, devices) and values.min() > -1e-9
    assert shares.total_s.min() > 0
    by_label = sum(label.shares.total_s for label in found.labels)
    assert (by_label >= shares.total_s - 1e-9).all()
    lasted = found.compute_s + shares.exposed_s + found.rest_s
    np.testing.assert_allclose(lasted, lasted[:, :1].repeat(devices, axis=1))
    assert (lasted[:, 0] <= found.step_s).all()


@pytest.mark.parametrize("name", ["dp", "dp_pp_tp"])
def test_a_sleep_is_seen_until_it_ends(tmp_path: Path, name: str) -> None:
    found, plan = read(tmp_path, name)
    assert (found.compute_s >= 0.999 * plan.compute_s).all()


def test_a_loop_of_products_is_seen(tmp_path: Path) -> None:
    found, _ = read(tmp_path, "dp", matmul)
    assert found.compute_s.min() > 0
    assert not [warning for warning in found.warnings if "no operation" in warning]


def test_the_trace_can_be_opened_elsewhere(tmp_path: Path) -> None:
    step, _, state = build("dp")
    recording = record_profile(step.compiled, state, 1, tmp_path, "cpu")
    assert recording.path.name.endswith(".xplane.pb")
    assert list(recording.path.parent.glob("*.trace.json.gz")), "what Perfetto opens"
    step.compiled(*recording.state)  # what was donated comes back


def test_a_disturbed_recording_is_repeated_and_in_the_end_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile.Recording, "undisturbed", property(lambda self: False))
    started: list[int] = []
    start = jax.profiler.start_trace
    monkeypatch.setattr(
        jax.profiler, "start_trace", lambda *a, **k: (started.append(1), start(*a, **k))
    )
    removed: list[Path] = []
    remove = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path: (removed.append(path), remove(path)))
    step, plan, state = build("dp")
    found = profile_run(step, state, plan, 2, tmp_path)
    assert len(started) == profile.MOST_RECORDINGS
    assert len(removed) == profile.MOST_RECORDINGS - 1
    assert Path(found.path).exists()
    assert "page faults each" in found.warnings[-1]


def test_page_faults_tell_a_disturbed_recording() -> None:
    def recording(faults: tuple[int, ...], usual: int) -> Recording:
        before = Cost((0.1, 0.1), (usual + 9, usual))
        return Recording(Path(), Cost((0.1,) * len(faults), faults), before, ())

    assert recording((0, 5, 10, 1999), 0).undisturbed
    assert recording((0, 5, 10, 125_000), 0).undisturbed  # one of four
    assert not recording((0, 5, 125_000, 125_000), 0).undisturbed
    assert recording((125_000,) * 4, 125_000).undisturbed
    assert recording((0,) * 4, 0).warnings(4) == []
    assert recording((9_000,) * 4, 0).warnings(4) == [
        "recording cost the profiled steps up to 9,000 page faults each, where there were 0"
    ]


def test_slow_and_few_steps_are_told(tmp_path: Path) -> None:
    trace_file = tmp_path / "host.xplane.pb"
    trace_file.write_bytes(b"x" * 3000)
    slow = Recording(trace_file, Cost((0.2, 0.3), (0, 0)), Cost((0.1, 0.15), (0, 0)), ())
    few, slowed = slow.warnings(5)
    assert few == "profiled 2 of 5 steps, since each leaves 1.5 kB of trace"
    assert "from 150 ms to 250 ms" in slowed


def test_large_traces_are_of_fewer_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "MOST_TRACE_BYTES", 1.0)
    step, plan, state = build("dp")
    found = profile_run(step, state, plan, 4, tmp_path)
    assert len(found.step_s) == len(found.shares.total_s) == 1
    assert found.warnings[0].startswith("profiled 1 of 4 steps")


def test_devices_are_known_by_their_place_in_the_mesh() -> None:
    devices = jax.devices()[:4]
    mesh = Mesh(np.array(devices[::-1]).reshape(2, 2), ("data", "tensor"))
    assert device_numbers(mesh) == {3: 0, 2: 1, 1: 2, 0: 3}


@pytest.mark.parametrize(("platform", "numbers"), [("cpu", [2048, 2049]), ("gpu", [0, 1])])
def test_a_profile_has_its_own_numbers_for_devices_of_many_processes(
    monkeypatch: pytest.MonkeyPatch, platform: str, numbers: list[int]
) -> None:
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    devices = [
        SimpleNamespace(platform=platform, process_index=p, id=2048 * p + k, local_hardware_id=k)
        for p in range(2)
        for k in range(2)
    ]
    mesh = cast(Mesh, SimpleNamespace(devices=np.array(devices, dtype=object)))
    assert device_numbers(mesh) == {numbers[0]: 2, numbers[1]: 3}


def test_what_can_not_be_recorded_is_told(tmp_path: Path) -> None:
    step, _, state = build("dp")
    with pytest.raises(InputError, match="at least 1 is needed"):
        record_profile(step.compiled, state, 0, tmp_path, "cpu")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="can't write profiles to"):
        record_profile(step.compiled, state, 1, tmp_path / "file" / "deeper", "cpu")
    jax.profiler.start_trace(tmp_path)
    try:
        with pytest.raises(RunError, match="the profiler can't be started"):
            record_profile(step.compiled, state, 1, tmp_path, "cpu")
    finally:
        jax.profiler.stop_trace()
