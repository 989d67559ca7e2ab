"""Start the backend with the devices that the runs need: nothing touches it before this.

On CPU the devices are virtual, as many as asked for. Accelerators are what they are: too
few is an error, never a smaller mesh.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from jaxbench.errors import InputError


def start(devices: int, expected: Collection[int] = ()) -> None:
    """Start JAX with at least `devices` devices, and exactly as many as each of `expected`.

    Raises InputError, naming both numbers, where the machine has other ones.
    """
    import jax

    settings = jax.config.values
    if wants_virtual_devices(
        settings["jax_platforms"], os.environ, settings["jax_num_cpu_devices"]
    ):
        try:
            jax.config.update("jax_num_cpu_devices", devices)
        except RuntimeError:
            pass  # the backend runs already: the count below decides
    check_devices(jax.device_count(), jax.default_backend(), devices, expected)


def wants_virtual_devices(platforms: str | None, env: Mapping[str, str], count: int) -> bool:
    """Tell whether to set the number of CPU devices.

    Not where another platform was asked for, nor where the user has set a number: by
    JAX_NUM_CPU_DEVICES (then `count` isn't -1) or in XLA_FLAGS.
    """
    if platforms and "cpu" not in platforms.split(",")[0]:
        return False
    return count < 0 and "--xla_force_host_platform_device_count" not in env.get("XLA_FLAGS", "")


def check_devices(found: int, platform: str, needed: int, expected: Collection[int] = ()) -> None:
    """Raise InputError unless `found` devices are enough, and as many as expected."""
    faults = []
    if found < needed:
        remedy = {
            "cpu": "unset JAX_NUM_CPU_DEVICES and --xla_force_host_platform_device_count",
        }.get(platform, "use a smaller mesh, or JAX_PLATFORMS=cpu for virtual devices")
        faults.append(f"the runs need {needed} devices and JAX has {found} ({platform}): {remedy}")
    faults += [
        f"--expect_devices is {count} and JAX has {found} ({platform}): "
        "look for processes or devices that did not join"
        for count in sorted({*expected} - {found})
    ]
    if faults:
        raise InputError(faults)
