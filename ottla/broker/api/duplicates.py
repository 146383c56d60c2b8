"""Duplicates that say something else than the batch in the log for which they are taken. free

A batch with the sequences of one of its producer's last five is a duplicate, and is acknowledged without being written:
`log/producer_state_manager.py` recognizes it. That is right for a retry. But a client may give the sequences of a batch
whose answer it lost, or still waits for, to other records; these would be acknowledged, and be nowhere
(`docs/in-the-log.md`). So keys, values and headers are compared. That changes nothing: a duplicate does not touch the
state of its producer.

Where the bytes are the same, as in the retries of most clients, this takes a look at a header. Where they are not, the
batch is read, and both are decompressed, one after the other, as the check of a produced batch does it (`long_work`).
What cannot be compared is taken for the same, as in Kafka: records of the batch are gone, or it cannot be read, or
there will never be room for it in the memory for replies, which holds what was read.
"""

import logging
from typing import NamedTuple

from ottla.broker.api.context import Broker, Request
from ottla.broker.costs import FILE_CALL_US, ROW_US
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import AppendResult
from ottla.broker.memory import TooLarge
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.contents import differ
from ottla.protocol.errors import ErrorCode, ProtocolError

log = logging.getLogger(__name__)

MOST_TOLD = 249
"""Characters of a name in the log."""


class Duplicate(NamedTuple):
    """A batch that its partition takes for one that it has, and the answer to it."""

    partition: Partition
    header: BatchHeader
    batch: memoryview
    result: AppendResult


async def judge(broker: Broker, request: Request, duplicate: Duplicate, others: list[Duplicate]) -> AppendResult:
    """The answer to a duplicate: the one it has, unless it says something else and such ones are refused.

    One that is acknowledged nevertheless joins the `others`, for `tell`.
    """
    if not await _is_another(broker, duplicate):
        return duplicate.result
    broker.metrics.differing_duplicates += 1
    if not broker.config.producer_sequence_reuse_refuse:
        others.append(duplicate)
        return duplicate.result
    # With this one every client tells its user, and goes on. OUT_OF_ORDER_SEQUENCE_NUMBER has Java's producer try as
    # long as it may, and ends librdkafka's for good, as UNKNOWN_PRODUCER_ID does behind a retry.
    start = duplicate.result.log_start_offset
    return AppendResult(ErrorCode.INVALID_RECORD, log_start_offset=start, message=_described(request, duplicate))


def tell(broker: Broker, request: Request, others: list[Duplicate]) -> None:
    """Log that batches were acknowledged which are not in the log."""
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
            "named": first.partition.topic[:MOST_TOLD],
            "why": _described(request, first),
            "more": f" (and {len(others) - 1} more)" if len(others) > 1 else "",
            "count": broker.metrics.differing_duplicates,
        },
    )


def _described(request: Request, duplicate: Duplicate) -> str:
    header, transactional_id = duplicate.header, request.body.transactional_id
    owner = "no transactional id" if transactional_id is None else f"transactional id {transactional_id[:MOST_TOLD]!r}"
    return (
        f"producer {header.producer_id} at epoch {header.producer_epoch} with {owner} sent sequences "
        f"{header.base_sequence} to {header.last_sequence} once more, with other keys, values or headers than those of "
        f"the batch at offset {duplicate.result.base_offset}"
    )


async def _is_another(broker: Broker, duplicate: Duplicate) -> bool:
    """Whether it is known to have other keys, values or headers than the batch in the log."""
    partition, header, batch, result = duplicate
    broker.turns.charge(FILE_CALL_US + ROW_US)
    stored = partition.batch_header(result.base_offset)
    if stored is None or stored.record_count != header.record_count:
        return False
    if (stored.crc, stored.size_bytes) == (header.crc, header.size_bytes):
        return False
    room = broker.memory.replies.room()
    try:
        await room.grow(2 * stored.size_bytes)  # who decompresses it in another thread needs a copy
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
                "%(topic)s-%(partition)d: the batch at offset %(offset)d cannot be compared: %(why)s",
                partition.about | {"offset": result.base_offset, "why": broken},
            )
    room.built(0)
    return another
