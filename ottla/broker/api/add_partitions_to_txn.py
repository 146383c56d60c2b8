"""AddPartitionsToTxn 0-5: add partitions to the transaction of a transactional id; the first ones begin it. free

All or nothing: if a partition is unknown, or belongs to an internal topic in a client's request, it has its own error
and the others of its transaction have OPERATION_NOT_ATTEMPTED. Otherwise the coordinator's answer is that of every
partition of the transaction. While the markers of the previous transaction are written, the request waits for a limited
time.

Version notes: 2 knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH for it; 3 is flexible. Brokers send 4
and 5 for producers of transactions V2 (KIP-890): several transactions at once, each to be added to or only to be
verified (TRANSACTION_ABORTABLE for a partition that the open transaction lacks), internal topics included.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ottla.broker.api import refusals
from ottla.broker.api.authorization import CLUSTER_ACTION, WRITE_ID, WRITE_TOPIC, find_denials
from ottla.broker.api.context import Broker, count_rows
from ottla.broker.api.reply import FEW_ROWS, ReplyBuilder, ReplyRows, encode_reply, encode_tables
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.broker.txn.end_txn_rules import V2
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TopicPartition

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_OF_BROKERS: Final = 4

Errors = Mapping[TopicPartition, ErrorCode]


async def handle(broker: Broker, request: Request) -> Reply:
    """Add the partitions and answer for each."""
    version, body = request.api_version, request.body
    if version >= FIRST_VERSION_OF_BROKERS:
        return await _handle_brokers(broker, request)
    topics = body.v3_and_below_topics
    if not broker.may(request, WRITE_ID, body.v3_and_below_transactional_id):
        return await _reply_below_v4(broker, request, {}, WRITE_ID.error)
    names = (topic.name for topic in topics if topic.name not in INTERNAL_TOPICS)
    refused = await find_denials(broker, request, WRITE_TOPIC, names)
    accepted, errors = await _check_partitions(
        broker, topics, INTERNAL_TOPICS.union(refused) if refused else INTERNAL_TOPICS
    )
    if errors:
        default = ErrorCode.OPERATION_NOT_ATTEMPTED
    else:
        default = await broker.transactions.add_partitions(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
            accepted,
        )
        if version < FIRST_VERSION_WITH_FENCED and default == ErrorCode.PRODUCER_FENCED:
            default = ErrorCode.INVALID_PRODUCER_EPOCH
    if len(topics) <= FEW_ROWS and len(accepted) <= FEW_ROWS:
        rows = [
            (topic.name, [(index, errors.get((topic.name, index), default)) for index in topic.partitions])
            for topic in topics
        ]
        return encode_tables(request, "results_by_topic_v3_and_below", rows)
    return await _reply_below_v4(broker, request, errors, default)


async def _reply_below_v4(broker: Broker, request: Request, errors: Errors, default: ErrorCode) -> Reply:
    """Write the reply below version 4, in turns."""
    reply = ReplyBuilder(broker, request)
    topics = request.body.v3_and_below_topics
    written = await _write_rows(reply, ("results_by_topic_v3_and_below",), topics, errors, default)
    return reply.finish(results_by_topic_v3_and_below=written)


async def _handle_brokers(broker: Broker, request: Request) -> Reply:
    """Handle versions 4 and 5: one result per transaction."""
    if not broker.may(request, CLUSTER_ACTION):
        return encode_reply(request, error_code=CLUSTER_ACTION.error)
    reply = ReplyBuilder(broker, request)
    results = reply.rows("results_by_transaction")
    for transaction in request.body.transactions:
        errors, default = await _answer(broker, transaction)
        if default == ErrorCode.UNSUPPORTED_VERSION:
            # The cluster has no transactions V2 (level 0): Kafka's handler stops here.
            return encode_reply(request, error_code=default)
        path = ("results_by_transaction", "topic_results")
        rows = await _write_rows(reply, path, transaction.topics, errors, default)
        await results.add(transaction.transactional_id, rows)
    return reply.finish(results_by_transaction=results)


async def _answer(broker: Broker, transaction: Any) -> tuple[Errors, ErrorCode]:
    """Return the errors of single partitions, and the error of all others."""
    accepted, refused = await _check_partitions(broker, transaction.topics, frozenset())
    if refused:
        return refused, ErrorCode.OPERATION_NOT_ATTEMPTED
    owner = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        broker.turns.charge(len(accepted) * LOOKUP_US)
        return dict(zip(accepted, broker.transactions.verify(*owner, accepted), strict=True)), ErrorCode.NONE
    # Without waiting for markers: one id would delay all others of the request, and brokers retry.
    return {}, await broker.transactions.add_partitions(*owner, accepted, V2, waits=False)


async def _check_partitions(
    broker: Broker, topics: Sequence[Any], forbidden: Collection[str]
) -> tuple[list[TopicPartition], dict[TopicPartition, ErrorCode]]:
    """Return the partitions of the request, and the errors of those that cannot be added. Works in turns."""
    exists, turns = broker.cluster.has_partition, broker.turns
    accepted: list[TopicPartition] = []
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        name = topic.name
        turns.charged_us += LOOKUP_US
        for index in topic.partitions:
            place = name, index
            accepted.append(place)
            if name in forbidden:
                refused[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not exists(name, index):
                refused[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            turns.charged_us += ROW_US
            if turns.must_yield:
                await turns.pause()
    return accepted, refused


async def _write_rows(
    reply: ReplyBuilder, path: tuple[str, ...], topics: Sequence[Any], errors: Errors, default: ErrorCode
) -> ReplyRows:
    rows = reply.rows(*path)
    for topic in topics:
        name = topic.name
        partitions = reply.rows(*path, "results_by_partition")
        for index in topic.partitions:
            await partitions.add(index, errors.get((name, index), default))
        await rows.add(name, partitions)
    return rows


def report_rows(broker: Broker, request: Request, errors: Mapping[int, int]) -> None:
    """Report the rows of a client's request. A broker's request names no producer of its own: its rows are counted."""
    report = refusals.report_rows if request.api_version < FIRST_VERSION_OF_BROKERS else count_rows
    report(broker, request, errors)
