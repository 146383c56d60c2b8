"""Listening sockets, and the accepting of connections one by one. shell

This module accepts connections itself, because asyncio's servers close their socket at the first EMFILE without a log
line, and have no limits. A connection that has to wait stays in the backlog of the socket, which is not read until the
acceptor admits a connection. Connections that arrive while other work is due stay there too.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from ottla.broker.ports.handshakes import HELLO_S, SHUTDOWN_S, Greeting, Security, handshaking_socket

StreamProtocol = asyncio.Protocol
BufferedProtocol = asyncio.BufferedProtocol
Transport = asyncio.Transport

BACKLOG: Final = 1024
BoundAddress = tuple[int, Any]
"""The family of a bound socket, and its address."""
_PAUSE_MS: Final = 200.0
_LIMITS: Final[dict[str, Any]] = {"ssl_handshake_timeout": HELLO_S, "ssl_shutdown_timeout": SHUTDOWN_S}
_IGNORED: Final = frozenset((errno.ECONNABORTED, errno.EPROTO, errno.EINTR, errno.EPERM))


class LostTransport(Transport):
    """A closed transport, which replaces the transport of a lost connection.

    With TLS, uvloop's transport refers to the protocol. If the protocol still referred to the transport, only a garbage
    collection could free both, and it never frees objects that it has frozen (`collector`).
    """

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""


LOST: Final = LostTransport()


class Acceptor(Protocol):
    """Decisions on new connections of a listener."""

    def wait_ms(self) -> float:
        """Return 0 to accept a connection now, the time to wait, or infinity to wait for `Listener.resume`."""

    def accept(self, ip: str, port: int) -> asyncio.BaseProtocol | None:
        """Return the protocol for a connection from this address; None to refuse it."""

    def report_failure(self, error: OSError) -> None:
        """Report that accepting failed; the listener tries again after 200 ms."""

    def defer(self, go_on: Callable[[], None]) -> bool:
        """Return False to accept the next connection now, else True and call `go_on` after other work was done."""


async def bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on every address of a host (empty: of this machine), on one port. Raises OSError.

    They listen at once: the system may assign the same free port to two sockets that are only bound.
    """
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _name, address in dict.fromkeys(found):
            try:
                listening = _new_socket(family, kind, protocol)
            except OSError:
                continue  # the resolver knows more families than the kernel
            sockets.append(listening)
            try:
                listening.bind((address[0], port, *address[2:]))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL or len(found) == 1:
                    raise
                sockets.pop().close()  # the kernel knows more families than the machine has addresses of
                continue
            listening.listen(BACKLOG)
            port = listening.getsockname()[1]
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets


def bind_again(addresses: Sequence[BoundAddress]) -> list[socket.socket]:
    """Return sockets that listen on the addresses of a listener that was closed. Raises OSError."""
    sockets: list[socket.socket] = []
    try:
        for family, address in addresses:
            sockets.append(_new_socket(family, socket.SOCK_STREAM, 0))
            sockets[-1].bind(address)
            sockets[-1].listen(BACKLOG)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets


def _new_socket(family: int, kind: int, protocol: int) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    if os.name == "posix":
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return listening


class Listener:
    """Accepts the connections of the sockets of one listener (`bind`)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        acceptor: Acceptor,
        security: Security | None = None,
    ) -> None:
        """Accept connections from now on. Without `security` connections are not encrypted."""
        self._loop = loop
        self._sockets = sockets
        self._acceptor = acceptor
        self._security = security
        self._greetings: dict[socket.socket, Greeting] = {}
        self._connecting: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._watching = False
        for listening in sockets:
            listening.setblocking(False)
        self.resume()

    @property
    def port(self) -> int:
        port: int = self._sockets[0].getsockname()[1]
        return port

    @property
    def addresses(self) -> list[BoundAddress]:
        """The addresses that the sockets are bound to."""
        return [(listening.family, listening.getsockname()) for listening in self._sockets]

    def resume(self) -> None:
        """Accept connections again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._watching:
            self._watching = True
            for listening in self._sockets:
                self._loop.add_reader(listening, self._accept_some, listening)

    def close(self) -> None:
        """Close the sockets. Accepted connections stay open, except those that wait for a ClientHello."""
        self._pause()
        for listening in self._sockets:
            listening.close()
        self._sockets = []
        for accepted, greeting in self._greetings.items():
            greeting.discard()
            accepted.close()
        self._greetings.clear()

    def _pause(self, wait_ms: float = float("inf")) -> None:
        """Accept no connections for `wait_ms`, or until `resume`."""
        self._watching = False
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_ms != float("inf"):
            self._timer = self._loop.call_later(wait_ms / 1000, self.resume)

    def _accept_some(self, listening: socket.socket) -> None:
        """Accept waiting connections until the acceptor asks for a pause."""
        while True:
            wait_ms = self._acceptor.wait_ms()
            if wait_ms:
                self._pause(wait_ms)
                return
            try:
                self._take(*listening.accept())
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _IGNORED:
                    self._pause(_PAUSE_MS)
                    self._acceptor.report_failure(error)
                    return
            if self._acceptor.defer(lambda: self._go_on(listening)):
                self._loop.remove_reader(listening)
                return

    def _go_on(self, listening: socket.socket) -> None:
        if self._watching and listening in self._sockets:
            self._loop.add_reader(listening, self._accept_some, listening)
            self._accept_some(listening)

    def _take(self, accepted: socket.socket, address: tuple[Any, ...]) -> None:
        """Serve an accepted connection, or close it if the acceptor refuses it."""
        protocol = self._acceptor.accept(address[0], address[1])
        if protocol is None:
            accepted.close()
            return
        accepted.setblocking(False)
        if self._security is None:
            self._start(protocol, accepted)
        else:
            self._add_greeting(protocol, accepted, f"{address[0]}:{address[1]}", self._security)

    def _start(self, protocol: asyncio.BaseProtocol, accepted: socket.socket, peer: str = "") -> None:
        task = self._loop.create_task(self._connect(protocol, accepted, peer))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, protocol: asyncio.BaseProtocol, accepted: socket.socket, peer: str) -> None:
        security = self._security
        secured: dict[str, Any] = {}
        if security is not None:
            handshaking_socket.set(accepted)
            secured = {"ssl": security.current_context(), **_LIMITS}
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted, **secured)
        except OSError as error:
            if security is not None:
                security.report_failure(peer, str(error) or type(error).__name__)
            _close_with_error(protocol, accepted, error)

    def _add_greeting(
        self, protocol: asyncio.BaseProtocol, accepted: socket.socket, peer: str, security: Security
    ) -> None:
        """Start the connection after its ClientHello has arrived and `Security.begin` allows the handshake."""

        def end(reason: str) -> None:
            del self._greetings[accepted]
            _close_with_error(protocol, accepted, ConnectionAbortedError(reason))

        def leave(reason: str) -> None:
            end(reason)
            security.report_failure(peer, reason)

        def report_non_tls(first: bytes) -> None:
            end("no TLS")
            security.report_non_tls(peer, first)

        def begin() -> None:
            if self._greetings.pop(accepted, None) is not None:  # else the listener was closed meanwhile
                self._start(protocol, accepted, peer)

        self._greetings[accepted] = Greeting(self._loop, accepted, lambda: security.begin(begin), report_non_tls, leave)


def _close_with_error(protocol: asyncio.BaseProtocol, accepted: socket.socket, error: OSError) -> None:
    with suppress(OSError):
        accepted.close()
    protocol.connection_lost(error)
