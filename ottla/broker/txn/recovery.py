"""Replay of `__transaction_state` partitions, in shares so that other requests are answered meanwhile. shell"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ottla.broker.costs import BATCH_US, STATE_BYTE_US, STATE_RECORD_US
from ottla.broker.turns import Turns
from ottla.broker.txn import machine
from ottla.broker.txn.log import StoredChange, read_changes
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.states import RESTING
from ottla.protocol.errors import ProtocolError

log = logging.getLogger("ottla.txn.recovery")


class Loader:
    """Replays shards one after the other. `install(shard, unfinished ids)` takes each when it is complete.

    A log that cannot be read to its end has no coordinator (`broken`): half of its ids would be forgotten, and their
    producers no longer fenced. Kafka serves what it could read.
    """

    def __init__(self, turns: Turns, install: Callable[[Shard, Sequence[str]], None]) -> None:
        self.loading: set[int] = set()
        self.broken: set[int] = set()
        self._turns = turns
        self._install = install
        self._queue: deque[Shard] = deque()
        self._running = False
        self._stopped = False

    def load(self, shards: Sequence[Shard]) -> None:
        """Begin at once; what a share cannot hold goes on in later turns."""
        self.loading.update(shard.log.index for shard in shards)
        self._queue.extend(shards)
        if not self._running:
            self._running = True
            self._turns.start(self._work(), _ignore, self._failed)

    def stop(self) -> None:
        """What is not loaded by now never will be."""
        self._queue.clear()
        self._stopped = True

    async def _work(self) -> None:
        while self._queue:
            shard = self._queue.popleft()
            unfinished: dict[str, None] = {}
            try:
                await self._replay_all(shard, unfinished)
            except (ProtocolError, OSError) as broken:
                log.error("%s cannot be loaded and has no coordinator: %s", _name(shard), broken)
                self._give_up(shard)
                continue
            except Exception:
                log.exception("%s cannot be loaded and has no coordinator", _name(shard))
                self._give_up(shard)
                continue
            if self._stopped:
                return
            self.loading.discard(shard.log.index)
            self._install(shard, list(unfinished))
        self._running = False

    def _give_up(self, shard: Shard) -> None:
        self.broken.add(shard.log.index)
        self.loading.discard(shard.log.index)

    async def _replay_all(self, shard: Shard, unfinished: dict[str, None]) -> None:
        turns = self._turns
        for header, batch in shard.log.scan(shard.log.log_start_offset):
            self._replay(shard, read_changes(header, batch, _name(shard)), unfinished)
            turns.charge(BATCH_US + header.record_count * STATE_RECORD_US + len(batch) * STATE_BYTE_US)
            if turns.over:
                await turns.pause()
                if self._stopped:
                    return

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
