"""Connections to one broker, each of which produces one record at a time. free

The frame is encoded once and answers are not decoded, so that the client is not the bottleneck.
"""

import socket
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from parts import raw

VERSION = 11
TIMEOUT_S = 60


def frame_of(topic: str, partition: int) -> bytes:
    """Return the frame of a Produce of one record of 100 bytes."""
    return bytes(codec.encode_request(raw.produce_request(topic, partition), VERSION, 0, "benchmark"))


class Crowd:
    """Connections that take turns; each request is the next of `frames`."""

    def __init__(self, bootstrap: str, count: int, frames: Sequence[bytes]) -> None:
        self._host, _, port = bootstrap.rpartition(":")
        self._port = int(port)
        self._frames = frames
        self._next = 0
        self._sockets: list[socket.socket] = []
        try:
            self.grow(count)
        except OSError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def grow(self, count: int) -> None:
        """Open connections up to `count`. Each new one produces once, because its first request costs more."""
        new = [self._open() for _ in range(count - len(self._sockets))]
        self._sockets += new
        for each in new:
            self._ask(each)

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def one_by_one(self) -> None:
        """Produce on the next connection and wait for the answer."""
        self._ask(self._sockets[self._next % len(self._sockets)])

    def at_once(self) -> None:
        """Produce on each connection before the first answer is read."""
        for each in self._sockets:
            self._send(each)
        self._receive_all(self._sockets)

    def _open(self) -> socket.socket:
        connection = socket.create_connection((self._host, self._port), timeout=TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _send(self, connection: socket.socket) -> None:
        connection.sendall(self._frames[self._next % len(self._frames)])
        self._next += 1

    def _ask(self, connection: socket.socket) -> None:
        self._send(connection)
        self._receive_all((connection,))

    def _receive_all(self, connections: Iterable[socket.socket]) -> None:
        for each in connections:
            answer = _read(each, int.from_bytes(_read(each, 4), "big"))
            raw.check_produce(_decode(answer))


def _read(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("the broker closed the connection")
    return data


def _decode(answer: bytes) -> Any:
    return codec.decode_response(ApiKey.PRODUCE, VERSION, memoryview(answer))[1]
