"""Join the processes of a run, before JAX is imported."""

from __future__ import annotations

import os
import platform
import resource
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jaxbench.errors import InputError, RunError
from jaxbench.launch.addresses import addresses_of_first
from jaxbench.launch.arrangement import this_member
from jaxbench.launch.channel import Channel, say
from jaxbench.launch.devices import uses_accelerators
from jaxbench.launch.hub import Hub
from jaxbench.launch.relay import relay
from jaxbench.launch.rendezvous import bound, claim_host, listen, look_for_first, shown
from jaxbench.launch.watch import FAILED, Limits, Verdict
from jaxbench.launch.wire import Wire
from jaxbench.launch.world import World
from jaxbench.measure.processes import STAGES, Alone, Place, join


class Joined(Channel):
    """The channel, and where process 0 and JAX's own coordinator there are to be found.

    `bind` is where that listens, on process 0, and `reserved` keeps its port. `claim` is that of
    the first on this host.
    """

    first_address = ""
    coordinator = ""
    bind = ""
    claim: socket.socket | None = None
    reserved: socket.socket | None = None


def join_world(world: World, limits: Limits, who: str) -> Joined | None:
    """Meet the others, and return this process among them; None where it is alone.

    `who` begins the messages of the job. InputError where they can't be met by what is given;
    SystemExit where process 0 isn't found, which one process of each host has said.
    """
    if world.count == 1:
        join(Alone(Place(world.host or platform.node(), world.switches, world.group)))
        return None
    began = time.perf_counter()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if world.source == "mpirun":
        os.environ["TERM"] = "dumb"  # what looks like a terminal of 80 columns is mpirun's pipe
    _allow_many_files()
    addresses = addresses_of_first(world)
    member = this_member(world, os.environ)
    hello = {
        "key": world.key,
        "index": world.index,
        "count": world.count,
        "member": member.to_message(),
    }
    if world.index == 0:
        joined = _be_first(world, addresses, member, limits, who, hello)
    else:
        claim = claim_host(world.key)
        try:
            wire = look_for_first(world, addresses, hello, limits.stages["start"])
        except RunError as error:
            if claim:  # for all: they can't know of each other
                say(f"{who}: {error}")
            raise SystemExit(FAILED) from None
        joined = Joined(world, wire, member, limits, who)
        joined.claim, joined.speaks = claim, claim is not None
        joined.first_address = wire.sock.getpeername()[0]
    arranged = joined.arrive()
    joined.start_s["join"] = time.perf_counter() - began
    join(joined)
    port = joined.from_first(joined.reserved.getsockname()[1] if joined.reserved else 0)
    host = joined.first_address
    if world.index == 0:
        joined.coordinator = joined.bind = shown(host, port)
    else:
        joined.coordinator = shown("127.0.0.1", relay(host, port))
    if arranged["device_fault"] and uses_accelerators(os.environ.get("JAX_PLATFORMS", "")):
        raise InputError(arranged["device_fault"])
    return joined


def read_limits(flags: Mapping[str, str]) -> Limits:
    """Return the limits of --silence_s and --stage_limits; InputError with all that is wrong."""
    faults = []
    silence_s = Limits().silence_s
    if text := flags.get("silence_s", "").strip():
        value = _seconds(text)
        if value is None or value < 3:
            faults.append(f"--silence_s is '{text}'; it must be a number of seconds from 3")
        silence_s = value or silence_s
    stages = dict(STAGES)
    for part in filter(None, (p.strip() for p in flags.get("stage_limits", "").split(","))):
        name, _, text = part.partition("=")
        seconds = _seconds(text)
        if name not in STAGES or seconds is None:
            faults.append(
                f"--stage_limits has '{part}'; it must be stage=seconds, with the stages "
                f"{', '.join(STAGES)}"
            )
        else:
            stages[name] = seconds
    if faults:
        raise InputError(faults)
    return Limits(silence_s, stages)


def _be_first(
    world: World,
    addresses: Sequence[str],
    member: Any,
    limits: Limits,
    who: str,
    hello: dict[str, Any],
) -> Joined:
    listener = listen(world, addresses)
    address = listener.getsockname()[0]
    ours, theirs = socket.socketpair()
    wire = Wire(ours)
    joined = Joined(world, wire, member, limits, who)

    def end(verdict: Verdict, kept: Sequence[Any]) -> None:
        joined.finish(verdict, kept)

    wire.send("hello", **hello)
    Hub(listener, theirs, world.key, world.count, limits, end).start()
    joined.first_address = address
    joined.reserved = bound(address, 0)
    return joined


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None


def _allow_many_files() -> None:
    """Raise the limit of open files to what is allowed: process 0 has a connection to each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
