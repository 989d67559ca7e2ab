"""How the processes of a run find each other: process 0 listens, the others look for it."""

from __future__ import annotations

import errno
import hashlib
import socket
import time
from collections.abc import Sequence

from jaxbench.errors import InputError, RunError
from jaxbench.launch.addresses import ANY
from jaxbench.launch.watch import named
from jaxbench.launch.wire import Broken, Wire
from jaxbench.launch.world import World

RETRY_S = 0.1
ANSWER_S = 5.0  # for who listens at a port to be told from a stranger
STRANGER_S = 10.0  # of strangers at every port, before that is taken for the end of it
MOST_WAITING = 4096
ANY_IPV4 = "0.0.0.0"


def listen(world: World, addresses: Sequence[str]) -> socket.socket:
    """Return a listening socket of process 0, at the first of its ports that is free.

    InputError names the ports if all are in use, or the address if it isn't this host's.
    """
    faults: list[str] = []
    for port in world.ports:
        for address in addresses:
            try:
                return bound(address, port, listening=True, shared=world.reserved)
            except OSError as error:
                faults.append(f"{shown(address, port)}: {error.strerror or error}")
    many = len(faults) > 1
    remedy = "--coordinator_port=PORT" if world.source in ("srun", "mpirun") else "another port"
    raise InputError(
        f"process 0 ({world.host}) can't listen at {'any of ' if many else ''}"
        f"{'; '.join(faults)}: give {remedy}, or start process 0 on the host that has the address"
    )


def bound(
    address: str, port: int, *, listening: bool = False, shared: bool = True
) -> socket.socket:
    """Return a socket bound to an address; port 0 is any free one.

    One that is `shared` and doesn't listen keeps the port for a program of ours that binds it with
    SO_REUSEPORT, as JAX's coordinator does. No port is shared but those kept so: the kernel
    would deal out connections to several listeners. ANY is of IPv4 only where IPv6 is off.
    """
    try:
        return _bound(address, port, listening, shared)
    except OSError as error:
        if address != ANY or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        return _bound(ANY_IPV4, port, listening, shared)


def _bound(address: str, port: int, listening: bool, shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        option = socket.SO_REUSEPORT if shared else socket.SO_REUSEADDR
        sock.setsockopt(socket.SOL_SOCKET, option, 1)
        if address == ANY:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((address, port))
        if listening:
            sock.listen(MOST_WAITING)
    except OSError:
        sock.close()
        raise
    return sock


def claim_host(key: str) -> socket.socket | None:
    """Return what shows that this process is the first of the job on its host; None if it isn't.

    For what only one of them is to say while they know nothing of each other. To be kept open
    till the end. The names that Linux gives sockets go when they do; elsewhere all are first.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.bind("\0jaxbench-" + hashlib.sha256(key.encode()).hexdigest()[:32])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            sock.close()
            return None
    return sock


def look_for_first(
    world: World, addresses: Sequence[str], hello: dict[str, object], limit_s: float
) -> Wire:
    """Return a connection to process 0, wherever it is of the addresses and ports.

    RunError says why there is none, after `limit_s`.
    """
    began = time.monotonic()
    reasons: dict[str, str] = {}
    while True:
        strangers = 0
        for port in world.ports:
            for address in addresses:
                where = shown(address, port)
                try:
                    return _meet(address, port, hello, min(ANSWER_S, limit_s))
                except Broken as stranger:
                    reasons[where] = str(stranger)
                    strangers += 1
                except OSError as error:
                    reasons[where] = error.strerror or str(error)
        allowed_s = min(limit_s, STRANGER_S) if strangers == len(reasons) else limit_s
        if time.monotonic() - began > allowed_s:
            break
        time.sleep(RETRY_S)
    told = "; ".join(f"{where}: {reason}" for where, reason in reasons.items())
    raise RunError(
        f"stage start: {named([world.index])} ({world.host}) did not find process 0 within "
        f"{allowed_s:g} s ({told}). Was it started? Can this host reach it? "
        "(--stage_limits=start=SECONDS waits longer)"
    )


def _meet(address: str, port: int, hello: dict[str, object], answer_s: float) -> Wire:
    """Say hello; return the wire once who listens has shown that it is process 0 of this run."""
    sock = socket.create_connection((address, port), timeout=answer_s)
    wire = Wire(sock)
    try:
        wire.send("hello", **hello)
        first, *wire.early = wire.receive()
        sock.settimeout(None)
        if first["kind"] == "stranger":
            raise Broken("process 0 of another job is there")
        return wire
    except BaseException as error:
        wire.close()
        if isinstance(error, Broken | ValueError):
            raise Broken(f"somebody else is there ({error})") from None
        raise


def shown(address: str, port: int) -> str:
    """Return address and port as one writes them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
