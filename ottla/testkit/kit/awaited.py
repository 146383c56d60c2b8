"""A client of an asyncio library, started and closed on the event loop of the test that awaits it. shell"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Final

CLOSE_S: Final = 1.0
"""Time to close a client, in seconds. The test kit abandons a client that takes longer."""


class AwaitedClient:
    """A client of aiokafka that has not been started.

    `await` starts the client, which is closed after the test. `async with` closes it at the end of the block, which
    works however the test's event loop ends.
    """

    def __init__(self, make: Callable[[], Any], closed_behind: Callable[[Callable[[], object]], object]) -> None:
        """`make` is called on the event loop. `closed_behind` gets a function that closes the client after the test."""
        self._make = make
        self._closed_behind = closed_behind
        self._client: Any = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._start().__await__()

    async def __aenter__(self) -> Any:
        self._client = await self._start()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop()

    async def _start(self) -> Any:
        client = self._make()
        loop = asyncio.get_running_loop()
        self._closed_behind(lambda: _stop(client, loop))
        await client.start()
        return client


def _stop(client: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Stop the client on its event loop, from another thread if the loop runs.

    If the loop is closed, the connections are closed already. Unsent messages to a broker that is down are dropped.
    """
    if loop.is_running():
        asyncio.run_coroutine_threadsafe(asyncio.wait_for(client.stop(), CLOSE_S), loop)
    elif not loop.is_closed():
        loop.run_until_complete(asyncio.wait_for(client.stop(), CLOSE_S))
