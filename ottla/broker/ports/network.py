"""Network calls of the broker other than on connections: listening, host names and addresses. shell"""

import asyncio
import socket
from collections.abc import Sequence

from ottla.broker.ports.handshakes import Security
from ottla.broker.ports.listener import Acceptor, BoundAddress, Listener, bind, bind_again

Sockets = list[socket.socket]


class LoopNetwork:
    """The network of this machine, on an asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def bind(self, host: str, port: int) -> Sockets:
        """Return sockets that listen on every address of the host. Raises OSError."""
        return await bind(self._loop, host, port)

    @staticmethod
    def bind_again(addresses: Sequence[BoundAddress]) -> Sockets:
        """Return sockets that listen on the addresses of a listener that was closed. Raises OSError."""
        return bind_again(addresses)

    def accept(self, sockets: Sockets, acceptor: Acceptor, security: Security | None = None) -> Listener:
        """Accept the connections that `acceptor` admits; without `security` they are not encrypted."""
        return Listener(self._loop, sockets, acceptor, security)

    @staticmethod
    def close(sockets: Sockets) -> None:
        """Close listening sockets that have no Listener."""
        for bound in sockets:
            bound.close()

    @staticmethod
    def port_of(sockets: Sockets) -> int:
        """Return the port that the sockets are bound to."""
        port: int = sockets[0].getsockname()[1]
        return port

    @staticmethod
    def host_name() -> str:
        """Return the name of this machine."""
        return socket.gethostname()

    @staticmethod
    def addresses_of(host: str, *, resolve: bool) -> list[str]:
        """Return the IP addresses of a host. Raises OSError if it has none.

        `resolve` allows a DNS query; without it, `host` must be an IP address.
        """
        found = socket.getaddrinfo(host, None, flags=0 if resolve else socket.AI_NUMERICHOST)
        return [str(address[0]) for *_, address in found]
