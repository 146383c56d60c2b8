"""Marker fan-out: the outcome of a transaction goes to each of its partitions, then Complete is logged. shell

Local markers follow the reply of EndTxn in the same turn, at most `MARKER_BUDGET_MS` of them per turn; the rest go on
in the turns that follow. A partition that cannot take its marker now is tried again, with back-off, until it can or
until its topic is gone: a prepared transaction has been decided and must end.

Source: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler` of Kafka 4.3.1.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.cluster.sinks import MarkerSink, TransactionMarker
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.broker.txn.values import Partitions, TopicPartition
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.txn.shard import Shard

log = logging.getLogger("ottla.txn.markers")

MARKER_BUDGET_MS: Final = 5.0
FIRST_RETRY_MS: Final = 20.0
LAST_RETRY_MS: Final = 1000.0


class Next(Enum):
    """What a partition's answer means for its marker."""

    DONE = "the marker is written, or can never be"
    RETRY = "try again later"
    ABANDON = "somebody else completes this transaction; its other partitions get their markers all the same"


_E = ErrorCode
# Answers that are not listed are bugs: the transaction is abandoned with an error in the log.
_NEXT: Final = {
    _E.NONE: Next.DONE,
    _E.UNSUPPORTED_FOR_MESSAGE_FORMAT: Next.DONE,
    _E.UNSUPPORTED_VERSION: Next.DONE,
    _E.UNKNOWN_TOPIC_OR_PARTITION: Next.RETRY,
    _E.NOT_LEADER_OR_FOLLOWER: Next.RETRY,
    _E.NOT_ENOUGH_REPLICAS: Next.RETRY,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Next.RETRY,
    _E.REQUEST_TIMED_OUT: Next.RETRY,
    _E.KAFKA_STORAGE_ERROR: Next.RETRY,
    _E.INVALID_PRODUCER_EPOCH: Next.ABANDON,
    _E.TRANSACTION_COORDINATOR_FENCED: Next.ABANDON,
}
# Complete was not logged because the id has another coordinator, who will do it. Whatever else fails is tried again.
_ANOTHER_COORDINATOR: Final = frozenset({_E.NOT_COORDINATOR, _E.COORDINATOR_LOAD_IN_PROGRESS})


class KnownTopic(Protocol):
    @property
    def partition_count(self) -> int: ...


class Completion:
    """A prepared transaction on its way to Complete. `awaiting` is the set in the id's volatile part."""

    __slots__ = ("abandoned", "awaiting", "backoff_ms", "marker", "round", "shard", "transactional_id")

    def __init__(self, shard: "Shard", transactional_id: str, marker: TransactionMarker, awaiting: Partitions) -> None:
        self.shard = shard
        self.transactional_id = transactional_id
        self.marker = marker
        self.awaiting = awaiting
        self.backoff_ms = FIRST_RETRY_MS
        self.abandoned = False
        self.round: Iterator[TopicPartition] = iter(tuple(awaiting))


class MarkerFanout:
    """Writes markers and reports each transaction that has all of them.

    `topics` is the cluster's live table; `log_complete(completion)` logs the Complete record and returns the error of
    that append.
    """

    def __init__(
        self,
        topics: Callable[[], Mapping[str, KnownTopic]],
        sink: MarkerSink,
        turns: Turns,
        clock: Clock,
        log_complete: Callable[[Completion], ErrorCode],
    ) -> None:
        self._topics = topics
        self._sink = sink
        self._turns = turns
        self._clock = clock
        self._log_complete = log_complete
        self._queue: deque[Completion] = deque()
        self._scheduled = False
        self._metered = False
        self._stopped = False
        self._left_ms = MARKER_BUDGET_MS

    def begin(self, completion: Completion) -> None:
        """Write the markers behind what this turn has still to do (the reply)."""
        if self._stopped:
            return
        self._queue.append(completion)
        if not self._scheduled:
            self._scheduled = True
            self._turns.later(self._run)

    def stop(self) -> None:
        """Write no marker any more; recovery takes up what is left."""
        self._queue.clear()
        self._stopped = True

    def _run(self) -> None:
        """Work off the queue within what is left of this turn's budget."""
        self._scheduled = False
        if not self._metered:
            self._metered = True
            self._turns.at_end(self._end_turn)
        now_ms = self._clock.monotonic_ms
        deadline_ms = now_ms() + self._left_ms
        queue = self._queue
        while queue and self._left_ms > 0:
            completion = queue.popleft()
            try:
                finished = self._write(completion, deadline_ms)
            except Exception:
                # A decided transaction must end whatever broke: say so and come back to it.
                log.exception("Markers of %s were interrupted", completion.transactional_id)
                self._later(completion)
                finished = True
            if not finished:
                queue.append(completion)
            self._left_ms = deadline_ms - now_ms()
        if queue and not self._scheduled:
            self._scheduled = True
            self._clock.next_turn(self._run)

    def _end_turn(self) -> None:
        self._metered = False
        self._left_ms = MARKER_BUDGET_MS

    def _write(self, completion: Completion, deadline_ms: float) -> bool:
        """Write markers of one transaction; False when the time is up before its round is."""
        awaiting, marker = completion.awaiting, completion.marker
        topics, write_marker, now_ms = self._topics(), self._sink.write_marker, self._clock.monotonic_ms
        for partition in completion.round:
            name, index = partition
            topic = topics.get(name)
            if topic is None or index >= topic.partition_count:
                log.info("%s-%d is gone: %s ends without it", name, index, completion.transactional_id)
                del awaiting[partition]
                continue
            error = write_marker(name, index, marker)
            step = _NEXT.get(error)
            if step is Next.DONE:
                del awaiting[partition]
            elif step is not Next.RETRY:
                self._abandon(completion, partition, error, known=step is Next.ABANDON)
            if now_ms() >= deadline_ms and awaiting:
                return False
        if completion.abandoned:
            return True
        if awaiting:
            self._later(completion)
        else:
            self._complete(completion)
        return True

    def _complete(self, completion: Completion) -> None:
        error = self._log_complete(completion)
        if error in _ANOTHER_COORDINATOR:
            log.warning("Complete of %s is left to its coordinator: %s", completion.transactional_id, error.name)
        elif error:
            self._later(completion)

    def _later(self, completion: Completion) -> None:
        """Start another round after the back-off."""
        self._clock.call_later(completion.backoff_ms, lambda: self._again(completion))
        completion.backoff_ms = min(completion.backoff_ms * 2, LAST_RETRY_MS)

    def _again(self, completion: Completion) -> None:
        completion.round = iter(tuple(completion.awaiting))
        self.begin(completion)

    def _abandon(self, completion: Completion, partition: TopicPartition, error: ErrorCode, known: bool) -> None:
        completion.abandoned = True
        level = logging.WARNING if known else logging.ERROR
        name, index = partition
        log.log(level, "Marker of %s refused by %s-%d: %s", completion.transactional_id, name, index, error.name)
