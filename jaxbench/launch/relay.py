"""JAX's connection to its coordinator, through this process: it doesn't end when process 0 does.

JAX's client aborts the process in the moment in which that connection ends, with a page of text and
before anybody could say which process was lost. Here it just falls silent; what is to be done is
for the watchdog to decide.
"""

from __future__ import annotations

import socket
import threading

from jaxbench.launch.rendezvous import bound

CONNECT_S = 10.0
CHUNK = 1 << 16


def relay(address: str, port: int) -> int:
    """Pass connections on from a port of this host's loopback, which is returned, to an address."""
    listener = bound("127.0.0.1", 0, listening=True, shared=False)
    _in_thread(_serve, listener, (address, port))
    return listener.getsockname()[1]


def _serve(listener: socket.socket, target: tuple[str, int]) -> None:
    while True:
        near, _ = listener.accept()
        try:
            far = socket.create_connection(target, timeout=CONNECT_S)
        except OSError:
            near.close()  # JAX tries again
            continue
        far.settimeout(None)
        for sock in (near, far):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _in_thread(_pump, near, far, True)
        _in_thread(_pump, far, near, False)


def _pump(source: socket.socket, target: socket.socket, outward: bool) -> None:
    """Pass on what comes from `source`; only JAX's end, not the coordinator's, ends the other."""
    try:
        while data := source.recv(CHUNK):
            target.sendall(data)
    except OSError:
        pass
    if outward:
        try:
            target.shutdown(socket.SHUT_RDWR)  # a close would wait for the thread that reads it
        except OSError:
            pass
        source.close()


def _in_thread(function: object, *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()  # type: ignore[arg-type]
