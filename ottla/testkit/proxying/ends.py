"""One end of a connection that passes through: frames in, frames out, and whether the peer is still there. shell

What is received waits in memory up to a frame and `READ_AHEAD_BYTES`; then the peer is not read any more, and its own
buffers fill. What is sent waits for the peer likewise.
"""

import asyncio
from typing import Final

from ottla.protocol.errors import ProtocolError
from ottla.protocol.frames import MAX_FRAME_BYTES

READ_AHEAD_BYTES: Final = 64 * 1024


class End(asyncio.StreamReaderProtocol):
    """A protocol for `create_connection` and `create_server`; `opened` runs when it is connected."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=READ_AHEAD_BYTES, loop=loop)
        super().__init__(self.reader, loop=loop)
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the peer sends nothing any more."""
        self._loop_of_end = loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.writer = asyncio.StreamWriter(transport, self, self.reader, self._loop_of_end)

    def eof_received(self) -> bool:
        """The peer sends nothing more; it may still read."""
        super().eof_received()
        self._leave()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        super().connection_lost(exc)
        self._leave()

    def _leave(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)

    async def frame(self) -> bytes | None:
        """The next frame without its size; None at the end. ProtocolError for a size that no frame has."""
        try:
            size = int.from_bytes(await self.reader.readexactly(4), "big", signed=True)
            if not 0 <= size <= MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {size} bytes")
            return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def send(self, frame: bytes) -> bool:
        """Send a frame, and wait while the peer has too much to read; whether the connection is still there."""
        try:
            self.writer.writelines((len(frame).to_bytes(4, "big"), frame))
            await self.writer.drain()
        except OSError:
            return False
        return True

    def finish(self) -> None:
        """Say that nothing more comes."""
        if self.writer.can_write_eof() and not self.transport.is_closing():
            self.writer.write_eof()

    def close(self) -> None:
        """Close, with what is still to be sent."""
        self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()
