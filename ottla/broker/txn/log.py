"""Transaction states as records of `__transaction_state`. pure

One uncompressed batch of one record per change, value version 1 where `transaction.version` is 1 or higher, else 0
(which cannot hold the previous and the next producer id). Only the tombstones of expired ids share a batch.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from ottla.broker.txn.states import EMPTY, PENDING_ONLY, TransactionStatus
from ottla.broker.txn.values import NO_PARTITIONS, Partitions, TransactionState
from ottla.protocol.batch import build_batch, build_record_batch
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import UnknownVersion
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    decode_transaction_value,
    encode_transaction_fields,
    read_transaction_key,
    transaction_key,
)
from ottla.protocol.records import Record, iter_records
from ottla.protocol.values import TopicPartition

log = logging.getLogger(__name__)

_STATUSES: Final = {int(status): status for status in TransactionStatus if status not in PENDING_ONLY}


class StoredChange(NamedTuple):
    """A decoded record of the log: the id and its state, or None for a tombstone."""

    transactional_id: str
    state: TransactionState | None


def encode_change(transactional_id: str, state: TransactionState, level: int, now_ms: int) -> bytearray:
    """Return the batch that logs one state. `level` is the cluster's `transaction.version`.

    A transaction that a V2 client began before a downgrade to level 0 is logged in version 1 to its end. Every Kafka
    that knows the feature reads that version; Kafka itself cannot log it.
    """
    # Partitions are null in Empty, as Kafka writes them.
    partitions = None if state.status is EMPTY else _group_by_topic(state.partitions)
    value = encode_transaction_fields(state, partitions, 1 if level >= 1 or state.client_version else 0)
    return build_record_batch(transaction_key(transactional_id), value, now_ms)


def encode_tombstones(transactional_ids: Sequence[str], now_ms: int) -> bytearray:
    """Return the batch of tombstones that removes expired ids."""
    return build_batch([(transaction_key(each), None) for each in transactional_ids], timestamp_ms=now_ms)


def read_changes(header: BatchHeader, batch: memoryview, where: str) -> Iterator[StoredChange]:
    """Yield the changes of one batch. Records that cannot be read are skipped with a warning that names `where`."""
    if header.is_control:
        return
    for record in iter_records(batch, header):
        try:
            change = _read_change(record)
        except UnknownVersion as problem:
            log.warning("Skipping offset %d of %s: %s", record.offset, where, problem)
        except ProtocolError as problem:
            log.error("Skipping offset %d of %s, which is damaged: %s", record.offset, where, problem)
        else:
            if change is not None:
                yield change


def _read_change(record: Record) -> StoredChange | None:
    if record.key is None:
        raise ProtocolError("a record without a key")
    transactional_id = read_transaction_key(record.key)
    if transactional_id is None:
        return None
    if record.value is None:
        return StoredChange(transactional_id, None)
    return StoredChange(transactional_id, from_value(decode_transaction_value(record.value)))


def from_value(value: TransactionValue) -> TransactionState:
    """Return the state in a record's value. Raises ProtocolError for a status that is never logged."""
    status = _STATUSES.get(value.status)
    if status is None:
        raise ProtocolError(f"transaction status {value.status}")
    partitions: Partitions = {(topic, index): None for topic, indexes in value.partitions or () for index in indexes}
    return TransactionState(
        value.producer_id,
        value.producer_epoch,
        status,
        value.timeout_ms,
        partitions or NO_PARTITIONS,
        value.start_ms,
        value.last_update_ms,
        value.previous_producer_id,
        value.next_producer_id,
        value.client_version,
    )


def _group_by_topic(partitions: Collection[TopicPartition]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if not partitions:
        return ()
    if len(partitions) == 1:  # almost always
        ((topic, index),) = partitions
        return ((topic, (index,)),)
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return tuple((topic, tuple(indexes)) for topic, indexes in topics.items())
