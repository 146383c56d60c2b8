"""Checks that a transactional write belongs to the open transaction, or adds it (KIP-890). free

There are three generations of requests, by version: the first two must have added their partitions before and are
verified; the third (transactions V2) adds them with the write itself. The coordinator's broker is in this process, so
no request is sent: the coordinator is called.

Kafka returns a guard with each verification and requires it at the append, because a marker may be written between the
two. Here the last verification and the append run in one step without a suspension, so nothing runs between them and no
guard is needed. After a suspension (an addition that had to become durable or was retried) the write is verified again.

Source: `AddPartitionsToTxnManager`, `ReplicaManager.handleProduceAppend` of Kafka 4.3.1.
"""

from collections.abc import Sequence
from typing import Final

from ottla.broker.api.context import Broker
from ottla.broker.deadline import sleep
from ottla.broker.log.partition import Partition
from ottla.broker.txn.end_txn_rules import V2
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import TopicPartition

_LATE: Final = ErrorCode.INVALID_TXN_STATE


def local_verification(partition: Partition, producer_id: int, epoch: int) -> ErrorCode | None:
    """Return NONE if the log has the transaction open at this epoch, a refusal, or None if the coordinator must
    decide."""
    producer = partition.producer_of(producer_id)
    if producer is None:
        return None
    if epoch < producer.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return NO_ERROR if epoch == producer.epoch and producer.current_txn_first_offset >= 0 else None


def verify(
    broker: Broker, transactional_id: str, producer_id: int, epoch: int, place: TopicPartition, knows_abortable: bool
) -> ErrorCode:
    """Return whether the partition is in the open transaction. Does not suspend.

    `knows_abortable`: the request's version knows TRANSACTION_ABORTABLE, and the client adds partitions itself.
    """
    coordinator, error = broker.coordinator_of(transactional_id)
    if error:
        return error
    (error,) = coordinator.transactions.verify(transactional_id, producer_id, epoch, (place,))
    if not error:
        return error
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return _LATE
    return error


async def add(
    broker: Broker, transactional_id: str, producer_id: int, epoch: int, places: Sequence[TopicPartition], retry_ms: int
) -> ErrorCode:
    """Add partitions to the transaction, and begin it if necessary. Durable when this returns.

    While the previous transaction is being completed the addition is retried, for `retry_ms` in all.
    """
    clock = broker.clock
    until_ms = clock.monotonic_ms() + retry_ms
    while True:
        coordinator, error = broker.coordinator_of(transactional_id)
        if error:
            return error
        error = await coordinator.transactions.add_partitions(transactional_id, producer_id, epoch, places, V2)
        if not error:
            return error
        if error != ErrorCode.CONCURRENT_TRANSACTIONS or clock.monotonic_ms() >= until_ms:
            return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED else error
        await sleep(broker.turns, clock, broker.config.add_partitions_to_txn_retry_backoff_ms)
