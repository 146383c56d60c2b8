"""OffsetForLeaderEpoch 2-4: the end of a leader epoch, by which consumers detect a truncated log (KIP-320). free

Version notes: 2 current leader epoch; 3 replica id (no broker replicates from this one, so it changes nothing); 4 is
flexible. Epoch -1, and one above the latest, have no end: epoch and offset -1 without an error. Needs DESCRIBE of the
topic, or CLUSTER_ACTION.
"""

from typing import Any

from ottla.broker.api.authorization import ACT_AS_BROKER, DESCRIBE_TOPIC
from ottla.broker.api.context import Broker
from ottla.broker.api.fetch_check import UNDEFINED, leader_epoch_error
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Return the largest epoch that is not above the requested one, and the offset after its last record."""
    reply = ReplyBuilder(broker, request)
    topics = reply.rows("topics")
    is_broker = broker.may(request, ACT_AS_BROKER)
    for topic in request.body.topics:
        partitions = reply.rows("topics", "partitions")
        may = is_broker or broker.may(request, DESCRIBE_TOPIC, topic.topic)
        for row in topic.partitions:
            error, (epoch, end_offset) = DESCRIBE_TOPIC.error, UNDEFINED
            if may:
                error, (epoch, end_offset) = await _find(broker, topic.topic, row)
            await partitions.add(error, row.partition, epoch, end_offset)
        await topics.add(topic.topic, partitions)
    return reply.finish(topics=topics)


async def _find(broker: Broker, topic: str, row: Any) -> tuple[ErrorCode, tuple[int, int]]:
    partition = await broker.cluster.get_or_open(topic, row.partition)
    if partition is None:
        partition = broker.cluster.replica(topic, row.partition)
    if partition is None:
        return broker.cluster.absence(topic, row.partition), UNDEFINED
    if partition.offline is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR, UNDEFINED
    error = leader_epoch_error(row.current_leader_epoch, partition.leader_epoch)
    if not error and not broker.leads(partition):
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return (error, UNDEFINED) if error else (error, partition.end_offset_for_epoch(row.leader_epoch))
