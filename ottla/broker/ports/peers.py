"""The port that connects the brokers of one process with each other: over sockets, or in memory. shell

A broker connects to another one as a client does, and the other serves the connection as it serves those of clients.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

from ottla.broker.ports.listener import BACKLOG, Listener

LOOPBACK: Final = "127.0.0.1"

Buffer = bytes | bytearray | memoryview
Accept = Callable[[int], asyncio.BufferedProtocol | None]
"""Returns the protocol object of a connection to the broker of this id, or None to refuse it."""
NextTurn = Callable[[Callable[[], None]], None]


class Peers(Protocol):
    """Connections to the brokers of this process."""

    def connect(self, node_id: int, end: asyncio.Protocol) -> None:
        """Connect to the broker of this id. `end.connection_lost` is also called if that fails."""


class LoopPeers:
    """Connections over a loopback listener, which accepts only those that this object has opened.

    Each outgoing socket is bound before it connects, so its address is known before the listener can see it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._outgoing: dict[tuple[str, int], tuple[socket.socket, int]] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._address: tuple[str, int] | None = None
        self._listener: Listener | None = None
        self._accept: Accept
        self._on_foreign: Callable[[str], None]
        self.report_failure: Callable[[OSError], None]
        self.defer: Callable[[Callable[[], None]], bool]

    def listen(
        self,
        accept: Accept,
        on_foreign: Callable[[str], None],
        report_failure: Callable[[OSError], None],
        defer: Callable[[Callable[[], None]], bool],
    ) -> None:
        """Listen on a free port of the loopback interface. Raises OSError.

        `on_foreign` is called with the address of a connection that was closed because another process opened it.
        """
        self._accept, self._on_foreign = accept, on_foreign
        self.report_failure, self.defer = report_failure, defer
        listening = socket.create_server((LOOPBACK, 0), backlog=BACKLOG)
        self._address = listening.getsockname()
        self._listener = Listener(self._loop, [listening], self)

    def close(self) -> None:
        """Stop listening. Connections stay."""
        if self._listener is not None:
            self._listener.close()

    def connect(self, node_id: int, end: asyncio.Protocol) -> None:
        """Connect to the broker of this id."""
        task = self._loop.create_task(self._connect(node_id, end))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, node_id: int, end: asyncio.Protocol) -> None:
        try:
            outgoing = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:  # no descriptor is free
            end.connection_lost(error)
            return
        try:
            if self._address is None:
                raise ConnectionRefusedError("the brokers do not listen yet")
            outgoing.setblocking(False)
            outgoing.bind((LOOPBACK, 0))
            self._outgoing[outgoing.getsockname()] = outgoing, node_id
            await self._loop.sock_connect(outgoing, self._address)
            await self._loop.create_connection(lambda: end, sock=outgoing)
        except OSError as error:
            self._drop_stale_addresses()
            outgoing.close()
            end.connection_lost(error)

    # The methods that the listener calls.

    def wait_ms(self) -> float:
        """Return 0: these connections are not limited."""
        return 0.0

    def accept(self, ip: str, port: int) -> asyncio.BufferedProtocol | None:
        """Return the protocol of a connection that this process has opened and not closed, else None."""
        self._drop_stale_addresses()
        found = self._outgoing.pop((ip, port), None)
        if found is None:
            self._on_foreign(f"{ip}:{port}")
            return None
        return self._accept(found[1])

    def _drop_stale_addresses(self) -> None:
        """Forget the addresses of closed sockets, because another process may use them now."""
        for address, (outgoing, _) in list(self._outgoing.items()):
            if outgoing.fileno() == -1:
                del self._outgoing[address]


class MemoryPeers:
    """Connections in memory. Each write arrives in a later turn."""

    def __init__(self, deliver: Callable[[], NextTurn], accept: Accept) -> None:
        """`deliver` returns, for one direction of a connection, the function that makes each write arrive in order."""
        self._deliver = deliver
        self._accept = accept

    def connect(self, node_id: int, end: asyncio.Protocol) -> None:
        """Connect to the broker of this id in a later turn."""
        self._deliver()(lambda: self._connect(node_id, end))

    def _connect(self, node_id: int, end: asyncio.Protocol) -> None:
        accepted = self._accept(node_id)
        if accepted is None:
            end.connection_lost(ConnectionRefusedError())
            return
        near = _PipeEnd(self._deliver(), end, end.data_received)
        far = _PipeEnd(self._deliver(), accepted, partial(_feed, accepted))
        near.other, far.other = far, near
        accepted.connection_made(far)
        end.connection_made(near)


class _PipeEnd(asyncio.Transport):
    """End of a connection in memory: the transport of `protocol`."""

    def __init__(self, next_turn: NextTurn, protocol: asyncio.BaseProtocol, deliver: Callable[[bytes], None]) -> None:
        super().__init__()
        self.other: _PipeEnd
        self._next_turn = next_turn
        self._protocol = protocol
        self._deliver = deliver
        self._received: list[bytes] = []
        self._reading = True
        self._closed = False

    def write(self, data: Buffer) -> None:
        if not self._closed:
            self._next_turn(partial(self.other.take, bytes(data)))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def take(self, data: bytes) -> None:
        """Deliver bytes of the other end, unless the protocol does not read."""
        self._received.append(data)
        self._deliver_all()

    def _deliver_all(self) -> None:
        while self._received and self._reading and not self._closed:
            self._deliver(self._received.pop(0))

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._next_turn(self._deliver_all)

    def close(self) -> None:
        self._next_turn(self.end)
        self._next_turn(self.other.end)

    def abort(self) -> None:
        self.close()

    def end(self) -> None:
        """End this end of the connection."""
        if not self._closed:
            self._closed = True
            self._protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self._closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: all bytes are taken at once."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("memory", 0) if name == "peername" else default


def _feed(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    while data:
        view = memoryview(protocol.get_buffer(-1))
        size = min(len(view), len(data))
        view[:size] = data[:size]
        data = data[size:]
        protocol.buffer_updated(size)
