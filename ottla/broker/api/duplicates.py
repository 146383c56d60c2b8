"""Duplicates with other content than the batch in the log. free

A batch with the sequences of one of its producer's last five batches is a duplicate, and is acknowledged without being
written: `log/producer_state_manager.py` recognizes it. That is right for a retry. But a client may reuse the sequences
of a batch whose answer is lost or outstanding for other records. These records would be acknowledged and lost
(`docs/in-the-log.md`). So keys, values and headers are compared. The comparison has no side effects: a duplicate does
not change the state of its producer.

If the bytes are the same, as in the retries of most clients, only a header is compared. If not, the batch is read, and
both are decompressed, one after the other, as in the check of a produced batch (`long_work`). A batch that cannot be
compared counts as the same, as in Kafka: some of its records are deleted, or it cannot be read, or it is larger than
the memory for replies, which holds the read bytes.
"""

import logging
from typing import Final, NamedTuple

from ottla.broker.api.context import Broker
from ottla.broker.api.request import Request
from ottla.broker.costs import FILE_CALL_US, ROW_US
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import AppendResult
from ottla.broker.memory import TooLarge
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.contents import differ
from ottla.protocol.errors import ErrorCode, ProtocolError

log = logging.getLogger(__name__)

MOST_CHARS: Final = 249
"""The most characters of a name in the log."""


class Duplicate(NamedTuple):
    """A batch that its partition regards as a duplicate, and the answer to it."""

    partition: Partition
    header: BatchHeader
    batch: "memoryview"
    result: AppendResult


async def judge(broker: Broker, request: Request, duplicate: Duplicate, others: list[Duplicate]) -> AppendResult:
    """Return the answer to a duplicate, or a refusal if its content differs and differing duplicates are refused.

    A duplicate that differs and is acknowledged is added to `others`, for `log_duplicates`.
    """
    if not await _is_another(broker, duplicate):
        return duplicate.result
    broker.metrics.differing_duplicates += 1
    if not broker.config.producer_sequence_reuse_refuse:
        others.append(duplicate)
        return duplicate.result
    # With this error every client reports to its user and continues. With OUT_OF_ORDER_SEQUENCE_NUMBER Java's producer
    # retries until its timeout and librdkafka's fails permanently, as with UNKNOWN_PRODUCER_ID after a retry.
    start = duplicate.result.log_start_offset
    return AppendResult(ErrorCode.INVALID_RECORD, log_start_offset=start, message=_describe(request, duplicate))


def log_duplicates(broker: Broker, request: Request, others: list[Duplicate]) -> None:
    """Log that batches were acknowledged although the log has other records in their place."""
    first = others[0]
    log.warning(
        "Acknowledged records of %(peer)s that are not in the log: %(named)r-%(partition)d: %(why)s%(more)s; "
        "%(count)d such batches since the start",
        request.about
        | first.partition.about
        | {
            "transactional_id": request.body.transactional_id,
            "producer_id": first.header.producer_id,
            "producer_epoch": first.header.producer_epoch,
            "named": first.partition.topic[:MOST_CHARS],
            "why": _describe(request, first),
            "more": f" (and {len(others) - 1} more)" if len(others) > 1 else "",
            "count": broker.metrics.differing_duplicates,
        },
    )


def _describe(request: Request, duplicate: Duplicate) -> str:
    header, transactional_id = duplicate.header, request.body.transactional_id
    owner = "no transactional id" if transactional_id is None else f"transactional id {transactional_id[:MOST_CHARS]!r}"
    return (
        f"producer {header.producer_id} at epoch {header.producer_epoch} with {owner} sent sequences "
        f"{header.base_sequence} to {header.last_sequence} again, with other keys, values or headers than those of "
        f"the batch at offset {duplicate.result.base_offset}"
    )


async def _is_another(broker: Broker, duplicate: Duplicate) -> bool:
    """Return whether the duplicate is known to have other keys, values or headers than the batch in the log."""
    partition, header, batch, result = duplicate
    broker.turns.charge(FILE_CALL_US + ROW_US)
    stored = partition.batch_header(result.base_offset)
    if stored is None or stored.record_count != header.record_count:
        return False
    if (stored.crc, stored.size_bytes) == (header.crc, header.size_bytes):
        return False
    reservation = broker.memory.replies.reserve()
    try:
        await reservation.grow(2 * stored.size_bytes)  # another thread that decompresses it needs a copy
    except TooLarge:
        return False
    another = False
    there = await broker.long_work.drive(partition.batch_bytes(stored))
    if there is not None:
        limit_bytes = broker.config.max_decompressed_message_bytes
        try:
            another = await broker.long_work.drive(differ(batch, header, there, stored, limit_bytes))
        except ProtocolError as broken:
            log.warning(
                "%(topic)s-%(partition)d: the batch at offset %(offset)d cannot be compared with a duplicate: %(why)s",
                partition.about | {"offset": result.base_offset, "why": broken},
            )
    reservation.built(0)
    return another
