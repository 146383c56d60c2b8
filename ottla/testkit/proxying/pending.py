"""The requests of one connection that are not answered yet, in order. shell"""

import asyncio
from collections import deque
from typing import Final

from ottla.testkit.control.journal import Passage
from ottla.testkit.faults.exchange import Exchange

MOST_REQUESTS: Final = 256
MOST_BYTES: Final = 16 * 1024 * 1024


class Asked:
    """A request that was passed on `copies` times, or is answered by the proxy with `answer`."""

    __slots__ = ("answer", "copies", "exchange", "passage")

    def __init__(self, exchange: Exchange, passage: Passage, copies: int = 1, answer: bytes | None = None) -> None:
        self.exchange = exchange
        self.passage = passage
        self.copies = copies
        self.answer = answer

    @property
    def size_bytes(self) -> int:
        """What it takes here."""
        return len(self.exchange.frame) + len(self.answer or b"")


class Pending:
    """A queue with an end. Who asks for more than `MOST_REQUESTS` or `MOST_BYTES` at once waits for answers."""

    def __init__(self) -> None:
        self._asked: deque[Asked] = deque()
        self._size_bytes = 0
        self._ended = False
        self._changed = asyncio.Event()

    async def put(self, asked: Asked) -> None:
        """Wait for room; one request always has it."""
        while self._asked and (len(self._asked) >= MOST_REQUESTS or self._size_bytes > MOST_BYTES):
            await self._change()
        self._asked.append(asked)
        self._size_bytes += asked.size_bytes
        self._changed.set()

    async def first(self) -> Asked | None:
        """The one to be answered next, which stays; None when there will be none."""
        while not self._asked:
            if self._ended:
                return None
            await self._change()
        return self._asked[0]

    def answered(self) -> None:
        """The first is answered."""
        self._size_bytes -= self._asked.popleft().size_bytes
        self._changed.set()

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._changed.set()

    def rest(self) -> list[Asked]:
        """Those that nobody will answer."""
        return list(self._asked)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
