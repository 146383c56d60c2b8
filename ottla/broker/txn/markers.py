"""Marker fan-out: write the outcome of a transaction to each of its partitions, then log Complete. shell

Markers are written after the reply of EndTxn in the same turn while its budget lasts, and the rest in later turns.
Those of other brokers are sent when the turn ends.

A prepared transaction is decided and must end. If a partition cannot take its marker now, the write is repeated with
back-off until it succeeds or the topic is deleted. A partition that will never take the marker is left out, with a
warning. Kafka gives up such a transaction; here no other broker would complete it (docs/decisions/marker-phase.md).

Source: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler` of Kafka 4.3.1.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.broker.cluster.marker_writer import MarkerWriter
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.costs import MARKER_US
from ottla.broker.metrics import TransactionMetrics
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.turns import Turns
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.values import Partitions
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import TopicPartition, TransactionMarker

if TYPE_CHECKING:
    from ottla.broker.events import Events

log = logging.getLogger(__name__)

FIRST_RETRY_MS: Final = 20.0
LAST_RETRY_MS: Final = 1000.0
MARKERS_POSTPONED_MS: Final = 5.0
"""The delay of markers if clients are to get CONCURRENT_TRANSACTIONS: longer than a round trip on one machine."""


class Next(Enum):
    """The next action for a marker after a partition's answer."""

    DONE = "the marker is written, or can never be written"
    RETRY = "try again later"
    DROP = "never try again: the partition has seen a newer epoch of the producer or of the coordinator"


_E: Final = ErrorCode
# Answers that are not listed are bugs: they are logged as errors, and the marker is tried again.
_NEXT: Final[dict[object, Next]] = {
    _E.NONE: Next.DONE,
    _E.UNSUPPORTED_FOR_MESSAGE_FORMAT: Next.DONE,
    _E.UNSUPPORTED_VERSION: Next.DONE,
    _E.UNKNOWN_TOPIC_OR_PARTITION: Next.RETRY,
    _E.NOT_LEADER_OR_FOLLOWER: Next.RETRY,
    _E.NOT_ENOUGH_REPLICAS: Next.RETRY,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Next.RETRY,
    _E.REQUEST_TIMED_OUT: Next.RETRY,
    _E.KAFKA_STORAGE_ERROR: Next.RETRY,
    _E.INVALID_PRODUCER_EPOCH: Next.DROP,
    _E.TRANSACTION_COORDINATOR_FENCED: Next.DROP,
}


_DONE: Final = Next.DONE


class Completion:
    """A prepared transaction whose markers are being written. `awaiting` is the set in the id's transient state.

    `complained` is the last answer that was logged as an error, so that a lasting one is not logged each time.
    `flushing` counts the markers that are written and not yet durable, and those that another broker has not answered:
    a partition stays in `awaiting` until its marker is durable. When nothing else is left to do, the completion is
    `waiting` until then.
    """

    __slots__ = (
        "awaiting",
        "backoff_ms",
        "began_ms",
        "complained",
        "flushing",
        "marker",
        "round",
        "shard",
        "transactional_id",
        "waiting",
    )

    def __init__(
        self,
        shard: Shard,
        transactional_id: str,
        marker: TransactionMarker,
        awaiting: Partitions,
        began_ms: float = 0.0,
    ) -> None:
        self.shard = shard
        self.transactional_id = transactional_id
        self.marker = marker
        self.awaiting = awaiting
        self.began_ms = began_ms
        self.backoff_ms = FIRST_RETRY_MS
        self.complained = NO_ERROR
        self.flushing = 0
        self.waiting = False
        self.round: Iterator[TopicPartition] = iter(tuple(awaiting))


class MarkerFanout:
    """Writes markers, and logs Complete for each transaction that has all of them.

    `log_complete(completion)` logs the Complete record and returns the error of that append. With `delay_ms` the first
    markers of a transaction are delayed.
    """

    def __init__(
        self,
        cluster: Cluster,
        sink: MarkerWriter,
        turns: Turns,
        clock: Clock,
        log_complete: Callable[[Completion], ErrorCode],
        delay_ms: float = 0,
        metrics: TransactionMetrics | None = None,
    ) -> None:
        self._cluster = cluster
        self._sink = sink
        self._turns = turns
        self._clock = clock
        self._log_complete = log_complete
        self._delay_ms = delay_ms
        self._metrics = metrics or TransactionMetrics()
        self.events: Events | None = None
        """The event history, or None without an admin port."""
        self._queue: deque[Completion] = deque()
        self._backing_off: dict[Completion, Timer] = {}
        self._scheduled = False
        self._stopped = False
        self._held = False

    def begin(self, completion: Completion) -> None:
        """Write the markers after the other work of this turn (the reply), or after the delay."""
        if self._delay_ms and completion.awaiting:
            self._clock.call_later(self._delay_ms, lambda: self._enqueue(completion))
        else:
            self._enqueue(completion)

    def _enqueue(self, completion: Completion) -> None:
        if self._stopped:
            return
        self._queue.append(completion)
        if not self._scheduled and not self._held:
            self._scheduled = True
            self._turns.later(self._run)

    def hold(self) -> None:
        """Write no markers until `release`. Called before the first transaction."""
        self._held = True

    def release(self) -> None:
        """Write the markers that were held back."""
        self._held = False
        if self._queue and not self._scheduled:
            self._scheduled = True
            self._turns.later(self._run)

    def stop(self) -> None:
        """Write no more markers. Recovery continues with the rest."""
        self._queue.clear()
        self._backing_off.clear()
        self._stopped = True

    def retry_now(self) -> None:
        """Retry all markers that are in back-off now, because the cause has ended."""
        for completion, timer in list(self._backing_off.items()):
            timer.cancel()
            self._again(completion)

    def _run(self) -> None:
        """Process the queue while the turn budget lasts."""
        self._scheduled = False
        queue = self._queue
        while queue and not self._turns.is_spent:
            completion = queue.popleft()
            try:
                finished = self._write(completion)
            except Exception:
                # A decided transaction must end in spite of the bug: log it and retry.
                log.exception(
                    "Completing %(transactional_id).100s failed; the coordinator tries again", _about(completion)
                )
                self._later(completion)
                finished = True
            if not finished:
                queue.append(completion)
        if queue and not self._scheduled:
            self._scheduled = True
            self._turns.run_later(self._run)

    def _write(self, completion: Completion) -> bool:
        """Write markers of one transaction. Return False if the turn budget is spent before its round is over.

        The transactions of a resigned shard are left to the next coordinator.
        """
        if completion.shard.resigned:
            return True
        awaiting, marker, turns = completion.awaiting, completion.marker, self._turns
        topics, write_marker = self._cluster.topics, self._sink.write_marker
        for partition in completion.round:
            name, index = partition
            turns.charged_us += MARKER_US
            topic = topics.get(name)
            if topic is None or index >= topic.partition_count:
                log.info(
                    "%(topic)s-%(partition)d is deleted: %(transactional_id).100s ends without it",
                    _about(completion, partition),
                )
                del awaiting[partition]
                continue
            try:
                answer = write_marker(name, index, marker)
            except Exception:
                log.exception(
                    "%(topic)s-%(partition)d: writing the marker of %(transactional_id).100s failed",
                    _about(completion, partition),
                )
                continue
            if _NEXT.get(answer) is not _DONE:
                if not isinstance(answer, ErrorCode):
                    answer.follow(completion.shard, self._await_answer(completion, partition))
                else:
                    self._apply(completion, partition, answer)
            elif self._sink.flushing:
                self._sink.when_durable(*partition, self._await_answer(completion, partition))
            else:
                if self.events is not None:
                    _record(self.events, completion, partition)
                del awaiting[partition]
            if turns.is_spent and awaiting:
                return False
        if completion.flushing:
            completion.waiting = True  # the last answer enqueues it again
            return True
        if awaiting:
            self._later(completion)
        else:
            self._complete(completion)
        return True

    def _await_answer(self, completion: Completion, partition: TopicPartition) -> Callable[[ErrorCode], None]:
        """Return the callback for the answer of a partition, which arrives when its marker is durable."""
        completion.flushing += 1

        def on_answer(error: ErrorCode) -> None:
            completion.flushing -= 1
            if completion.shard.resigned:
                return
            self._apply(completion, partition, error)
            if completion.waiting and not completion.flushing:
                completion.waiting = False
                self._enqueue(completion)

        return on_answer

    def _apply(self, completion: Completion, partition: TopicPartition, error: ErrorCode) -> None:
        """Apply the answer of a partition: remove the partition from `awaiting`, or leave it for the next round."""
        step = _NEXT.get(error)
        if step is _DONE:
            if self.events is not None:
                _record(self.events, completion, partition)
            completion.awaiting.pop(partition, None)
        elif step is Next.DROP:
            completion.awaiting.pop(partition, None)
            _warn(completion, partition, error)
        elif step is None and error is not completion.complained:
            completion.complained = error
            _complain(completion, partition, error)

    def _complete(self, completion: Completion) -> None:
        error = self._log_complete(completion)
        if not error:
            if completion.began_ms:
                self._metrics.marker_phase.observe(self._metrics.now_ms() - completion.began_ms)
            return
        if completion.shard.log.offline is None:
            self._later(completion)
        else:
            log.warning(
                "Complete of %(transactional_id).100s is not logged: %(error)s. The next start logs it",
                _about(completion) | {"error": error.name},
            )

    def _later(self, completion: Completion) -> None:
        """Start another round after the back-off."""
        timer = self._clock.call_later(completion.backoff_ms, lambda: self._again(completion))
        self._backing_off[completion] = timer
        completion.backoff_ms = min(completion.backoff_ms * 2, LAST_RETRY_MS)

    def _again(self, completion: Completion) -> None:
        self._backing_off.pop(completion, None)
        completion.round = iter(tuple(completion.awaiting))
        self._enqueue(completion)


def _record(events: "Events", completion: Completion, partition: TopicPartition) -> None:
    """Record a written marker in the event history."""
    marker = completion.marker
    owner = completion.transactional_id, marker.producer_id, marker.producer_epoch
    events.record_marker(*owner, *partition, marker.commit)


def _warn(completion: Completion, partition: TopicPartition, error: ErrorCode) -> None:
    log.warning(
        "%(topic)s-%(partition)d will never accept the %(outcome)s marker of %(transactional_id)s (producer id "
        "%(producer_id)d, epoch %(producer_epoch)d, coordinator epoch %(coordinator_epoch)d): %(error)s. The "
        "transaction ends without it. The open transaction of this producer there stays open, and `ottla txn orphans` "
        "finds it",
        _about(completion, partition) | {"error": error.name},
    )


def _complain(completion: Completion, partition: TopicPartition, error: ErrorCode) -> None:
    log.error(
        "%(topic)s-%(partition)d does not accept the %(outcome)s marker of %(transactional_id)s (producer id "
        "%(producer_id)d, epoch %(producer_epoch)d, coordinator epoch %(coordinator_epoch)d): %(error)s is unexpected. "
        "The coordinator tries again; the transaction does not end before the marker is written",
        _about(completion, partition) | {"error": error.name},
    )


def _about(completion: Completion, partition: TopicPartition | None = None) -> dict[str, object]:
    """Return the fields of a log line."""
    marker = completion.marker
    about: dict[str, object] = {
        "transactional_id": completion.transactional_id,
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
        "outcome": "commit" if marker.commit else "abort",
    }
    if partition is not None:
        about["topic"], about["partition"] = partition
    return about
