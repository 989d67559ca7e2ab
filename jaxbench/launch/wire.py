"""Messages between processes: one JSON object a line, over a socket; nothing is ever unpickled."""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import Any

MOST_BYTES = 1 << 30  # of a message: samples of very long runs
MOST_FROM_STRANGERS = 1 << 16
SEND_LIMIT_S = 3.0  # a process that takes nothing for so long is as good as dead


class Broken(Exception):
    """The other end is gone, or speaks another language."""


class Wire:
    """One end of a connection. `send` may be called by several threads, `receive` by one."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self.limit = MOST_FROM_STRANGERS
        self.early: list[dict[str, Any]] = []  # what came with the first answer
        self._sending = threading.Lock()
        self._read = bytearray()
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds, micros = divmod(round(SEND_LIMIT_S * 1e6), 1_000_000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", seconds, micros))

    def fileno(self) -> int:
        """Return the socket's number, for selectors."""
        return self.sock.fileno()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message; Broken if that can't be done."""
        line = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        try:
            with self._sending:
                self.sock.sendall(line)
        except OSError as error:
            raise Broken(str(error)) from error

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have come whole; waits only for the first bytes.

        Broken at the end of the connection, or if what comes is no message.
        """
        try:
            data = self.sock.recv(1 << 20)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise Broken(str(error)) from error
        if not data:
            raise Broken("the connection has ended")
        self._read += data
        *lines, rest = self._read.split(b"\n") if b"\n" in data else [self._read]
        if len(rest) > self.limit:
            raise Broken("a message that is too long")
        self._read = bytearray(rest)
        return [_message(line) for line in lines]

    def close(self) -> None:
        """End the connection."""
        try:
            self.sock.close()
        except OSError:
            pass


def _message(line: bytes | bytearray) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise Broken("what came is no message of jaxbench") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise Broken("what came is no message of jaxbench")
    return message
