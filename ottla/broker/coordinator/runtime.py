"""The shards of one coordinator: which serve and why another does not, and the way of a change into them. shell

    decide -> log -> apply

A coordinator has decided on a change when it comes here. It is logged, and then applied: at once where what is in the
log counts (`write`), or when it is durable where only that counts (`write_durable`). What a change is, and of what,
transactional ids or groups, is not known here: an id is what hashes to a partition.

There are two moments because Kafka has them. What a group's log holds is replayed at once, so that the next request is
decided on it, and the reply waits (`CoordinatorRuntime`); the state of a transactional id changes when its record is
acknowledged, and until then the id is pending (`TransactionStateManager.appendTransactionToLog`).

Source: `CoordinatorRuntime` of Kafka's coordinator-common.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, TypeVar

from ottla.broker.coordinator.loader import CoordinatorLoader
from ottla.broker.coordinator.shard import ClusterView, CoordinatorShard, StateLog
from ottla.broker.costs import HASH_CHAR_US
from ottla.broker.turns import Handler, Turns, Wait
from ottla.protocol.errors import ErrorCode
from ottla.protocol.hashing import coordinator_partition

# Hashing an id costs more than deciding on it, and a transaction asks three times.
HASHES_KEPT: Final = 4096
LONGEST_KEPT: Final = 256

S = TypeVar("S", bound=CoordinatorShard)
C = TypeVar("C")
R = TypeVar("R")


async def await_durable(answer: R | Wait[R]) -> R:
    """The answer to a change that waits for its log, when it is there."""
    return await answer if isinstance(answer, Wait) else answer


class CoordinatorRuntime(ABC, Generic[S, C, R]):
    """The partitions of one internal topic, each of which serves once its log is replayed.

    S is what a shard is, C what a change is, R what a change is answered with. `shards` has those that are replayed,
    `loading` the indexes of those that are not; `settle`, if given, is awaited after each batch of a replay.
    """

    empty_id: ErrorCode = ErrorCode.NONE
    """What is answered for the empty id; NONE where it is one like others."""

    def __init__(
        self, topic: str, cluster: ClusterView, turns: Turns, settle: Callable[[S], Handler[None]] | None = None
    ) -> None:
        self.topic = topic
        self._cluster = cluster
        self._turns = turns
        self._loader = CoordinatorLoader(topic, cluster, turns, self.new_shard, self.loaded, settle)
        self.shards: dict[int, S] = self._loader.shards
        self.loading = self._loader.loading
        self._partition_count = 0
        self._hashed = lru_cache(HASHES_KEPT)(self._hash)

    # ---- what a coordinator brings

    @abstractmethod
    def new_shard(self, partition: StateLog) -> S:
        """An empty shard over a log, which is replayed into it."""

    @abstractmethod
    async def loaded(self, shard: S) -> None:
        """A shard is replayed and serves: take up what it left off."""

    @abstractmethod
    def apply(self, shard: S, change: C, base_offset: int) -> R:
        """The change is in the log from `base_offset` on: it is the state now. The answer to whoever asked for it."""

    @abstractmethod
    def refused(self, shard: S, change: C, error: ErrorCode) -> R:
        """The log did not take the change: nothing has happened. `error` is the log's, not the client's."""

    def began(self, shard: S, change: C) -> None:
        """The change is in the log, and will be applied when it is durable: note what must wait for that."""

    def lost(self, change: C, error: ErrorCode) -> R:
        """The log went offline before the change was durable: the next replay decides whether it is there."""
        raise NotImplementedError

    # ---- life

    def start(self) -> None:
        """Replay every partition that there is, over as many turns as it takes."""
        topic = self._cluster.topics.get(self.topic)
        if topic is not None:
            self._loader.load(range(topic.partition_count))

    def stop(self) -> None:
        """Read nothing any more."""
        self._loader.stop()

    # ---- where

    def shard_of(self, key: str) -> S | ErrorCode:
        """The shard that owns an id, or why it cannot answer."""
        if not key and self.empty_id:
            return self.empty_id
        count = self._partition_count
        if not count:
            topic = self._cluster.topics.get(self.topic)
            if topic is None:
                return ErrorCode.NOT_COORDINATOR
            count = self._partition_count = topic.partition_count
        return self.shard_at(self._hashed(key, count) if len(key) <= LONGEST_KEPT else self._hash(key, count))

    def _hash(self, key: str, partition_count: int) -> int:
        self._turns.charge(len(key) * HASH_CHAR_US)
        return coordinator_partition(key, partition_count)

    def shard_at(self, index: int) -> S | ErrorCode:
        """The shard of a partition, or why it cannot answer. One that came into being since the start is empty."""
        if index in self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        shard = self.shards.get(index)
        if shard is not None:
            return shard if shard.log.offline is None else ErrorCode.NOT_COORDINATOR
        partition = self._cluster.partition(self.topic, index)
        if index in self._loader.broken or partition is None or partition.offline is not None:
            return ErrorCode.NOT_COORDINATOR
        self._loader.load((index,))
        return self.shards.get(index, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    # ---- changes

    def write(self, shard: S, batch: bytearray, change: C) -> R:
        """Log a change, and apply it. Whoever answers a client waits for that log before it tells."""
        outcome = shard.log.append_own(batch)
        if outcome.error:
            return self.refused(shard, change, outcome.error)
        return self.apply(shard, change, outcome.base_offset)

    def write_durable(self, shard: S, batch: bytearray, change: C) -> R | Wait[R]:
        """Log a change, and apply it when it is durable: at once if it is, else a wait for the answer."""
        log = shard.log
        outcome = log.append_own(batch)
        if outcome.error:
            return self.refused(shard, change, outcome.error)
        if log.high_watermark > outcome.last_offset:
            return self.apply(shard, change, outcome.base_offset)
        self.began(shard, change)
        wait: Wait[R] = Wait(self._turns)

        def settled(error: ErrorCode) -> None:
            wait.wake(self.lost(change, error) if error else self.apply(shard, change, outcome.base_offset))

        log.when_durable(outcome.last_offset, settled)
        return wait
