"""Whether memory suffices: each process asks of its own devices, on CPU for all of its host."""

from __future__ import annotations

from typing import Any

import pytest

from jaxbench.measure import machine, processes
from jaxbench.measure.machine import machine_faults, memory_fault
from jaxbench.measure.processes import Alone
from tests.cases import experiment

GB = 10**9


class Device:
    """A device of a process, as process 1 sees it: JAX tells no memory of others' devices."""

    device_kind = "a chip"

    def __init__(self, process: int, number: int, platform: str) -> None:
        self.process_index, self.id, self.platform = process, number, platform

    def memory_stats(self) -> dict[str, int]:
        """Return it, or raise as jaxlib does."""
        if self.process_index != 1:
            raise RuntimeError("MemoryStats is only supported for addressable PjRt devices")
        return {"bytes_limit": 80 * GB}


class Second(Alone):
    """Process 1 of several."""

    index = 1

    def __init__(self, count: int, on_host: int) -> None:
        super().__init__()
        self.count, self.host_processes, self.order = count, on_host, range(count)


def devices(count: int, each: int, platform: str = "gpu") -> list[Any]:
    """Return the devices of all processes."""
    return [Device(p, 2048 * p + k, platform) for p in range(count) for k in range(each)]


def be_second(monkeypatch: pytest.MonkeyPatch, count: int, on_host: int) -> None:
    """Be process 1."""
    monkeypatch.setattr(processes, "_here", [Second(count, on_host)])


def test_a_process_asks_its_own_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    be_second(monkeypatch, 2, 2)
    assert memory_fault(80 * GB, devices(2, 4), "it") is None
    fault = memory_fault(81 * GB, devices(2, 4), "it")
    assert fault and fault.startswith("it needs 81 GB of memory, a device (a chip) has 80 GB: ")


def test_a_smaller_run_has_devices_of_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first four of all devices would be those of process 0."""
    be_second(monkeypatch, 2, 2)
    monkeypatch.setattr(machine, "available_bytes", lambda device: 10 if device.id == 2048 else GB)
    (fault,) = machine_faults([experiment(strategy="dp", mesh="data=4", buckets=2)], devices(2, 4))
    assert "a device (a chip) has 10 B" in fault
    (fault,) = machine_faults([experiment(strategy="dp", mesh="data=3", buckets=2)], devices(2, 4))
    assert "3 devices can't be shared out evenly to 2 processes" in fault


@pytest.mark.parametrize(
    ("count", "on_host", "each", "needed"),
    [(1, 1, 4, "4 GB"), (8, 8, 1, "8 GB"), (8, 4, 2, "8 GB"), (4, 1, 2, "2 GB"), (2, 2, 3, "6 GB")],
)
def test_processes_of_a_host_share_its_memory(
    monkeypatch: pytest.MonkeyPatch, count: int, on_host: int, each: int, needed: str
) -> None:
    if count > 1:
        be_second(monkeypatch, count, on_host)
    monkeypatch.setattr(machine, "available_bytes", lambda device: GB)
    fault = memory_fault(GB, devices(count, each, "cpu"), "it")
    assert fault and fault.startswith(f"it needs {needed} of memory, this host has free 1 GB: ")


def test_a_run_of_few_ranks_needs_no_more_than_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only two of the host's eight processes have one."""
    be_second(monkeypatch, 8, 8)
    monkeypatch.setattr(machine, "available_bytes", lambda device: 2 * GB)
    assert memory_fault(GB, devices(2, 1, "cpu"), "it") is None


def test_a_process_without_a_rank_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    be_second(monkeypatch, 2, 2)
    assert memory_fault(81 * GB, devices(1, 4), "it") is None
