"""DescribeProducers 0: the producer state of partitions. free

`current_txn_start_offset` is -1 without an open transaction; `coordinator_epoch` is that of the last marker. A hanging
transaction is ended with these numbers (WriteTxnMarkers). A partition that an existing topic does not have is refused
without a message, as in Kafka. Every replica answers. The list of a partition's producers is read once; each row has
the state of its producer at the time it is written. Needs READ of the topic.
"""

from ottla.broker.api.authorization import MESSAGES, READ_TOPIC
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder, ReplyRows
from ottla.broker.api.request import Reply, Request
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_names import detect_invalid_topic


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe each partition once, in the order of the request."""
    reply = ReplyBuilder(broker, request)
    topics = reply.rows("topics")
    requested: dict[str, dict[int, None]] = {}
    for topic in request.body.topics:
        requested.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    for name, indexes in requested.items():
        partitions = reply.rows("topics", "partitions")
        if detect_invalid_topic(name) is None and not broker.may(request, READ_TOPIC, name):
            for index in indexes:
                await partitions.add(index, READ_TOPIC.error, MESSAGES[READ_TOPIC.error])
            indexes = {}
        for index in indexes:
            await _add_producer(broker, reply, partitions, name, index)
        await topics.add(name, partitions)
    return reply.finish(topics=topics)


async def _add_producer(broker: Broker, reply: ReplyBuilder, partitions: ReplyRows, name: str, index: int) -> None:
    partition = await broker.cluster.get_or_open(name, index) or broker.cluster.replica(name, index)
    if partition is None:
        await partitions.add(index, *_why_absent(broker, name, index))
        return
    if partition.offline is not None:
        await partitions.add(index, ErrorCode.KAFKA_STORAGE_ERROR, partition.offline)
        return
    rows = reply.rows("topics", "partitions", "active_producers")
    for each in partition.producers():
        await rows.add(
            each.producer_id,
            each.epoch,
            each.last_sequence,
            each.last_timestamp_ms,
            each.coordinator_epoch,
            each.current_txn_first_offset,
        )
    await partitions.add(index, ErrorCode.NONE, None, rows)


def _why_absent(broker: Broker, name: str, index: int) -> tuple[ErrorCode, str | None]:
    problem = detect_invalid_topic(name)
    if problem is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, problem
    message = None if name in broker.cluster.topics else "This server does not host this topic-partition."
    return broker.cluster.absence(name, index), message
