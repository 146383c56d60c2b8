"""The shards of one coordinator: look-up by id, and the writing of changes. shell

    decide -> log -> apply

The coordinator decides on a change and passes it to this module. The change is appended to the log and then applied:
right after the append (`write`), or when it is durable (`write_durable`). This module does not know the meaning of a
change or of an id (a transactional id, a group id): an id hashes to a partition.

Both moments are Kafka's. A group's change is applied right after the append, so that the next request sees it, and the
reply waits until the change is durable (`CoordinatorRuntime`). The state of a transactional id changes when its record
is acknowledged; until then the id is pending (`TransactionStateManager.appendTransactionToLog`).

Source: `CoordinatorRuntime` of Kafka's coordinator-common.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar, Final, Generic, TypeVar

from ottla.broker.cluster.metadata import Cluster
from ottla.broker.coordinator.loader import CoordinatorLoader
from ottla.broker.coordinator.shard import CoordinatorShard, StateLog
from ottla.broker.costs import HASH_CHAR_US
from ottla.broker.turns import Handler, Turns, Wait
from ottla.protocol.errors import ErrorCode
from ottla.protocol.hashing import coordinator_partition

# Hashing an id costs more than the decision, and each transaction looks its id up three times.
HASHES_KEPT: Final = 4096
LONGEST_KEPT: Final = 256

_E: Final = ErrorCode
_CLIENT_ERRORS: Final = {
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
    _E.MESSAGE_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.RECORD_LIST_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    # The log refuses offsets of a transaction (groups).
    _E.INVALID_TXN_STATE: _E.UNKNOWN_SERVER_ERROR,
}
"""Errors of a coordinator's log, as its clients get them (`TransactionStateManager.appendTransactionToLog`,
`CoordinatorOperationExceptionHelper`)."""

S = TypeVar("S", bound=CoordinatorShard)
C = TypeVar("C")
R = TypeVar("R")


def client_error(error: ErrorCode) -> ErrorCode:
    """Return the error that clients of a coordinator get for the error of an append to its log."""
    return _CLIENT_ERRORS.get(error, error)


async def await_durable(answer: R | Wait[R]) -> R:
    """Return the answer to a change; wait until the change is durable if `answer` is a wait."""
    return await answer if isinstance(answer, Wait) else answer


class CoordinatorRuntime(ABC, Generic[S, C, R]):
    """The partitions of one internal topic. A partition serves requests once its log is replayed.

    S is the type of a shard, C of a change, R of the answer to a change. `shards` has the replayed shards by partition,
    `loading` the partitions that are being replayed. `settle`, if given, is awaited after each batch of a replay.
    """

    empty_id: ClassVar[ErrorCode] = ErrorCode.NONE
    """Error for the empty id; NONE where the empty id is valid."""

    def __init__(
        self, topic: str, cluster: Cluster, turns: Turns, settle: Callable[[S], Handler[None]] | None = None
    ) -> None:
        self.topic = topic
        self._cluster = cluster
        self._turns = turns
        self._loader = CoordinatorLoader(topic, cluster, turns, self.new_shard, self.on_load, settle)
        self.shards: dict[int, S] = self._loader.shards
        self.loading = self._loader.loading
        self.partition_count = 0
        """The number of partitions of the topic, 0 until a request for an id has found the topic."""
        self._hashed = lru_cache(HASHES_KEPT)(self._hash)

    # ---- implemented by each coordinator

    @abstractmethod
    def new_shard(self, partition: StateLog) -> S:
        """Return an empty shard; the log of `partition` will be replayed into it."""

    @abstractmethod
    async def on_load(self, shard: S) -> None:
        """Resume unfinished work of a shard whose replay is complete."""

    @abstractmethod
    def apply(self, shard: S, change: C, base_offset: int) -> R:
        """Apply a change that was appended at `base_offset`, and return the answer to the request."""

    @abstractmethod
    def answer_refusal(self, shard: S, change: C, error: ErrorCode) -> R:
        """Return the answer to a change that the log refused. `error` is the log's, not the one for the client."""

    @abstractmethod
    def on_resign(self, shard: S) -> None:
        """End what waits in a shard that has resigned."""

    def mark_pending(self, shard: S, change: C) -> None:
        """Mark a change as pending: it was appended, and will be applied when it is durable."""

    def answer_lost_change(self, change: C, error: ErrorCode) -> R:
        """Return the answer to a change whose log went offline, or whose shard resigned, before it was durable.

        The next replay shows whether the change is in the log.
        """
        raise NotImplementedError

    # ---- start and stop

    def start(self) -> None:
        """Start to replay all partitions of the topic, over as many turns as needed."""
        topic = self._cluster.topics.get(self.topic)
        if topic is not None:
            self._loader.load(range(topic.partition_count))

    def stop(self) -> None:
        """Stop the replay."""
        self._loader.stop()

    def become(self, index: int) -> None:
        """Coordinate a partition from now on: this broker leads it."""
        self._loader.load((index,))

    def resign(self, index: int) -> None:
        """Coordinate a partition no more, if this broker did: another one leads it."""
        shard = self._loader.drop(index)
        if shard is not None:
            shard.resigned = True
            self.on_resign(shard)

    # ---- shards

    def shard_of(self, key: str) -> S | ErrorCode:
        """Return the shard that owns an id, or the error for the client if the shard is not available."""
        if not key and self.empty_id:
            return self.empty_id
        count = self.partition_count
        if not count:
            topic = self._cluster.topics.get(self.topic)
            if topic is None:
                return ErrorCode.NOT_COORDINATOR
            count = self.partition_count = topic.partition_count
        return self.shard_at(self._hashed(key, count) if len(key) <= LONGEST_KEPT else self._hash(key, count))

    def partition_for(self, key: str) -> int:
        """Return the partition that holds an id. The topic need not exist yet."""
        count = self.partition_count or self._cluster.internal_partition_count(self.topic)
        return self._hashed(key, count) if len(key) <= LONGEST_KEPT else self._hash(key, count)

    def _hash(self, key: str, partition_count: int) -> int:
        self._turns.charge(len(key) * HASH_CHAR_US)
        return coordinator_partition(key, partition_count)

    def shard_at(self, index: int) -> S | ErrorCode:
        """Return the shard of a partition, or the error for the client if it is not available.

        A partition that was created after the start is loaded now.
        """
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
        """Append a change to the log and apply it at once. The caller waits until it is durable before it replies."""
        if shard.resigned:
            return self.answer_refusal(shard, change, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        outcome = shard.log.append_own(batch)
        if outcome.error:
            return self.answer_refusal(shard, change, outcome.error)
        return self.apply(shard, change, outcome.base_offset)

    def write_durable(self, shard: S, batch: bytearray, change: C) -> R | Wait[R]:
        """Append a change to the log and apply it when it is durable.

        Return the answer if the change is durable at once, else a wait for the answer.
        """
        log = shard.log
        if shard.resigned:
            return self.answer_refusal(shard, change, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        outcome = log.append_own(batch)
        if outcome.error:
            return self.answer_refusal(shard, change, outcome.error)
        if log.high_watermark > outcome.last_offset:
            return self.apply(shard, change, outcome.base_offset)
        self.mark_pending(shard, change)
        wait: Wait[R] = Wait(self._turns)

        def on_durable(error: ErrorCode) -> None:
            if shard.resigned:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            wait.wake(
                self.answer_lost_change(change, error) if error else self.apply(shard, change, outcome.base_offset)
            )

        log.when_durable(outcome.last_offset, on_durable)
        return wait
