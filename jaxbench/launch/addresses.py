"""Where process 0 can be reached by all others, found before JAX would abort for not finding it."""

from __future__ import annotations

import ipaddress
import re
import socket
import subprocess
from collections.abc import Callable, Iterable

from jaxbench.errors import InputError
from jaxbench.launch.world import World

ANY = "::"  # listen on every address of this host
SCONTROL_LIMIT_S = 10.0

Resolve = Callable[[str], list[str]]


def resolve(name: str) -> list[str]:
    """Return the addresses of a host, IPv4 first; none if its name is not known here."""
    if not name:
        return []
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = dict.fromkeys(str(address[0]) for _, _, _, _, address in found)
    return sorted(addresses, key=lambda a: ":" in a)


def node_address(node: str) -> str | None:
    """Return the NodeAddr by which Slurm itself reaches a node; None if scontrol doesn't tell."""
    command = ["scontrol", "--oneliner", "show", "node", node]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SCONTROL_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\bNodeAddr=(\S+)", done.stdout)
    return found[1] if found and found[1] != node else None


def is_loopback(host: str) -> bool:
    """Tell whether a name or address says itself that only its own host can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("localhost.")


def addresses_of_first(
    world: World,
    find: Resolve = resolve,
    by_scheduler: Callable[[str], str | None] = node_address,
) -> tuple[str, ...]:
    """Return the addresses at which process 0 of this world is to be looked for.

    InputError if its host's name has none, or if it is loopback and other hosts are to reach it.
    """
    if world.local:
        return _all(world, find) if any(map(is_loopback, world.hosts)) else ("127.0.0.1",)
    found = _all(world, find)
    asked = ""
    if not found and world.source == "srun":
        told = by_scheduler(world.hosts[0])
        found = tuple(find(told)) if told else ()
        asked = (
            f", and neither does the NodeAddr that Slurm has for it ({told})"
            if told
            else ", and scontrol shows no NodeAddr of it"
        )
    if not found:
        raise InputError(
            f"process 0 is to be on '{', '.join(world.hosts)}', a name that has no address on "
            f"this host ({world.host}){asked}: mend /etc/hosts or DNS, or give the address by "
            "--coordinator, --num_processes and --process_id"
        )
    reachable = tuple(a for a in found if not is_loopback(a))
    if reachable or _one_machine(world, find, by_scheduler):
        return reachable or found
    if world.index == 0 and not any(map(is_loopback, world.hosts)):
        return (ANY,)  # /etc/hosts often gives a host's own name a loopback address
    raise InputError(
        f"process 0 is on '{', '.join(world.hosts)}', which is {', '.join(found)} on this host "
        f"({world.host}): a loopback address, which other hosts can't reach; give its address by "
        "--coordinator, --num_processes and --process_id"
    )


def own_name_fault(
    world: World, address: str, find: Resolve = resolve, name: str | None = None
) -> str | None:
    """Return why gloo on this host couldn't be reached by others: it listens at the host's name.

    `address` is where process 0 was found: where that is loopback, so may this be.
    """
    if world.local or is_loopback(address):
        return None
    name = socket.gethostname() if name is None else name
    found = find(name)
    if any(not is_loopback(a) for a in found):
        return None
    what = f"is {', '.join(found)}, which other hosts can't reach" if found else "has no address"
    return (
        f"this host's name '{name}' {what}: XLA's CPU collectives (gloo) listen there; mend "
        "/etc/hosts or DNS"
    )


def _all(world: World, find: Resolve) -> tuple[str, ...]:
    return tuple(dict.fromkeys(a for host in world.hosts for a in find(host)))


def _one_machine(world: World, find: Resolve, by_scheduler: Callable[[str], str | None]) -> bool:
    """Tell whether all nodes are loopback: a cluster of virtual nodes on one machine."""
    if not world.nodes:
        return False
    return all(_loopback_only(find(node) or find(by_scheduler(node) or "")) for node in world.nodes)


def _loopback_only(addresses: Iterable[str]) -> bool:
    addresses = list(addresses)
    return bool(addresses) and all(map(is_loopback, addresses))
