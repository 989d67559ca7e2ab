"""What a machine can't do of what is asked of it, to be asked before anything is run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from jaxbench.errors import InputError
from jaxbench.experiment import Experiment
from jaxbench.measure.agree import everywhere
from jaxbench.measure.processes import devices_for, here
from jaxbench.payload.sleep import REFUSAL
from jaxbench.readings.plan import plan_experiment
from jaxbench.units import format_bytes


def machine_faults(experiments: Sequence[Experiment], devices: Sequence[Any]) -> list[str]:
    """Return why these devices can't run the experiments: memory, or a payload they refuse."""
    platform, faults = devices[0].platform, []
    for e in experiments:
        needed = plan_experiment(e, platform).memory.total_bytes
        try:
            faults.append(memory_fault(needed, devices_for(e.devices, devices), e.describe()))
        except InputError as error:
            faults += error.faults
        if e.payload == "sleep" and platform != "cpu":
            faults.append(REFUSAL.format(platform))
    return list(dict.fromkeys(fault for fault in faults if fault))


def choose_payload(payload: str, devices: int, platform: str) -> str:
    """Resolve the payload 'auto': matmul, but sleep where virtual devices outnumber the cores.

    On any machine: every process must call it.
    """
    if payload != "auto":
        return payload
    processes = here()
    each = devices // processes.count
    fits = each * processes.host_processes <= processes.host_cores
    return "matmul" if everywhere(platform != "cpu" or fits) else "sleep"


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_bytes(device: Any) -> int | None:
    """Return what a device's memory holds, None if unknown; of the host's free memory on CPU."""
    if device.platform == "cpu":
        return _host_available()
    stats = device.memory_stats() or {}
    return stats.get("bytes_limit")


def memory_fault(
    needed_per_device: int,
    devices: list[Any],
    what: str,
    remedy: str = "lower --size_scale, or use more devices",
) -> str | None:
    """Return why `devices` can't hold `needed_per_device` bytes each, None if they can.

    Each process asks of its own ones: JAX knows no memory of the others'.
    """
    processes = here()
    own = [device for device in devices if device.process_index == processes.index]
    if not own:
        return None  # no rank is here: those who have some ask
    available = available_bytes(own[0])
    shared = own[0].platform == "cpu"
    # The processes of this host have equally many devices, if they have any in this run.
    on_host = min(len(own) * processes.host_processes, len(devices)) if shared else 1
    needed = needed_per_device * on_host
    if available is None or needed <= available:
        return None
    where = "this host has free" if shared else f"a device ({own[0].device_kind}) has"
    asked, there = format_bytes(needed), format_bytes(available)
    return f"{what} needs {asked} of memory, {where} {there}: {remedy}"


def _host_available() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
