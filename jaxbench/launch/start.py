"""Start the backend with the devices that the runs need: nothing touches it before this.

On CPU the devices are virtual, as many as asked for, an equal share in each process. Accelerators
are what they are: too few is an error, never a smaller mesh.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping

from jaxbench.errors import InputError
from jaxbench.launch.addresses import own_name_fault
from jaxbench.launch.devices import uses_accelerators
from jaxbench.launch.join import Joined
from jaxbench.measure.processes import here

# Ours is the watchdog, and it is faster: JAX's own is to come after it, and never to wait long.
HEARTBEAT_S = 100
SHUTDOWN_S = 10
MORE_THAN_OURS_S = 30  # before JAX gives up waiting for the others, which it does by aborting


def start(devices: int, expected: Collection[int] = ()) -> None:
    """Start JAX with at least `devices` devices, and exactly as many as each of `expected`.

    Raises InputError, naming both numbers, where the machine has other ones.
    """
    processes = here()
    processes.stage("backend")
    if isinstance(processes, Joined):
        _without_proxies()
    import jax

    count = processes.count
    settings = jax.config.values
    if wants_virtual_devices(
        settings["jax_platforms"], os.environ, settings["jax_num_cpu_devices"]
    ):
        if devices % count:
            raise InputError(
                f"{devices} devices can't be shared out evenly to {count} processes: --devices or "
                "--mesh must be a multiple of them"
            )
        try:
            jax.config.update("jax_num_cpu_devices", devices // count)
        except RuntimeError:
            pass  # the backend runs already: the count below decides
    if isinstance(processes, Joined):
        _start_distributed(processes)
    elif jax.process_count() > 1:
        raise InputError(
            f"JAX has {jax.process_count()} processes that jaxbench knows nothing of: give "
            "--coordinator, --num_processes and --process_id, or start them with srun or Open MPI"
        )
    found = Counter(device.process_index for device in jax.devices())
    check_devices(jax.device_count(), jax.default_backend(), devices, expected)
    if len(set(found.values())) > 1 or len(found) < count:
        told = ", ".join(f"process {k} has {found[k]}" for k in range(count))
        raise InputError(f"the processes must have equally many devices: {told[:500]}")


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


def _start_distributed(processes: Joined) -> None:
    """Start JAX's own coordinator and clients, whose backends then find each other."""
    import jax

    if not uses_accelerators(jax.config.values["jax_platforms"] or ""):
        fault = own_name_fault(processes.world, processes.first_address)
        if fault:
            raise InputError(fault)
        _gloo_be_quiet()
    # It would take SIGTERM for itself, and only wait for a training loop to ask about it.
    jax.config.update("jax_enable_preemption_service", False)
    began = time.perf_counter()
    jax.distributed.initialize(
        coordinator_address=processes.coordinator,
        num_processes=processes.count,
        process_id=processes.index,
        local_device_ids=processes.arranged["local_device_ids"],
        cluster_detection_method="deactivate",
        initialization_timeout=round(processes.limits.stages["backend"]) + MORE_THAN_OURS_S,
        heartbeat_timeout_seconds=HEARTBEAT_S,
        shutdown_timeout_seconds=SHUTDOWN_S,
        coordinator_bind_address=processes.bind or None,
    )
    connected = time.perf_counter()
    jax.devices()
    processes.start_s |= {
        "initialize": connected - began,
        "backend": time.perf_counter() - connected,
    }
    if processes.reserved:
        processes.reserved.close()


def _without_proxies() -> None:
    """Forget the proxies of this environment: gRPC would look for process 0 through them."""
    for name in [n for n in os.environ if n.lower() in ("http_proxy", "https_proxy", "grpc_proxy")]:
        del os.environ[name]


def _gloo_be_quiet() -> None:
    """Keep what XLA's collectives on CPU print to stdout, a line for every group, out of it.

    Python goes on writing to where it did.
    """
    sys.stdout.flush()
    own = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding, errors="replace")
