"""Finding process 0: at the first of its ports that is free, past strangers, in bounded time."""

from __future__ import annotations

import errno
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from jaxbench.errors import InputError, RunError
from jaxbench.launch.addresses import ANY
from jaxbench.launch.relay import relay
from jaxbench.launch.rendezvous import bound, claim_host, listen, look_for_first, shown
from jaxbench.launch.world import World
from tests.launch.many import free_port

WORLD = World("srun", 1, 2, "key", ("127.0.0.1",), (), "here")
HERE = ("127.0.0.1",)


def answering(sock: socket.socket, answer: bytes) -> None:
    """Answer every connection in the background."""

    def serve() -> None:
        while True:
            connection, _ = sock.accept()
            connection.recv(1000)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()


def look(*ports: int, limit_s: float = 5.0) -> int:
    """Return the port at which process 0 was found."""
    wire = look_for_first(replace(WORLD, ports=ports), HERE, {"key": "key"}, limit_s)
    return wire.sock.getpeername()[1]


def test_the_next_port_is_taken_if_one_is_busy() -> None:
    with bound("127.0.0.1", 0, listening=True, shared=False) as busy:
        port, free = busy.getsockname()[1], free_port()
        with listen(replace(WORLD, ports=(port, free)), HERE) as found:
            assert found.getsockname()[1] == free


def test_no_port_is_shared_with_a_listener() -> None:
    """gRPC shares its port by SO_REUSEPORT: two job steps would be cross-wired."""
    with socket.socket() as grpc:
        grpc.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        grpc.bind(("127.0.0.1", 0))
        grpc.listen()
        port = grpc.getsockname()[1]
        with pytest.raises(InputError, match=f"process 0 .* 127.0.0.1:{port}: Address already in"):
            listen(replace(WORLD, ports=(port,)), HERE)


def test_a_kept_port_is_free_for_who_shares_it_only() -> None:
    with bound("127.0.0.1", 0) as kept:
        port = kept.getsockname()[1]
        with pytest.raises(OSError):
            bound("127.0.0.1", port, listening=True, shared=False)
        bound("127.0.0.1", port, listening=True, shared=True).close()


def test_an_address_of_another_host() -> None:
    with pytest.raises(InputError, match="start process 0 on the host that has the address"):
        listen(replace(WORLD, ports=(4000,)), ("192.0.2.77",))


def test_process_0_may_come_late_and_behind_strangers() -> None:
    stranger = bound("127.0.0.1", 0, listening=True, shared=False)
    answering(stranger, b'{"kind": "stranger"}\n')
    noise = bound("127.0.0.1", 0, listening=True, shared=False)
    answering(noise, b"220 smtp ready\r\n")
    port = free_port()

    def late() -> None:
        time.sleep(0.7)
        answering(bound("127.0.0.1", port, listening=True, shared=False), b'{"kind": "known"}\n')

    threading.Thread(target=late, daemon=True).start()
    assert look(stranger.getsockname()[1], noise.getsockname()[1], port) == port


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b'{"kind": "stranger"}\n', "process 0 of another job is there"),
        (b"220 smtp ready\r\n", "somebody else is there"),
    ],
)
def test_strangers_only(answer: bytes, text: str) -> None:
    other = bound("127.0.0.1", 0, listening=True, shared=False)
    answering(other, answer)
    with pytest.raises(RunError, match=f"did not find process 0 within 0.5 s .*{text}"):
        look(other.getsockname()[1], limit_s=0.5)


def test_nobody_there() -> None:
    began = time.monotonic()
    with pytest.raises(RunError, match="Connection refused"):
        look(free_port(), limit_s=0.5)
    assert 0.5 <= time.monotonic() - began < 3


def test_any_address_where_ipv6_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = socket.socket

    def ipv4_only(family: int = -1, *more: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return usual(family, *more)

    monkeypatch.setattr(socket, "socket", ipv4_only)
    for listening in (True, False):  # the coordinator's port is kept at the same address
        with bound(ANY, 0, listening=listening) as found:
            assert found.getsockname()[0] == "0.0.0.0"
    with pytest.raises(OSError, match="not supported"):
        bound("::1", 0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process is taken for the first")
def test_one_process_of_a_job_is_the_first_of_its_host() -> None:
    first, other = claim_host("a job"), claim_host("another job")
    assert first and other and claim_host("a job") is None
    first.close()
    first = claim_host("a job")
    assert first and claim_host("another job") is None


def test_addresses_as_one_writes_them() -> None:
    assert shown("10.0.0.1", 5) == "10.0.0.1:5"
    assert shown("::1", 5) == "[::1]:5"


def coordinator(then: Callable[[socket.socket], None]) -> int:
    """Answer one connection with what it sends, in capitals, and then do something with it."""
    listener = bound("127.0.0.1", 0, listening=True, shared=False)

    def serve() -> None:
        connection, _ = listener.accept()
        connection.sendall(connection.recv(100).upper())
        then(connection)

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def test_a_relay_passes_on_and_does_not_end_with_the_coordinator() -> None:
    port = relay("127.0.0.1", coordinator(lambda connection: connection.close()))
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"hello")
        client.settimeout(10)
        assert client.recv(100) == b"HELLO"
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):  # not its end: that would abort JAX
            client.recv(100)


def test_a_relay_ends_with_the_client() -> None:
    ended = threading.Event()
    port = relay("127.0.0.1", coordinator(lambda c: ended.set() if not c.recv(1) else None))
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"x")
        client.recv(1)
    assert ended.wait(10)
