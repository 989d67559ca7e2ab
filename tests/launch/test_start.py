"""Devices: virtual ones as many as asked for, real ones never replaced by fewer."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import jax
import pytest

from jaxbench.errors import InputError
from jaxbench.launch import start as module
from jaxbench.launch.join import Joined
from jaxbench.launch.start import check_devices, wants_virtual_devices
from jaxbench.launch.watch import Limits
from jaxbench.measure.processes import STAGES

FORCED = {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}


@pytest.mark.parametrize(
    ("platforms", "env", "count", "wanted"),
    [
        (None, {}, -1, True),
        ("", {}, -1, True),
        ("cpu", {}, -1, True),
        ("cpu,cuda", {}, -1, True),
        ("cuda", {}, -1, False),
        ("cuda,cpu", {}, -1, False),
        ("cpu", {}, 4, False),
        ("cpu", FORCED, -1, False),
    ],
)
def test_when_devices_are_virtual(
    platforms: str | None, env: dict[str, str], count: int, wanted: bool
) -> None:
    assert wants_virtual_devices(platforms, env, count) is wanted


def test_too_few_devices_name_both_numbers() -> None:
    with pytest.raises(InputError, match="need 8 devices and JAX has 4 .gpu.: use a smaller mesh"):
        check_devices(4, "gpu", 8)
    with pytest.raises(InputError, match="unset JAX_NUM_CPU_DEVICES"):
        check_devices(4, "cpu", 8)


def test_the_expected_world() -> None:
    check_devices(8, "gpu", 8, [8])
    check_devices(8, "gpu", 4)
    with pytest.raises(InputError, match="--expect_devices is 16 and JAX has 8"):
        check_devices(8, "gpu", 8, [8, 16])
    with pytest.raises(InputError) as caught:
        check_devices(1, "gpu", 8, [16])
    assert len(caught.value.faults) == 2


def start(
    devices: int, expected: tuple[int, ...] = (), env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Start a backend of its own, since there is only one per process."""
    code = (
        "import jax, sys; from jaxbench.launch.start import start\n"
        "from jaxbench.errors import InputError\n"
        f"try: start({devices}, {expected})\n"
        "except InputError as error: sys.exit(str(error))\n"
        "print(jax.device_count())"
    )
    ours = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", **(env or {})}
    base = {name: os.environ[name] for name in os.environ if name != "JAX_NUM_CPU_DEVICES"}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env={**base, **ours}, capture_output=True, text=True, timeout=100
    )


def test_the_backend_has_the_devices_asked_for() -> None:
    assert start(5, (5,)).stdout == "5\n"


def test_it_is_a_stage_of_its_own_with_jax_s_import_in_it() -> None:
    code = (
        "import sys; from jaxbench.launch.start import start\n"
        "from jaxbench.measure.processes import Alone\n"
        "Alone.stage = lambda self, name, number=None: print(name, 'jax' in sys.modules)\n"
        "start(1)"
    )
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "backend False\n", done.stderr


def test_jax_waits_longer_than_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its abort would come first, which names nobody."""
    told: dict[str, Any] = {}
    processes = SimpleNamespace(
        limits=Limits(stages={**STAGES, "backend": 500.0}),
        coordinator="127.0.0.1:1",
        count=2,
        index=1,
        arranged={"local_device_ids": None},
        bind="",
        reserved=None,
        start_s={},
    )
    monkeypatch.setattr(module, "uses_accelerators", lambda _: True)
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: told.update(given))
    monkeypatch.setattr(jax, "devices", lambda: [])
    usual = jax.config.values["jax_enable_preemption_service"]
    try:
        module._start_distributed(cast(Joined, processes))
    finally:
        jax.config.update("jax_enable_preemption_service", usual)
    assert 500 < told["initialization_timeout"] <= 560


def test_a_user_s_own_count_wins_and_is_checked() -> None:
    assert start(2, env={"JAX_NUM_CPU_DEVICES": "3"}).stdout == "3\n"
    few = start(4, env={"JAX_NUM_CPU_DEVICES": "3"})
    assert few.returncode == 1
    assert "the runs need 4 devices and JAX has 3 (cpu)" in few.stderr
    assert "need 4 devices and JAX has 3" in start(4, env=FORCED).stderr
