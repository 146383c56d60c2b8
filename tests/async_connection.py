"""A raw protocol connection for tests on an event loop, over the core of `ottla.wire.connection`."""

import asyncio
from collections import deque
from typing import Any, Self

from ottla.protocol.errors import ProtocolError
from ottla.wire.connection import DEFAULT_CLIENT_ID, DEFAULT_TIMEOUT_S, Exchange, Versions


class AsyncConnection(asyncio.BufferedProtocol):
    """A connection for one event loop. Requests of several tasks are pipelined; each awaits its own response."""

    def __init__(self, client_id: str = DEFAULT_CLIENT_ID, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._exchange = Exchange(client_id)
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def open(
        cls, host: str, port: int, *, client_id: str = DEFAULT_CLIENT_ID, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Self:
        """Connect. `timeout_s` applies to connecting and to each response."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(lambda: cls(client_id, timeout_s), host, port)
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close and wait until the transport is closed. Waiting requests raise ConnectionError."""
        if self._transport is not None:
            self._transport.close()
            await asyncio.shield(self._closed)

    async def versions(self) -> Versions:
        """Return the versions that the broker serves. The first call sends ApiVersions."""
        while self._exchange.versions is None:
            message, version = self._exchange.hello()
            self._exchange.learn(await self.send(message, version))
        return self._exchange.versions

    async def send(self, message: Any, version: int | None = None) -> Any:
        """Send a request and await its response; None at once for a request that has no response."""
        if version is None:
            await self.versions()
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the connection is closed")
        frame, expects = self._exchange.request(message, version)
        self._transport.write(frame)
        if not expects:
            return None
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            self._transport.abort()
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._exchange.inbox.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._exchange.inbox.commit(nbytes)
        try:
            while (response := self._exchange.next_response()) is not None:
                future = self._waiting.popleft()
                if not future.done():
                    future.set_result(response)
        except ProtocolError as error:
            self._fail(error)
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionError("the broker closed the connection"))
        if not self._closed.done():
            self._closed.set_result(None)

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
