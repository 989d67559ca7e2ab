"""How much memory there is for a run, to be asked before it is allocated."""

from __future__ import annotations

from typing import Any

from jaxbench.units import format_bytes


def available_bytes(device: Any) -> int | None:
    """Return what a device's memory holds, None if unknown; of the host's free memory on CPU."""
    if device.platform == "cpu":
        return _host_available()
    stats = device.memory_stats() or {}
    return stats.get("bytes_limit")


def memory_fault(needed_per_device: int, devices: list[Any], what: str) -> str | None:
    """Return why `devices` can't hold `needed_per_device` bytes each, None if they can."""
    available = available_bytes(devices[0])
    shared = devices[0].platform == "cpu"
    needed = needed_per_device * len(devices) if shared else needed_per_device
    if available is None or needed <= available:
        return None
    where = "this host has free" if shared else f"a device ({devices[0].device_kind}) has"
    return (
        f"{what} needs {format_bytes(needed)} of memory, {where} {format_bytes(available)}: "
        "lower --size_scale, or use more devices"
    )


def _host_available() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
