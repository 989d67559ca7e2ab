"""What processes tell of themselves when they meet, and how they are arranged by it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jaxbench.launch.devices import Visible, own_share, visible_devices
from jaxbench.launch.world import World
from jaxbench.measure.processes import Place, own_cores


@dataclass(frozen=True)
class Member:
    """What a process tells of itself.

    `machine` tells real machines apart, where nodes of a scheduler may share one; `pids` is the
    same for processes among which a pid means the same.
    """

    place: Place
    pid: int
    machine: str
    pids: str
    cores: tuple[int, ...]
    visible: Visible

    def to_message(self) -> dict[str, Any]:
        """Return it for the wire."""
        return {**asdict(self), "place": self.place._asdict()}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Member:
        """Return it from the wire; KeyError or TypeError where it is none."""
        place = dict(message["place"])
        return cls(
            place=Place(place["host"], tuple(place["switches"]), place["group"]),
            pid=int(message["pid"]),
            machine=str(message["machine"]),
            pids=str(message["pids"]),
            cores=tuple(message["cores"]),
            visible=Visible(**message["visible"]),
        )


def this_member(world: World, env: Mapping[str, str]) -> Member:
    """Return what this process tells of itself."""
    return Member(
        Place(world.host or platform.node(), world.switches, world.group),
        os.getpid(),
        machine_id(),
        f"{machine_id()}/{pid_space()}",
        tuple(own_cores()),
        visible_devices(env),
    )


def machine_id() -> str:
    """Return what is the same for all processes of a machine, in containers and namespaces too."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def pid_space() -> str:
    """Return the namespace of this process's pid."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def arrange(members: Mapping[int, Member]) -> dict[int, dict[str, Any]]:
    """Return what each process is told of the others, by its number.

    `order` puts processes that are near each other next to each other; process 0 gets the `places`
    of all, the others their own. The `deputy` speaks if process 0 is lost: the first process of
    another host, which isn't lost with it, or else of this one.
    """
    order = near_order({k: m.place for k, m in members.items()})
    by_machine: dict[str, list[int]] = {}
    by_host: dict[str, list[int]] = {}
    for number, member in sorted(members.items()):
        by_machine.setdefault(member.machine, []).append(number)
        by_host.setdefault(f"{member.machine}/{member.place.host}", []).append(number)
    elsewhere = [k for k in sorted(members) if members[k].place.host != members[0].place.host]
    places = [members[k].place for k in sorted(members)]
    host_cores = {
        machine: len({core for k in numbers for core in members[k].cores})
        for machine, numbers in by_machine.items()
    }
    shares: dict[int, tuple[list[int] | None, str | None]] = {}
    for together in by_host.values():
        visible = [members[k].visible for k in together]
        shares |= {k: own_share(position, visible) for position, k in enumerate(together)}
    told: dict[int, dict[str, Any]] = {}
    for number, member in members.items():
        share, fault = shares[number]
        told[number] = {
            "order": order,
            "host_cores": host_cores[member.machine],
            "host_processes": len(by_machine[member.machine]),
            "local_device_ids": share,
            "device_fault": fault,
            "deputy": elsewhere[0] if elsewhere else 1,
            "machine": members[0].machine,
            "places": [p._asdict() for p in (places if number == 0 else [member.place])],
        }
    return told


def near_order(places: Mapping[int, Place]) -> list[int]:
    """Return the processes by switch, then host, then number.

    Switches and hosts come in the order of their first process, so that process 0 stays first and
    a launcher's order is kept as far as nearness allows.
    """
    first: dict[tuple[str, ...], int] = {}
    paths: dict[int, list[tuple[str, ...]]] = {}
    for number, place in sorted(places.items()):
        names = (*place.switches, place.host)
        paths[number] = [names[: k + 1] for k in range(len(names))]
        for path in paths[number]:
            first.setdefault(path, number)

    def key(number: int) -> tuple[int, ...]:
        return (*(first[path] for path in paths[number]), number)

    return sorted(places, key=key)
