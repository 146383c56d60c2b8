"""A client of an asyncio library: started on the event loop of the test that awaits it, and closed there. shell"""

import asyncio
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Final

CLOSE_S: Final = 1.0
"""What is not closed then is left."""


class AwaitedClient:
    """A client of aiokafka that has not been started. `await` gives it started, to be closed behind the test; `async
    with` closes it with its block, which works however the test's event loop ends."""

    def __init__(self, make: Callable[[], Any], closed_behind: Callable[[Callable[[], object]], object]) -> None:
        """`make` is called on the event loop. `closed_behind` is given what closes the client, to be called when the
        test is over."""
        self._make = make
        self._closed_behind = closed_behind
        self._client: Any = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._start().__await__()

    async def __aenter__(self) -> Any:
        self._client = await self._start()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.stop()

    async def _start(self) -> Any:
        client = self._make()
        loop = asyncio.get_running_loop()
        self._closed_behind(lambda: _stop(client, loop))
        await client.start()
        return client


def _stop(client: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Stop it on its loop, from outside; with a loop that is closed its connections are gone already. What it has
    still to send to a broker that is away is not waited for."""
    if loop.is_running():
        asyncio.run_coroutine_threadsafe(asyncio.wait_for(client.stop(), CLOSE_S), loop)
    elif not loop.is_closed():
        loop.run_until_complete(asyncio.wait_for(client.stop(), CLOSE_S))
