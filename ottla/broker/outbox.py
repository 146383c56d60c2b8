"""The unsent replies of a connection, in order: buffers, and slices of files. shell

A slice is sent when the socket takes it. It costs no memory until its connection can be written. On a plain socket the
kernel sends it from its cache (`sendfile`, a third of the CPU of reading and writing). On any other transport it is
read in pieces. One rule keeps the order: the descriptor is written directly only while the transport holds nothing. The
transport reports that by `pause_writing`, because its write buffer limit is 0. When the socket is full, one small piece
is given to the transport, which waits for the socket for us (an event loop watches no descriptor for two owners).
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol

from ottla.broker.costs import COPY_BYTE_US
from ottla.broker.ports.listener import LOST
from ottla.broker.ports.slices import CutShort, FileSlice, send_before_more
from ottla.broker.turns import Turns

Buffer = bytes | bytearray | memoryview
Part = Buffer | FileSlice

PIECE_BYTES: Final = 256 * 1024
"""The bytes that are read at once where the kernel cannot send from the file."""

WAIT_BYTES: Final = 64 * 1024
"""The bytes that are given to a transport so that it waits for its socket."""

UNSENT_TLS_BYTES: Final = 16 * 1024
"""The bytes that TLS may hold before it pauses the outbox. It pauses at its limit, not above it, and sends tickets of
its own before anything is read: with a lower limit it would be paused from the beginning."""

EDGE_BYTES: Final = 16 * 1024
"""The end of a slice is sent together with the next part: a packet of three bytes costs as much as one of sixteen
thousand."""

_BUFFERS: Final = (bytes, bytearray, memoryview)


class Transport(Protocol):
    """The part of `asyncio.Transport` that the outbox uses."""

    def write(self, data: Buffer) -> None: ...

    def writelines(self, list_of_data: Iterable[Buffer]) -> None: ...

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_extra_info(self, name: str) -> Any: ...

    def is_closing(self) -> bool: ...


class Outbox:
    """The queue of unsent parts. `paused` is set while the transport holds bytes. An exception of `send` ends the
    connection."""

    __slots__ = (
        "_socket",
        "_transport",
        "_turns",
        "is_encrypted",
        "parts",
        "paused",
        "sending",
        "slices",
        "unsent_bytes",
        "written_bytes",
    )

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.parts: deque[Part] = deque()
        """The queued parts. Read only."""
        self._transport: Transport
        self._socket = -1
        self.is_encrypted = False
        """Whether the transport encrypts with TLS."""
        self.paused = False
        self.sending = False
        """Whether `send` has left a rest."""
        self.slices = 0
        """The number of parts that are slices of files."""
        self.unsent_bytes = 0
        """The bytes of the parts that are buffers."""
        self.written_bytes = 0
        """The bytes of the last write: when the transport has paused the outbox, it holds at most these."""

    def connect(self, transport: Transport) -> None:
        """Write to this transport from now on."""
        self._transport = transport
        self.is_encrypted = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=UNSENT_TLS_BYTES if self.is_encrypted else 0)
        socket = transport.get_extra_info("socket")
        if socket is not None and not self.is_encrypted:
            self._socket = socket.fileno()

    def disconnect(self) -> None:
        """Discard the queue, and drop the reference to the transport."""
        self.clear()
        self._transport = LOST
        self._socket = -1

    @property
    def descriptor(self) -> int:
        """The descriptor of the plain socket, or -1."""
        return self._socket

    def add(self, parts: Iterable[Part]) -> None:
        """Queue a reply, or a part of one."""
        for part in parts:
            self.parts.append(part)
            if isinstance(part, _BUFFERS):
                self.unsent_bytes += len(part)
            else:
                self.slices += 1

    def clear(self) -> None:
        """Discard the queue."""
        self.parts.clear()
        self.sending = False
        self.slices = self.unsent_bytes = 0

    def send(self) -> None:
        """Send as much as the socket takes, while the turn budget lasts. Raises OSError and CutShort."""
        parts = self.parts
        while parts and not self.paused:
            if not self.slices:
                self.sending = False
                self.written_bytes = self.unsent_bytes
                self.unsent_bytes = 0
                if len(parts) == 1:
                    self._transport.write(parts.popleft())  # type: ignore[arg-type]
                else:
                    buffers = [*parts]
                    parts.clear()
                    self._transport.writelines(buffers)  # type: ignore[arg-type]
                return
            part = parts[0]
            if isinstance(part, _BUFFERS):
                self._send_before_slice(self._buffers_in_front())
                continue
            if self._turns.is_spent:
                break
            if len(part) > EDGE_BYTES:
                self._send_some(part)
            if len(part) <= EDGE_BYTES:
                self._take_rest(part)
        self.sending = bool(parts)

    def _send_before_slice(self, buffers: list[Buffer]) -> None:
        """Send small buffers in one packet with the beginning of the slice after them."""
        if self.parts and self._socket >= 0 and not self._transport.is_closing():
            data = b"".join(buffers)
            sent = send_before_more(self._socket, data) if len(data) <= EDGE_BYTES else 0
            self.unsent_bytes -= sent
            if sent == len(data):
                return
            buffers = [data[sent:]]
        self._write(buffers)

    def _take_rest(self, part: FileSlice) -> None:
        """Replace the first part, a slice, by its last bytes."""
        self.slices -= 1
        self.parts.popleft()
        if part:
            data = part.take(EDGE_BYTES)
            if part:
                raise CutShort(f"{len(part)} bytes are missing")
            self.parts.appendleft(data)
            self.unsent_bytes += len(data)

    def _buffers_in_front(self) -> list[Buffer]:
        buffers: list[Buffer] = []
        while self.parts and isinstance(part := self.parts[0], _BUFFERS):
            buffers.append(part)
            self.parts.popleft()
        return buffers

    def _write(self, buffers: list[Buffer]) -> None:
        self.written_bytes = sum(map(len, buffers))
        self.unsent_bytes -= self.written_bytes
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        else:
            self._transport.writelines(buffers)

    def _send_some(self, part: FileSlice) -> None:
        left_bytes = len(part)
        if self._socket < 0:
            self._write([self._piece(part, PIECE_BYTES)])
        elif self._transport.is_closing():  # the descriptor may soon be another's
            raise ConnectionAbortedError
        elif part.send_to(self._socket, EDGE_BYTES) == 0:
            self._write([self._piece(part, WAIT_BYTES)])
        self._turns.charge((left_bytes - len(part)) * COPY_BYTE_US)

    def _piece(self, part: FileSlice, most_bytes: int) -> bytes:
        piece = part.take(most_bytes)
        self.unsent_bytes += len(piece)
        return piece
