"""Queue of the unanswered requests of a connection. shell"""

import asyncio
from collections import deque
from typing import Final

from ottla.testkit.control.journal import JournalEntry
from ottla.testkit.faults.exchange import Exchange

MOST_REQUESTS: Final = 256
MOST_BYTES: Final = 16 * 1024 * 1024


class PendingRequest:
    """A request that was forwarded `copies` times, or that the proxy answers with `answer`."""

    __slots__ = ("answer", "copies", "entry", "exchange")

    def __init__(self, exchange: Exchange, entry: JournalEntry, copies: int = 1, answer: bytes | None = None) -> None:
        self.exchange = exchange
        self.entry = entry
        self.copies = copies
        self.answer = answer

    @property
    def size_bytes(self) -> int:
        """Memory that the request and its answer take, in bytes."""
        return len(self.exchange.frame) + len(self.answer or b"")


class Pending:
    """Queue of unanswered requests. `put` waits while it holds `MOST_REQUESTS` requests or over `MOST_BYTES`."""

    def __init__(self) -> None:
        self._requests: deque[PendingRequest] = deque()
        self._size_bytes = 0
        self._ended = False
        self._changed = asyncio.Event()

    async def put(self, pending: PendingRequest) -> None:
        """Append a request, after waiting for space. An empty queue takes any request."""
        while self._requests and (len(self._requests) >= MOST_REQUESTS or self._size_bytes > MOST_BYTES):
            await self._change()
        self._requests.append(pending)
        self._size_bytes += pending.size_bytes
        self._changed.set()

    async def first(self) -> PendingRequest | None:
        """Return the next request to answer without removing it; None when the queue has ended."""
        while not self._requests:
            if self._ended:
                return None
            await self._change()
        return self._requests[0]

    def remove_first(self) -> None:
        """Remove the first request, which is answered."""
        self._size_bytes -= self._requests.popleft().size_bytes
        self._changed.set()

    def end(self) -> None:
        """Record that no more requests will arrive."""
        self._ended = True
        self._changed.set()

    def rest(self) -> list[PendingRequest]:
        """Return the requests that are still unanswered."""
        return list(self._requests)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
