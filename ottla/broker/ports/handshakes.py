"""Accepted sockets of TLS listeners, until their ClientHello has arrived. shell

A handshake takes a millisecond of the event loop, most of it a signature, and thousands may start at once. So a socket
is passed to TLS only when the client's first record is complete, and one by one, between other work. This module
detects a client that sends something else than TLS, before OpenSSL reads the bytes.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, Protocol

HELLO_S: Final = 10.0
"""Time limit for the ClientHello, and again for the rest of the handshake."""
SHUTDOWN_S: Final = 5.0
CHECK_S: Final = 1.0
"""Interval of checks for a connection that was reset, which uvloop does not report."""
_HEADER_BYTES: Final = 5
_HANDSHAKE: Final = 0x16
_MOST_BYTES: Final = _HEADER_BYTES + (1 << 14)


handshaking_socket: ContextVar[socket.socket] = ContextVar("handshaking_socket")
"""The socket whose handshake starts in this context. Tasks and callbacks of the handshake inherit the context."""


class AlertingObject(ssl.SSLObject):
    """TLS of one connection. If the handshake fails, it sends the TLS alert to the client.

    OpenSSL prepares the alert, but asyncio and uvloop close the socket without sending it. The client would then take a
    refused certificate for an unavailable broker, and retry until it times out.
    """

    outgoing: ssl.MemoryBIO
    accepted: socket.socket | None = None

    def do_handshake(self) -> None:
        """Do the handshake as `SSLObject` does. Send the alert to the client if it fails."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.accepted is not None:
                with suppress(OSError):  # the client has disconnected or does not read: no alert
                    self.accepted.send(self.outgoing.read())
            raise
        self.accepted = None


class ServerContext(ssl.SSLContext):
    """TLS context of a listener, whose connections send an alert after a failed handshake."""

    sslobject_class = AlertingObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Wrap as `SSLContext` does. Give the object the accepted socket of this context."""
        wrapped = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(wrapped, AlertingObject)
        wrapped.outgoing, wrapped.accepted = outgoing, handshaking_socket.get(None)
        return wrapped


class Security(Protocol):
    """Encryption of the connections of one listener."""

    def current_context(self) -> ssl.SSLContext:
        """Return the TLS context for a new connection."""

    def begin(self, start: Callable[[], None]) -> None:
        """Call `start`, which begins a handshake, after the existing connections were served."""

    def report_failure(self, peer: str, reason: str) -> None:
        """Report a client whose handshake failed."""

    def report_non_tls(self, peer: str, first: bytes) -> None:
        """Report a client that sent something else than TLS; `first` are its first bytes."""


class Greeting:
    """A socket that waits for a ClientHello. It makes one call at its end: `on_hello`, `on_non_tls` or `on_end`.

    `on_hello`: the first TLS record is complete. `on_non_tls`: the client sent something else. `on_end`: none came.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accepted: socket.socket,
        on_hello: Callable[[], None],
        on_non_tls: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._socket = accepted
        self._on_hello = on_hello
        self._on_non_tls = on_non_tls
        self._on_end = on_end
        self._expected_bytes = 1
        self._ends_at = loop.time() + HELLO_S
        self._timer = loop.call_later(min(CHECK_S, HELLO_S), self._tick)
        loop.add_reader(accepted, self._peek)

    def discard(self) -> None:
        """Stop watching the socket, which the caller owns."""
        self._timer.cancel()
        self._loop.remove_reader(self._socket)

    def _tick(self) -> None:
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not error and self._loop.time() < self._ends_at:
            self._timer = self._loop.call_later(CHECK_S, self._tick)
            return
        self.discard()
        self._on_end(os.strerror(error) if error else f"no TLS handshake arrived in {HELLO_S:.0f} s")

    def _peek(self) -> None:
        try:
            first = self._socket.recv(_MOST_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError as error:
            self.discard()
            self._on_end(error.strerror or str(error))
            return
        if len(first) < self._expected_bytes:  # the system wakes for fewer bytes only at the end of the stream
            self.discard()
            self._on_end("it closed the connection before a TLS handshake")
        elif first[0] != _HANDSHAKE:
            self.discard()
            self._on_non_tls(first)
        elif (record_bytes := _record_bytes(first)) > _MOST_BYTES:
            self.discard()
            self._on_end("its first TLS record is too large")
        elif len(first) < record_bytes:
            self._wait_for(record_bytes)
        else:
            self._wait_for(1)
            self.discard()
            self._on_hello()

    def _wait_for(self, size_bytes: int) -> None:
        """Wake up when the socket holds `size_bytes`, not at every byte."""
        self._expected_bytes = size_bytes
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)


def _record_bytes(first: bytes) -> int:
    """Return the size of the TLS record that begins with these bytes; 5 if its header is incomplete."""
    if len(first) < _HEADER_BYTES:
        return _HEADER_BYTES
    return _HEADER_BYTES + int.from_bytes(first[3:5], "big")
