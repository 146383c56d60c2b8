"""Records of a partition of an internal topic, in order, and the transactional id of a producer id. shell"""

import functools
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import UnknownVersion
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    decode_transaction_value,
    read_transaction_key,
)
from ottla.scan import schemas
from ottla.scan.damage_log import FAIL, REMEDY, DamagedSegment, DamageLog
from ottla.scan.listing import PartitionLog
from ottla.spark_jobs.options import Options
from ottla.spark_jobs.views.directories import in_order, partitions_of
from ottla.spark_jobs.views.planning import log_damage

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"

_log = logging.getLogger("ottla.spark_jobs")


class StoredRecord(NamedTuple):
    """A record of an internal topic. Times in microseconds."""

    segment: int | None
    offset: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    key: bytes | None
    value: bytes | None


_COLUMNS = ("segment", "offset", "timestamp", "producerId", "producerEpoch", "key", "value")


def stored_records(log: PartitionLog, on_damage: str) -> Iterator[StoredRecord]:
    """Yield every data record of the partition in offset order, also of open and aborted transactions."""
    from ottla.scan.ranges import cut_partition
    from ottla.scan.records import RecordScan, uncommitted_visibility

    damage = DamageLog(on_damage)
    scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, [(name, True) for name in _COLUMNS]), damage)
    for part in cut_partition(0, log, log.size_bytes + 1):
        for batch in scan.read(part, uncommitted_visibility(log.log_start)):
            columns: list[list[Any]] = [
                (column.cast("int64") if name == "timestamp" else column).to_pylist()
                for name, column in zip(_COLUMNS, batch.columns, strict=True)
            ]
            yield from map(StoredRecord._make, zip(*columns, strict=True))
    log_damage(damage)


def row_at(view: str, log: PartitionLog, record: StoredRecord) -> dict[str, Any]:
    """Return a row of a view of records: the columns of the record's place, the others null."""
    row: dict[str, Any] = dict.fromkeys(schemas.VIEWS[view])
    row.update(
        topic=log.topic,
        partition=log.partition,
        segment=record.segment,
        offset=record.offset,
        timestamp=record.timestamp,
        isTombstone=record.value is None,
    )
    return row


def handle_damage(error: ProtocolError, log: PartitionLog, offset: int, on_damage: str) -> None:
    """Log a record that cannot be decoded; raise DamagedSegment in mode `fail`, as for other damage."""
    text = f"{log.path}: offset {offset}: {error}"
    if on_damage == FAIL:
        raise DamagedSegment(f"{text}; {REMEDY}") from error
    _log.warning("damaged record, not read: %s", text)


def transaction_states(
    log: PartitionLog, on_damage: str
) -> Iterator[tuple[StoredRecord, str, TransactionValue | None]]:
    """Yield (record, transactional id, value or None for a tombstone). Unknown types and versions are skipped.

    The coordinator does the same when it loads the partition (`TransactionStateManager.loadTransactionMetadata`).
    """
    for record in stored_records(log, on_damage):
        try:
            transactional_id = None if record.key is None else read_transaction_key(record.key)
            if transactional_id is not None:
                value = None if record.value is None else decode_transaction_value(record.value)
                yield record, transactional_id, value
        except UnknownVersion:
            continue
        except ProtocolError as error:
            handle_damage(error, log, record.offset, on_damage)


def transactional_ids(options: Options) -> dict[int, str]:
    """Map producer ids to transactional ids, by the records of `__transaction_state`; empty without it.

    The result is cached while the files stay the same: a worker runs many tasks.
    """
    everything = options._replace(partitions=None, view=schemas.PARTITIONS)  # a copy gives the same names
    logs = in_order(partitions_of(everything, (TRANSACTION_STATE,), warn=False))
    return _ids_of(tuple(logs), options.on_damage)


@functools.lru_cache(maxsize=1)
def _ids_of(logs: tuple[PartitionLog, ...], on_damage: str) -> dict[int, str]:
    names: dict[int, str] = {}
    for log in logs:
        for _, transactional_id, value in transaction_states(log, on_damage):
            if value is not None:
                for producer_id in (value.previous_producer_id, value.next_producer_id, value.producer_id):
                    if producer_id >= 0:
                        names[producer_id] = transactional_id
    return names
