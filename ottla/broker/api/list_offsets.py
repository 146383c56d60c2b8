"""ListOffsets 1-11: the ends of a log and the offset of a time. free

Version notes: 2 isolation level; 4 leader epoch; 6 flexible; 7 max timestamp (-3, KIP-734); 8 local start (-4); 9 last
tiered (-5, KIP-1005); 10 a timeout for remote storage, which does not exist here; 11 earliest pending upload (-6,
KIP-1023). There is no tiered data: offset -1. A request with a replica id may see up to the end of the log. A partition
named twice is INVALID_REQUEST; a special timestamp that the version does not know UNSUPPORTED_VERSION. Needs DESCRIBE
of the topic.
"""

from collections import Counter
from typing import Any, Final, NamedTuple

from ottla.broker.api.authorization import DESCRIBE_TOPIC
from ottla.broker.api.context import Broker
from ottla.broker.api.fetch import READ_COMMITTED
from ottla.broker.api.fetch_check import leader_epoch_error
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.timestamps import max_timestamp_offset, offset_for_timestamp
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, UNKNOWN_OFFSET

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LAST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2
_FIRST_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LAST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


class Found(NamedTuple):
    """The answer for one partition; offset and timestamp are -1 if no offset was found."""

    error: ErrorCode
    offset: int = UNKNOWN_OFFSET
    timestamp: int = NO_TIMESTAMP
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH


async def handle(broker: Broker, request: Request) -> Reply:
    """Look up one offset per partition."""
    version, body = request.api_version, request.body
    isolation = body.isolation_level if version >= 2 else 0
    isolation = FetchIsolation.TXN_COMMITTED if isolation == READ_COMMITTED else FetchIsolation.HIGH_WATERMARK
    if body.replica_id != CONSUMER:
        isolation = FetchIsolation.LOG_END
    times = Counter((topic.name, row.partition_index) for topic in body.topics for row in topic.partitions)
    reply = ReplyBuilder(broker, request)
    topics = reply.rows("topics")
    for topic in body.topics:
        partitions = reply.rows("topics", "partitions")
        may = broker.may(request, DESCRIBE_TOPIC, topic.name)
        for row in {row.partition_index: row for row in topic.partitions}.values():  # one answer for duplicates
            if not may:
                found = Found(DESCRIBE_TOPIC.error)
            elif times[topic.name, row.partition_index] > 1:
                found = Found(ErrorCode.INVALID_REQUEST)
            else:
                is_debugging = body.replica_id == DEBUGGING_CONSUMER
                found = await _find(broker, version, topic.name, row, isolation, from_follower=is_debugging)
            await partitions.add(
                row.partition_index, found.error, (), found.timestamp, found.offset, found.leader_epoch
            )
        await topics.add(topic.name, partitions)
    return reply.finish(topics=topics)


async def _find(
    broker: Broker, version: int, topic: str, row: Any, isolation: FetchIsolation, *, from_follower: bool
) -> Found:
    if row.timestamp < 0 and version < _FIRST_VERSION.get(row.timestamp, version + 1):
        return Found(ErrorCode.UNSUPPORTED_VERSION)
    await broker.turns.yield_if_due()  # accessing a partition may open it
    partition = await broker.cluster.get_or_open(topic, row.partition_index)
    if partition is None:
        partition = broker.cluster.replica(topic, row.partition_index)
    if partition is None:
        return Found(broker.cluster.absence(topic, row.partition_index))
    if partition.offline is not None:
        return Found(ErrorCode.KAFKA_STORAGE_ERROR)
    if version >= 4:
        error = leader_epoch_error(row.current_leader_epoch, partition.leader_epoch)
        if error:
            return Found(error)
    if not from_follower and not broker.leads(partition):
        return Found(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if row.timestamp < 0 and row.timestamp != MAX_TIMESTAMP:
        return _end(partition, row.timestamp, isolation)
    if row.timestamp == MAX_TIMESTAMP:
        steps = max_timestamp_offset(partition, isolation)
    else:
        steps = offset_for_timestamp(partition, row.timestamp, isolation)
    found = await broker.long_work.drive(steps)
    return Found(ErrorCode.KAFKA_STORAGE_ERROR) if found is None else Found(ErrorCode.NONE, *found)


def _end(partition: Partition, timestamp: int, isolation: FetchIsolation) -> Found:
    if timestamp == LATEST:
        return Found(ErrorCode.NONE, partition.last_fetchable_offset(isolation), -1, partition.leader_epoch)
    if timestamp in (LAST_TIERED, EARLIEST_PENDING_UPLOAD):
        return Found(ErrorCode.NONE)
    start = partition.log_start_offset
    return Found(ErrorCode.NONE, start, -1, partition.log.epochs.epoch_for_offset(start))
