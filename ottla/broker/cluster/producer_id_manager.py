"""Producer ids of one broker, from blocks that the controller logs or that ZooKeeper counts. shell

Source: `RPCProducerIdManager` of Kafka 4.3.1.
"""

from collections.abc import Callable
from typing import Final

from ottla.broker.cluster.adoption_records import PRODUCER_ID_BLOCK
from ottla.broker.cluster.controller import OnBlock, OnDurable
from ottla.broker.turns import Turns, Wait
from ottla.protocol.errors import ErrorCode

PREFETCH_LEFT: Final = PRODUCER_ID_BLOCK // 10
"""Number of free ids at which the next block is requested (`RPCProducerIdManager.PREFETCH_THRESHOLD`)."""


Reserve = Callable[[int, OnBlock, OnDurable], bool]
"""Requests a block for a broker, as `Controller.reserve_producer_ids`."""


class ProducerIdManager:
    """The unused ids of the broker's blocks whose records are durable."""

    def __init__(self, reserve: Reserve, turns: Turns, node_id: int) -> None:
        self._request_block = reserve
        self._turns = turns
        self._node_id = node_id
        self._free = range(0)
        self._next_block = range(0)
        self._reserving = False
        self._without_id: list[Wait[ErrorCode]] = []

    @property
    def unused_ids(self) -> int:
        """The number of ids that the broker has left."""
        return len(self._free) + len(self._next_block)

    def next_id(self) -> int | None:
        """Return an unused producer id; None if there is none yet.

        The next block is requested before the last one is used up, so that clients rarely wait for it.
        """
        if not self._free:
            self._free, self._next_block = self._next_block, range(0)
        free = self._free
        if len(free) <= PREFETCH_LEFT and not self._next_block:
            self._reserve()
        if not free:
            return None
        self._free = free[1:]
        return free[0]

    async def wait_for_id(self) -> bool:
        """Wait until an id is available; return False if there is none now."""
        while not self._free and not self._next_block:
            if not self._reserve():
                return False
            if not self._reserving:
                continue  # the record was durable at once
            wait: Wait[ErrorCode] = Wait(self._turns)
            self._without_id.append(wait)
            if await wait:
                return False
        return True

    def _reserve(self) -> bool:
        """Request a block, unless a request is in progress. Return False if there is none now."""
        if self._reserving:
            return True
        self._reserving = True
        if not self._request_block(self._node_id, self._take, self._wake):
            self._reserving = False
            return False
        return True

    def _take(self, block: range) -> None:
        self._next_block = block

    def _wake(self, error: ErrorCode) -> None:
        self._reserving = False
        waiting, self._without_id = self._without_id, []
        for wait in waiting:
            wait.wake(error)
