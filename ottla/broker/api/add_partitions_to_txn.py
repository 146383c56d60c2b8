"""AddPartitionsToTxn 0-5: partitions join the transaction of a transactional id; the first begins it. free

All or nothing: when a partition is unknown, or belongs to an internal topic and a client asks, it carries its error and
the others of its transaction carry OPERATION_NOT_ATTEMPTED. Otherwise the coordinator's answer holds for every
partition of the transaction. What meets the markers of the transaction before waits for them for a moment.

Version notes: 2 knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH for it; 3 is flexible. 4 and 5 are
sent by brokers, for producers of transactions V2 (KIP-890): several transactions at once, each to be added to or only
to be verified (TRANSACTION_ABORTABLE for a partition that the open transaction lacks), internal topics included.
"""

from collections.abc import Sequence
from typing import Any

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import ReplyBuilder, encoded
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.costs import ROW_US
from ottla.broker.txn.ending import V2
from ottla.broker.txn.values import TopicPartition
from ottla.protocol.errors import ErrorCode

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_OF_BROKERS = 4

Rows = list[tuple[str, list[tuple[int, ErrorCode]]]]
"""[(topic, [(partition, error)])]."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Add the partitions and answer for each."""
    version, body = request.api_version, request.body
    if version >= FIRST_VERSION_OF_BROKERS:
        return await _handle_brokers(broker, request)
    asked = _partitions(body.v3_and_below_topics)
    broker.turns.charge(len(asked) * ROW_US)
    refused = _refusals(broker, asked, INTERNAL_TOPICS)
    if refused:
        default = ErrorCode.OPERATION_NOT_ATTEMPTED
    else:
        default = await broker.transactions.add_partitions(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
            asked,
        )
        if version < FIRST_VERSION_WITH_FENCED and default is ErrorCode.PRODUCER_FENCED:
            default = ErrorCode.INVALID_PRODUCER_EPOCH
    errors = {place: refused.get(place, default) for place in asked}
    rows = _rows(body.v3_and_below_topics, errors)
    return encoded(request, results_by_topic_v3_and_below=rows)


async def _handle_brokers(broker: Broker, request: Request) -> Reply:
    """Versions 4 and 5: one result per transaction."""
    reply = ReplyBuilder(broker, request)
    results = reply.rows("results_by_transaction")
    for transaction in request.body.transactions:
        errors = await _answer(broker, transaction)
        if ErrorCode.UNSUPPORTED_VERSION in errors.values():
            # The cluster has no room for transactions V2 (level 0): Kafka's handler breaks off here.
            return encoded(request, error_code=ErrorCode.UNSUPPORTED_VERSION)
        await results.add(transaction.transactional_id, _rows(transaction.topics, errors))
    return reply.finish(results_by_transaction=results)


async def _answer(broker: Broker, transaction: Any) -> dict[TopicPartition, ErrorCode]:
    asked = _partitions(transaction.topics)
    refused = _refusals(broker, asked, frozenset())
    if refused:
        return {place: refused.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in asked}
    owner = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return dict(zip(asked, broker.transactions.verify(*owner, asked), strict=True))
    # Nobody waits here for markers: one id would hold up all others of the request, and brokers ask again.
    return dict.fromkeys(asked, await broker.transactions.add_partitions(*owner, asked, V2, waits=False))


def _partitions(topics: Sequence[Any]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _refusals(
    broker: Broker, asked: Sequence[TopicPartition], forbidden: frozenset[str]
) -> dict[TopicPartition, ErrorCode]:
    """The partitions that may not be added, with the reason."""
    refused = {}
    for name, index in asked:
        if name in forbidden:
            refused[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not broker.cluster.has_partition(name, index):
            refused[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _rows(topics: Sequence[Any], errors: dict[TopicPartition, ErrorCode]) -> Rows:
    return [(topic.name, [(index, errors[topic.name, index]) for index in topic.partitions]) for topic in topics]
