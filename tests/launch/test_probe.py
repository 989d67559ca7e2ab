"""A child that tries JAX: what it finds, and that nothing it does hurts the one who asks."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import pytest

import jaxbench
from jaxbench.launch import probe
from jaxbench.launch.probe import Probe, finish_probe, start_probe

PATH = os.path.dirname(os.path.dirname(jaxbench.__file__))


def probed(env: Mapping[str, str], devices: int = 0, limit_s: float = 100.0) -> Probe:
    own = {**os.environ, "PYTHONPATH": PATH, "JAX_PLATFORMS": "cpu", **env}
    return finish_probe(start_probe(own, devices), time.monotonic() + limit_s)


def test_virtual_devices_and_the_native_sleep() -> None:
    found = probed({}, devices=3)
    assert found.failure == "" and found.failed_stage is None
    assert list(found.stages) == list(probe.STAGES)
    assert found.stages["backend"] == {"platform": "cpu", "devices": 3, "kinds": ["cpu"]}
    assert found.stages["psum"] == {"wanted": 6, "wrong": {}}
    assert found.stages["native"]["available"] or found.stages["native"]["reason"]


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({"JAX_PLATFORMS": "nonesuch"}, "Unable to initialize backend 'nonesuch'"),
        ({"XLA_FLAGS": "--xla_nonesuch=1"}, "Unknown flag in XLA_FLAGS: --xla_nonesuch=1"),
    ],
)
def test_a_backend_that_doesn_t_start(env: dict[str, str], text: str) -> None:
    found = probed(env)
    assert found.failed_stage == "backend" and text in found.failure
    assert "\n" not in found.failure


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import time; time.sleep(60)", "it did not come to an end in time"),
        ("import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV: it said nothing"),
        ("import os; os.kill(os.getpid(), 40)", "killed by signal 40"),
        ("import sys; sys.exit('Error: no driver')", "ended with code 1: Error: no driver"),
    ],
)
def test_a_child_that_hangs_or_dies(monkeypatch: pytest.MonkeyPatch, code: str, text: str) -> None:
    told = "print('chatter'); print('{\"stage\": \"import\"}', flush=True); "
    monkeypatch.setattr(probe, "CODE", told + code)
    start = time.monotonic()
    found = probed({}, limit_s=2.0)
    assert time.monotonic() - start < 10
    assert found.stages == {"import": {}} and found.failed_stage == "backend"
    assert found.failure.startswith(text)


def test_what_a_child_started_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    grandchild = (
        "import subprocess, json, time; p = subprocess.Popen(['sleep', '60']); "
        "print(json.dumps({'stage': 'import', 'pid': p.pid}), flush=True); time.sleep(60)"
    )
    monkeypatch.setattr(probe, "CODE", grandchild)
    pid = probed({}, limit_s=2.0).stages["import"]["pid"]
    deadline = time.monotonic() + 5
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(pid)


def running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
