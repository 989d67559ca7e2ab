"""Worlds that the user spells out: --coordinator and its companions, and --processes."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from jaxbench.errors import InputError
from jaxbench.launch.addresses import is_loopback
from jaxbench.launch.slurm_world import nearness, nodes_of
from jaxbench.launch.world import World

NAMES = ("coordinator", "num_processes", "process_id")
MOST_PROCESSES = 4096  # to be started on one host

# What a process that we start finds in its environment: index/count/port/token.
LOCAL = "JAXBENCH_LOCAL_PROCESS"


def given(flags: Mapping[str, str], env: Mapping[str, str]) -> World | None:
    """Return the world of --coordinator, --num_processes and --process_id; None without them."""
    texts = {name: flags.get(name, "").strip() for name in NAMES}
    if not any(texts.values()):
        return None
    faults = []
    if missing := [f"--{name}" for name, text in texts.items() if not text]:
        there = [f"--{name}" for name, text in texts.items() if text]
        faults.append(f"{', '.join(there)} without {' and '.join(missing)}: all three are needed")
    host, port = split_address(texts["coordinator"])
    if texts["coordinator"] and port is None:
        faults.append(
            f"--coordinator is '{texts['coordinator']}'; it must be the host of process 0 and a "
            "free port there, as in node1:23456"
        )
    count, index = texts["num_processes"], texts["process_id"]
    if count and not (count.isdecimal() and int(count) > 0):
        faults.append(f"--num_processes is '{count}'; it must be a whole number from 1")
        count = ""
    if index and not (index.isdecimal() and (not count or int(index) < int(count))):
        last = f" to {int(count) - 1}" if count else ""
        faults.append(f"--process_id is '{index}'; it must be a whole number from 0{last}")
    if faults:
        raise InputError(faults)
    assert port is not None
    switches, group = nearness(env)
    return World(
        "--coordinator",
        index=int(index),
        count=int(count),
        key=f"coordinator {texts['coordinator']}",
        hosts=(host,),
        ports=(port,),
        host=env.get("SLURMD_NODENAME") or platform.node(),
        nodes=nodes_of(env),
        local=is_loopback(host),
        switches=switches,
        group=group,
    )


def to_start(flags: Mapping[str, str]) -> int:
    """Return how many processes --processes wants on this host; 0 if it isn't given."""
    text = flags.get("processes", "").strip()
    if text and not (text.isdecimal() and 1 <= int(text) <= MOST_PROCESSES):
        raise InputError(
            f"--processes is '{text}'; it must be a whole number from 1 to {MOST_PROCESSES}"
        )
    return int(text or 0)


def local_child(env: Mapping[str, str]) -> World | None:
    """Return the world of a process that `local_processes` has started."""
    if LOCAL not in env:
        return None
    index, count, port, token = env[LOCAL].split("/")
    return World(
        "--processes",
        index=int(index),
        count=int(count),
        key=f"local {token}",
        hosts=("127.0.0.1",),
        ports=(int(port),),
        reserved=True,
        host=platform.node(),
    )


def split_address(text: str) -> tuple[str, int | None]:
    """Return host and port of 'host:port' or '[address]:port'; the port is None if it is wrong."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    good = colon and host and port.isdecimal() and 0 < int(port) < 65536
    return host, int(port) if good else None
