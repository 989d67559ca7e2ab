import json
import socket
import subprocess
import sys
from dataclasses import dataclass

import jax
import pytest
from jax.sharding import AxisType

from jaxbench.errors import InputError
from jaxbench.measure import calibrate as module
from jaxbench.measure.calibrate import Calibration, Check, MeshClock, calibrate
from jaxbench.payload import sleep
from jaxbench.payload.none import NoFit
from jaxbench.payload.sleep import Sleep


def mesh_of(**axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


@pytest.fixture
def slept(monkeypatch):
    """Return the list to which every executed callback sleep adds its length."""
    executed = []
    wait = sleep._wait

    def counted(seconds, token):
        executed.append(seconds)
        return wait(seconds, token)

    monkeypatch.setattr(sleep, "_wait", counted)
    return executed


def test_every_device_of_every_axis_runs_each_compute(slept):
    clock = MeshClock(mesh_of(data=2, pipeline=1, tensor=3))
    (samples,) = clock.samples([Sleep(1_000_000, native=False)])
    # Two warm-ups and one run per sample, of a program with 1 and one with 1 + more computes.
    runs = 2 + len(samples)
    more, rest = divmod(len(slept) // (6 * runs) - 2, 1)
    assert rest == 0 and 1 <= more <= module.CHAIN_LIMIT
    assert len(slept) == 6 * runs * (2 + more)


@dataclass(frozen=True)
class Recorded:
    """A payload that stands for a program in a clock without time."""

    name: str
    seconds: float

    def apply(self, token):
        raise AssertionError("compiled")


def clock_without_time(monkeypatch, start_s=0.002):
    """Make a clock whose programs 'take' start_s + computes * seconds, and log them."""
    ran = []
    clock = MeshClock(mesh_of(data=2), seed=3)
    monkeypatch.setattr(clock, "_program", lambda payload, computes: (payload, computes))

    def seconds(program):
        payload, computes = program
        ran.append((payload.name, computes))
        return start_s + computes * payload.seconds

    monkeypatch.setattr(clock, "_seconds", seconds)
    return clock, ran


@pytest.mark.parametrize("seconds", [1e-5, 0.004, 0.3, 20.0])
def test_starting_a_program_is_no_part_of_a_compute(monkeypatch, seconds):
    clock, _ = clock_without_time(monkeypatch)
    assert clock([Recorded("a", seconds)]) == [pytest.approx(seconds, rel=1e-6)]


def test_payloads_are_measured_in_turns_in_changing_order(monkeypatch):
    clock, ran = clock_without_time(monkeypatch)
    samples = clock.samples([Recorded("a", 0.001), Recorded("b", 0.003)])
    count = len(samples[0])
    assert count == len(samples[1]) > 5
    timed = ran[-4 * count :]
    rounds = [timed[i : i + 4] for i in range(0, 4 * count, 4)]
    assert all({name for name, _ in part} == {"a", "b"} for part in rounds)
    assert len({tuple(part) for part in rounds}) > 2


def test_a_slow_device_is_not_asked_for_long_chains_or_many_samples(monkeypatch):
    clock, ran = clock_without_time(monkeypatch)
    clock([Recorded("a", 2.0)])
    assert {computes for _, computes in ran} == {1, 2}
    assert len(ran) == 2 * (module.WARM_UPS + module.SAMPLES[0])


def test_effort_buys_samples(monkeypatch):
    clock, _ = clock_without_time(monkeypatch)
    clock.effort = 4
    assert len(clock.samples([Recorded("a", 1e-5)])[0]) == 4 * module.SAMPLES[1]


def test_process_0_decides_chain_and_number_of_samples(monkeypatch):
    decided = iter([2, 5])
    monkeypatch.setattr(module, "agree", lambda value: next(decided))
    clock, ran = clock_without_time(monkeypatch)
    (samples,) = clock.samples([Recorded("a", 0.001)])
    assert len(samples) == 5
    assert {computes for _, computes in ran} == {1, 3}


# --- calibration --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "matmul", "sleep"])
def test_every_payload_calibrates_and_is_told_in_json(name):
    found = calibrate(mesh_of(data=2), name, dtype="bfloat16")
    check = found.check(0.002)
    told = json.loads(json.dumps(found.to_dict([check])))
    assert told["payload"] == name and told["devices"] == 2 and told["platform"] == "cpu"
    assert told["checks"][0]["wanted_s"] == 0.002
    assert told["checks"][0]["achieved_s"] == check.achieved_s
    assert hash(found.payload(0.002)) == hash(found.payload(0.002))


def test_a_compute_of_some_length_takes_longer_than_none():
    found = calibrate(mesh_of(data=2), "sleep", dtype="float32")
    assert found.check(0.05).achieved_s > found.check(0.0).achieved_s


def test_an_unknown_payload_is_told_with_the_known_ones():
    with pytest.raises(InputError, match="unknown payload 'sleeep'; did you mean 'sleep'"):
        calibrate(mesh_of(data=2), "sleeep", dtype="float32")


def calibration(name="sleep", devices=8):
    clock = MeshClock(mesh_of(data=1))
    return Calibration(name, "cpu", devices, 0.1, NoFit(), clock)


def test_the_error_is_relative_and_unknown_where_nothing_was_wanted():
    assert Check(0.010, 0.012, ()).error == pytest.approx(0.2)
    assert Check(0.0, 0.001, ()).error is None


def test_warnings_tell_what_is_off_by_more_than_the_tolerance():
    checks = [
        Check(0.010, 0.0102, ()),
        Check(0.020, 0.0226, ()),
        Check(0.005, 0.0040, ()),
        Check(0, 1, ()),
    ]
    warnings = calibration().warnings(checks)
    assert [warning.split(" took")[0] for warning in warnings] == [
        "a compute of 0.02 s",
        "a compute of 0.005 s",
    ]
    assert "+13.0%, tolerance 5.0%) with payload sleep on 8 cpu devices" in warnings[0]
    assert calibration().warnings(checks, tolerance=0.3) == []


def test_matmul_on_more_devices_than_cores_is_pointed_to_sleep(monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: 2)
    late = [Check(0.01, 0.04, ())]
    assert "use --payload=sleep" in calibration("matmul").warnings(late)[-1]
    assert len(calibration("matmul", devices=2).warnings(late)) == 1
    assert len(calibration("sleep").warnings(late)) == 1


TWO_PROCESSES = """
import sys
from jaxbench.launch.join import join_world
from jaxbench.launch.start import start
from jaxbench.launch.watch import Limits
from jaxbench.launch.world import find_world
flags = {"coordinator": sys.argv[1], "num_processes": "2", "process_id": sys.argv[2]}
processes = join_world(find_world(flags, {}), Limits(), "test")
start(4)
import jax
from jax.sharding import AxisType
from jaxbench.measure.agree import agree
from jaxbench.measure.calibrate import calibrate
mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
found = calibrate(mesh, "sleep", dtype="float32", seed=1)
print(agree(0.1 + jax.process_index()), repr(found.fit), found.check(0.004).achieved_s)
processes.leave(0)
"""


def test_two_processes_come_to_one_result():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_PROCESSES, address, str(rank)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [process.communicate(timeout=100)[0].splitlines()[-1] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert told[0] == told[1]
    assert told[0].startswith("0.1 SleepFit(")
