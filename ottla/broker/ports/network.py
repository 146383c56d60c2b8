"""What the broker asks of the network beside its connections: to listen, and which addresses hosts have. shell"""

import asyncio
import socket

from ottla.broker.ports.handshakes import Security
from ottla.broker.ports.listener import Door, Listener, bind

Sockets = list[socket.socket]


class LoopNetwork:
    """The network of this machine, on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def bind(self, host: str, port: int) -> Sockets:
        """Sockets that listen on every address of the host; OSError."""
        return await bind(self._loop, host, port)

    def accept(self, sockets: Sockets, door: Door, security: Security | None = None) -> Listener:
        """Accept connections of these sockets as the door says; plain ones without `security`."""
        return Listener(self._loop, sockets, door, security)

    @staticmethod
    def close(sockets: Sockets) -> None:
        """Listen no more on sockets of which none was accepted."""
        for bound in sockets:
            bound.close()

    @staticmethod
    def port_of(sockets: Sockets) -> int:
        """The port that they are bound to."""
        port: int = sockets[0].getsockname()[1]
        return port

    @staticmethod
    def host_name() -> str:
        """This machine's name."""
        return socket.gethostname()

    @staticmethod
    def addresses_of(host: str, *, ask: bool) -> list[str]:
        """The IP addresses of a host; OSError if it has none. Unless others may be asked, the host is an address."""
        found = socket.getaddrinfo(host, None, flags=0 if ask else socket.AI_NUMERICHOST)
        return [str(address[0]) for *_, address in found]
