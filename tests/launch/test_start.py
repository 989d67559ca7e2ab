"""Devices: virtual ones as many as asked for, real ones never replaced by fewer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jaxbench.errors import InputError
from jaxbench.launch.start import check_devices, wants_virtual_devices

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


def test_a_user_s_own_count_wins_and_is_checked() -> None:
    assert start(2, env={"JAX_NUM_CPU_DEVICES": "3"}).stdout == "3\n"
    few = start(4, env={"JAX_NUM_CPU_DEVICES": "3"})
    assert few.returncode == 1
    assert "the runs need 4 devices and JAX has 3 (cpu)" in few.stderr
    assert "need 4 devices and JAX has 3" in start(4, env=FORCED).stderr
