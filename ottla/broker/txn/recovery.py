"""Replay of `__transaction_state` partitions, in slices so that other requests are answered meanwhile. shell"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.broker.txn import machine
from ottla.broker.txn.log import StoredChange, read_changes
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.states import RESTING
from ottla.protocol.errors import ProtocolError

log = logging.getLogger("ottla.txn.recovery")

SLICE_MS: Final = 10.0


class Loader:
    """Replays shards one after the other. `install(shard, unfinished ids)` takes each when it is complete."""

    def __init__(self, turns: Turns, clock: Clock, install: Callable[[Shard, Sequence[str]], None]) -> None:
        self.loading: set[int] = set()
        self._turns = turns
        self._clock = clock
        self._install = install
        self._queue: deque[Shard] = deque()
        self._running = False

    def load(self, shards: Sequence[Shard]) -> None:
        """Begin at once; what a slice cannot hold goes on in later turns."""
        self.loading.update(shard.log.index for shard in shards)
        self._queue.extend(shards)
        if not self._running:
            self._running = True
            self._turns.start(self._work(), _ignore, self._failed)

    async def _work(self) -> None:
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        while self._queue:
            shard = self._queue.popleft()
            unfinished: dict[str, None] = {}
            try:
                for header, batch in shard.log.scan(shard.log.log_start_offset):
                    self._replay(shard, read_changes(header, batch, _name(shard)), unfinished)
                    if self._clock.monotonic_ms() > until_ms:
                        await self._turns.pause()
                        until_ms = self._clock.monotonic_ms() + SLICE_MS
            except (OSError, ProtocolError):
                # As Kafka: serve what could be read rather than nothing, and say so.
                log.exception("Loading %s stopped early; %d ids were read", _name(shard), len(shard.states))
            self.loading.discard(shard.log.index)
            self._install(shard, list(unfinished))
        self._running = False

    @staticmethod
    def _replay(shard: Shard, changes: Iterable[StoredChange], unfinished: dict[str, None]) -> None:
        for transactional_id, state in changes:
            machine.apply(shard.states, transactional_id, state)
            if state is None or state.status in RESTING:
                unfinished.pop(transactional_id, None)
            else:
                unfinished[transactional_id] = None

    def _failed(self, error: Exception) -> None:
        self._running = False
        log.error("Loading of transaction logs failed", exc_info=error)


def _name(shard: Shard) -> str:
    return f"__transaction_state-{shard.log.index}"


def _ignore(result: None) -> None:
    """Nobody waits for the end of loading."""
