"""DeleteRecords 0-2: raise the log start offset; the next retention check deletes whole segments below it. free

Version notes: 2 is flexible. Offset -1 is the high watermark. A topic that is only compacted keeps its records
(POLICY_VIOLATION), and so do the internal ones. If a partition is named twice the last row counts, as in Kafka. Needs
DELETE of the topic.
"""

from typing import Final

from ottla.broker.api.authorization import DELETE_TOPIC
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.protocol.errors import ErrorCode

HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1


async def handle(broker: Broker, request: Request) -> Reply:
    """Raise each partition's log start offset. The answer has the new log start offset."""
    requested: dict[str, dict[int, int]] = {}
    for topic in request.body.topics:
        offsets = requested.setdefault(topic.name, {})
        offsets.update((row.partition_index, row.offset) for row in topic.partitions)
    reply = ReplyBuilder(broker, request)
    topics = reply.rows("topics")
    for name, offsets in requested.items():
        partitions = reply.rows("topics", "partitions")
        may = broker.may(request, DELETE_TOPIC, name)
        for index, offset in offsets.items():
            error, low_watermark = DELETE_TOPIC.error, NO_LOW_WATERMARK
            if may:
                error, low_watermark = await _delete(broker, name, index, offset)
            await partitions.add(index, low_watermark, error)
        await topics.add(name, partitions)
    return reply.finish(topics=topics)


async def _delete(broker: Broker, topic: str, index: int, offset: int) -> tuple[ErrorCode, int]:
    """Return (error, new log start offset). Source: `Partition.deleteRecordsOnLeader`."""
    partition = await broker.cluster.get_or_open(topic, index)
    if partition is None:
        return broker.cluster.absence(topic, index), NO_LOW_WATERMARK
    if topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, NO_LOW_WATERMARK
    if partition.offline is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR, NO_LOW_WATERMARK
    if partition.log.config.cleanup_compact and not partition.log.config.cleanup_delete:
        return ErrorCode.POLICY_VIOLATION, NO_LOW_WATERMARK
    start = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= start <= partition.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE, NO_LOW_WATERMARK
    partition.raise_log_start(start)
    return ErrorCode.NONE, partition.log_start_offset
