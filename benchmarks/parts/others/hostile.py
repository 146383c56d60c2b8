"""Connections that write any bytes, may not read the replies, and drop what they read. shell"""

import contextlib
import selectors
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ottla.protocol.requests import codec
from ottla.testkit.in_memory.wire import message

CLIENT_ID = "hostile"
_READ = bytearray(1 << 20)


def frame(api_key: int, version: int, **fields: Any) -> bytes:
    """Return the bytes of a request with size and header. Rows are dicts, which become the schema's structs."""
    return frame_of(message(api_key, version, **fields), version)


def frame_of(request: Any, version: int) -> bytes:
    return codec.encode_request(request, version, 1, CLIENT_ID)


class Talk:
    """Connection with its unwritten bytes, the number of replies still due, and the number of received bytes."""

    def __init__(self, bootstrap: str, frames: Iterable[bytes] = (), *, receive_bytes: int | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(10)
        self.socket.connect((host, int(port)))
        self.socket.setblocking(False)
        self.unwritten = bytearray()
        self.due = 0
        self.replies = 0
        self.reply_bytes = 0
        self.closed = False
        self._left = 0
        self._head = bytearray()
        self.add(frames)

    def add(self, frames: Iterable[bytes]) -> None:
        """Add requests, each of which has a reply."""
        for request in frames:
            self.unwritten += request
            self.due += 1

    @property
    def done(self) -> bool:
        return self.closed or not (self.unwritten or self.due)

    def write(self) -> None:
        try:
            sent = self.socket.send(memoryview(self.unwritten)[: 1 << 20])
        except BlockingIOError:
            return
        except OSError:
            self.closed = True
            return
        del self.unwritten[:sent]

    def read(self) -> None:
        try:
            count = self.socket.recv_into(_READ)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count == 0:
            self.closed = True
            return
        self.reply_bytes += count
        self._count_frames(memoryview(_READ)[:count])

    def _count_frames(self, data: memoryview) -> None:
        position = 0
        while position < len(data):
            if self._left == 0:
                missing = 4 - len(self._head)
                self._head += data[position : position + missing]
                position += missing
                if len(self._head) < 4:
                    return
                self._left = int.from_bytes(self._head, "big")
                self._head.clear()
                continue
            step = min(self._left, len(data) - position)
            position += step
            self._left -= step
            if self._left == 0:
                self.replies += 1
                self.due -= 1

    def close(self) -> None:
        self.closed = True
        self.socket.close()


def converse(talks: Sequence[Talk], deadline: float) -> None:
    """Write and read until every connection has its replies or is closed, or until `deadline` (`time.monotonic()`)."""
    with selectors.DefaultSelector() as selector:
        waiting = {talk.socket.fileno(): talk for talk in talks if not talk.done}
        for descriptor, talk in waiting.items():
            selector.register(descriptor, _events(talk))
        while waiting and time.monotonic() < deadline:
            for key, events in selector.select(0.2):
                talk = waiting[key.fd]
                had = bool(talk.unwritten)
                if events & selectors.EVENT_WRITE:
                    talk.write()
                if events & selectors.EVENT_READ:
                    talk.read()
                if talk.done:
                    selector.unregister(key.fd)
                    del waiting[key.fd]
                elif had and not talk.unwritten:
                    selector.modify(key.fd, _events(talk))


def _events(talk: Talk) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if talk.unwritten else 0)


def hold(talks: Sequence[Talk], deadline: float) -> None:
    """Write all and read nothing until `deadline`."""
    while time.monotonic() < deadline:
        for talk in talks:
            if talk.unwritten and not talk.closed:
                with contextlib.suppress(OSError):
                    talk.write()
        time.sleep(0.05)
