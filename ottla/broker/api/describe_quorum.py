"""DescribeQuorum 0-2: the voters of the metadata log, which is the first broker of the process. free

Version notes: 1 adds the times of the last fetch; 2 error messages, directory ids and the voters' addresses (KIP-853).
Only partition 0 of `__cluster_metadata` has a quorum: any other request is answered UNKNOWN_TOPIC_OR_PARTITION in each
row. The other brokers of the process are observers, which have what the log has. There is no controller listener, so
the address is that of the client's listener.

Source: `KafkaRaftClient.handleDescribeQuorumRequest` of Kafka 4.3.1.
"""

from collections.abc import Sequence
from typing import Any, Final

from ottla.broker.api.authorization import DESCRIBE_CLUSTER, MESSAGES
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder, encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.kraft_log import METADATA_TOPIC
from ottla.protocol.errors import ErrorCode

_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe the quorum, if the request names it and nothing else."""
    if not broker.may(request, DESCRIBE_CLUSTER):
        error = DESCRIBE_CLUSTER.error
        return encode_reply(request, error_code=error, error_message=MESSAGES[error])
    topics = request.body.topics
    named = [(topic.topic_name, [row.partition_index for row in topic.partitions]) for topic in topics[:2]]
    if named != [(METADATA_TOPIC, [0])]:
        return await _refuse_topics(broker, request, topics)
    leader = broker.brokers[0]
    voter, *observers = (_replica(broker, each.cluster.node_id) for each in broker.brokers)
    metadata_log = broker.cluster.metadata_log
    partition = (
        *(0, ErrorCode.NONE, "", leader.cluster.node_id),
        *(metadata_log.partition.leader_epoch, metadata_log.end_offset, [voter], observers),
    )
    listener = request.session.listener_name
    endpoint = leader.endpoints.get(listener)
    addresses = [] if endpoint is None else [(listener, endpoint.host, endpoint.port)]
    return encode_reply(
        request,
        topics=[(METADATA_TOPIC, [partition])],
        nodes=[(leader.cluster.node_id, addresses)],
    )


def _replica(broker: Broker, node_id: int) -> tuple[Any, ...]:
    """Return the row of a broker that has fetched everything just now."""
    now_ms = broker.clock.now_ms()
    directory_id = broker.cluster.directory_id
    return node_id, directory_id, broker.cluster.metadata_log.end_offset, now_ms, now_ms


async def _refuse_topics(broker: Broker, request: Request, topics: Sequence[Any]) -> Reply:
    reply = ReplyBuilder(broker, request)
    written = reply.rows("topics")
    for topic in topics:
        rows = reply.rows("topics", "partitions")
        for row in topic.partitions:
            await rows.add(row.partition_index, *_UNKNOWN, 0, 0, 0, (), ())
        await written.add(topic.topic_name, rows)
    return reply.finish(topics=written, nodes=[])
