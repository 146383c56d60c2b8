"""Accepted sockets that are to speak TLS, until their client has said hello. shell

A handshake takes a millisecond of the event loop, most of it a signature, and thousands may come at once. So a socket
is given to TLS only when the client's first record is whole, and one after the other as the others' work allows. Who
says something else is told apart here, before OpenSSL sees it.
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
"""So long a client may take to say hello, and again to end the handshake."""
SHUTDOWN_S: Final = 5.0
LOOK_S: Final = 1.0
"""How often it is looked whether a client has gone without a word: uvloop tells nobody of a reset."""
_HEADER_BYTES: Final = 5
_HANDSHAKE: Final = 0x16
_MOST_BYTES: Final = _HEADER_BYTES + (1 << 14)


shaking: ContextVar[socket.socket] = ContextVar("shaking")
"""The socket whose handshake is begun in this context. What the loop starts for it takes the context along."""


class ToldObject(ssl.SSLObject):
    """TLS of one connection, whose client is told why a handshake failed.

    OpenSSL has the alert ready, but asyncio and uvloop close the socket without it. A client then takes a certificate
    that was refused for a broker that is away, and tries until its patience ends.
    """

    outgoing: ssl.MemoryBIO
    accepted: socket.socket | None = None

    def do_handshake(self) -> None:
        """As of `SSLObject`."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.accepted is not None:
                with suppress(OSError):  # the client is gone, or takes nothing: then it is not told
                    self.accepted.send(self.outgoing.read())
            raise
        self.accepted = None


class ServerContext(ssl.SSLContext):
    """TLS of a listener."""

    sslobject_class = ToldObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """As of `SSLContext`."""
        wrapped = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(wrapped, ToldObject)
        wrapped.outgoing, wrapped.accepted = outgoing, shaking.get(None)
        return wrapped


class Security(Protocol):
    """How the connections of one listener are encrypted."""

    def current_context(self) -> ssl.SSLContext:
        """What a connection that begins now is encrypted with."""

    def begin(self, start: Callable[[], None]) -> None:
        """Call `start`, which costs a handshake, when others have been served."""

    def failed(self, peer: str, reason: str) -> None:
        """This client did not get in."""

    def foreign(self, peer: str, first: bytes) -> None:
        """This client said something that is no TLS."""


class Greeting:
    """One socket whose client has not said hello. It ends with one call: `on_hello`, or `on_end` if nothing comes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accepted: socket.socket,
        on_hello: Callable[[], None],
        on_foreign: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._socket = accepted
        self._on_hello = on_hello
        self._on_foreign = on_foreign
        self._on_end = on_end
        self._expected_bytes = 1
        self._ends_at = loop.time() + HELLO_S
        self._timer = loop.call_later(min(LOOK_S, HELLO_S), self._tick)
        loop.add_reader(accepted, self._look)

    def discard(self) -> None:
        """Look no more. The socket is the caller's."""
        self._timer.cancel()
        self._loop.remove_reader(self._socket)

    def _tick(self) -> None:
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not error and self._loop.time() < self._ends_at:
            self._timer = self._loop.call_later(LOOK_S, self._tick)
            return
        self.discard()
        self._on_end(os.strerror(error) if error else f"no TLS handshake came in {HELLO_S:.0f} s")

    def _look(self) -> None:
        try:
            first = self._socket.recv(_MOST_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError as error:
            self.discard()
            self._on_end(error.strerror or str(error))
            return
        if len(first) < self._expected_bytes:  # the system wakes for less only when no more will come
            self.discard()
            self._on_end("it hung up before a TLS handshake")
        elif first[0] != _HANDSHAKE:
            self.discard()
            self._on_foreign(first)
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
        """Hear of the socket when it holds so much, and not of every byte."""
        self._expected_bytes = size_bytes
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)


def _record_bytes(first: bytes) -> int:
    """How long the record is that begins like this, as far as it says."""
    if len(first) < _HEADER_BYTES:
        return _HEADER_BYTES
    return _HEADER_BYTES + int.from_bytes(first[3:5], "big")
