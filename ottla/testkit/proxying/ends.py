"""Client or broker side of a proxied connection: reading and writing of frames, detection of closing. shell

Received data is buffered up to one frame and `READ_AHEAD_BYTES`; then reading pauses, and the peer's own buffers fill.
Sending waits for the peer in the same way.
"""

import asyncio
from typing import Final

from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests.frames import MAX_FRAME_BYTES

READ_AHEAD_BYTES: Final = 64 * 1024


class End(asyncio.StreamReaderProtocol):
    """Side of a proxied connection, a protocol for `create_connection` and `create_server`."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=READ_AHEAD_BYTES, loop=loop)
        super().__init__(self.reader, loop=loop)
        self.disconnected: asyncio.Future[None] = loop.create_future()
        """Done when the peer will send no more."""
        self._loop_of_end = loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the new connection."""
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.writer = asyncio.StreamWriter(transport, self, self.reader, self._loop_of_end)

    def eof_received(self) -> bool:
        """Record that the peer sends no more; it may still read."""
        super().eof_received()
        self._leave()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the connection is closed."""
        super().connection_lost(exc)
        self._leave()

    def _leave(self) -> None:
        if not self.disconnected.done():
            self.disconnected.set_result(None)

    async def frame(self) -> bytes | None:
        """Return the next frame without its size, None at the end. ProtocolError for an invalid size."""
        try:
            size = int.from_bytes(await self.reader.readexactly(4), "big", signed=True)
            if not 0 <= size <= MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {size} bytes")
            return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def send(self, frame: bytes) -> bool:
        """Send a frame, wait while the send buffer is full, and return whether the connection is still open."""
        try:
            self.writer.writelines((len(frame).to_bytes(4, "big"), frame))
            await self.writer.drain()
        except OSError:
            return False
        return True

    def finish(self) -> None:
        """Send end-of-file to the peer."""
        if self.writer.can_write_eof() and not self.transport.is_closing():
            self.writer.write_eof()

    def close(self) -> None:
        """Close after the buffered data is sent."""
        self.transport.close()

    def abort(self) -> None:
        """Close at once, without sending buffered data."""
        self.transport.abort()
