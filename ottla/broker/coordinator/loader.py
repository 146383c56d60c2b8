"""Replay of a coordinator's partitions. It yields to other requests after each turn budget. shell

Source: `CoordinatorLoader`, `TransactionStateManager.loadTransactionsForTxnTopicPartition` of Kafka 4.3.1.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ottla.broker.cluster.metadata import Cluster
from ottla.broker.coordinator.shard import CoordinatorShard, StateLog
from ottla.broker.costs import BATCH_US, STATE_BYTE_US, STATE_RECORD_US
from ottla.broker.turns import Handler, OneAtATime, Turns, Wait
from ottla.protocol.errors import ErrorCode, ProtocolError

log = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)


class CoordinatorLoader(Generic[S]):
    """The shards of one topic, built from their logs one after the other.

    `new_shard` makes an empty shard. `settle`, if given, is awaited after each batch, for work that a shard spreads
    over turns. A complete shard is added to `shards`, and then `on_load` is awaited with it.

    A partition whose leader changes while it is read is read again if this broker leads it then.

    A partition whose log cannot be read to its end has no coordinator (`broken`). With only a part of the records,
    producers would no longer be fenced and consumers would return to older offsets. Kafka serves the part that it could
    read. An offline log is skipped; its error is in the log already.
    """

    def __init__(
        self,
        topic: str,
        cluster: Cluster,
        turns: Turns,
        new_shard: Callable[[StateLog], S],
        on_load: Callable[[S], Handler[None]],
        settle: Callable[[S], Handler[None]] | None = None,
    ) -> None:
        self.shards: dict[int, S] = {}
        self.loading: set[int] = set()
        self.broken: set[int] = set()
        self._topic = topic
        self._cluster = cluster
        self._turns = turns
        self._new_shard = new_shard
        self._on_load = on_load
        self._settle = settle
        self._queue: deque[int] = deque()
        self._work = OneAtATime(turns, self._log_failure)
        self._stopped = False

    def load(self, indexes: Iterable[int]) -> None:
        """Start to load these partitions now. Work beyond the turn budget continues in later turns."""
        for index in indexes:
            if index not in self.loading:
                self.loading.add(index)
                self._queue.append(index)
        self.broken.difference_update(self._queue)
        if not self._stopped:
            self._work.start(self._load_queue)

    def drop(self, index: int) -> S | None:
        """Return the shard of a partition, which has one no more. If it is being loaded, the result is discarded."""
        self.loading.discard(index)
        if index in self._queue:
            self._queue.remove(index)
        return self.shards.pop(index, None)

    def stop(self) -> None:
        """Stop loading. Partitions that are not loaded by now stay unloaded."""
        self._stopped = True
        self._work.discard()

    async def _load_queue(self) -> None:
        while self._queue:
            index = self._queue.popleft()
            shard = None
            try:
                shard = await self._build(index)
            except (ProtocolError, OSError) as error:
                self._give_up(index, str(error))
            except Exception as bug:
                self._give_up(index, "a bug", bug)
            if index not in self.loading or index in self._queue:
                continue  # it moved; if it has come back, it is loaded again
            self.loading.discard(index)
            if shard is not None:
                self.shards[index] = shard
                await self._on_load(shard)

    async def _build(self, index: int) -> S | None:
        """Return a shard with its log replayed; None if the log is offline or deleted, or another broker leads it.

        Records that are not durable yet are awaited, because they may still be lost.
        """
        partition = await self._cluster.get_or_open(self._topic, index)
        if partition is None or partition.offline is not None:
            return None
        shard, turns = self._new_shard(partition), self._turns
        if partition.log_end_offset > partition.high_watermark:
            durable: Wait[ErrorCode] = Wait(turns)
            partition.when_durable(partition.log_end_offset - 1, durable.wake)
            if error := await durable:
                raise OSError(f"its last records are not durable: {error.name}")
        for header, batch in partition.scan(partition.log_start_offset):
            shard.replay(header, batch)
            await turns.spend(BATCH_US + header.record_count * STATE_RECORD_US + len(batch) * STATE_BYTE_US)
            if self._settle is not None:
                await self._settle(shard)
        return shard

    def _give_up(self, index: int, why: str, bug: Exception | None = None) -> None:
        self.broken.add(index)
        log.error(
            "%(topic)s-%(partition)d cannot be loaded and has no coordinator. Loading stopped: %(why)s",
            {"topic": self._topic, "partition": index, "why": why},
            exc_info=bug,
        )

    def _log_failure(self, error: Exception) -> None:
        log.error("Loading of %s failed: partitions that are not loaded stay unavailable", self._topic, exc_info=error)
