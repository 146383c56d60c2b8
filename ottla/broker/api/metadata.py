"""Metadata 0-12: this broker, the topics, the leader of each partition. free

Version notes: 0 has no null list, so an empty list asks for all topics; 4 adds auto-creation; 7 leader epochs; 9 is
flexible; 10 topic ids; 12 looks topics up by id. 8 asks for authorized operations (all: there is no authorizer), those
of the cluster up to 10.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.broker.api import operations
from ottla.broker.api.context import ROWS_PER_TURN, Broker, Reply, Request
from ottla.broker.cluster.image import INTERNAL_TOPICS, Topic
from ottla.broker.cluster.names import topic_name_problem
from ottla.broker.costs import CHANGE_US
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

METADATA = 3


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe the cluster and the topics that were asked for, creating absent ones when both sides allow it."""
    version, body = request.api_version, request.body
    response = codec.response_class(METADATA)
    asked = body.topics
    if asked is None or (version == 0 and not asked):
        topics = [_topic_row(broker, version, topic) for topic in broker.cluster.topics.values()]
    else:
        create = broker.config.auto_create_topics_enable and (version < 4 or body.allow_auto_topic_creation)
        once = {(item.name, item.topic_id if version >= 10 else None): item for item in asked}  # as Kafka: a set
        refused = await _create_absent(broker, [name for name, _ in once if name]) if create else {}
        topics = []
        for item in once.values():
            topics.append(_asked_row(broker, version, item, refused))
            if len(topics) % ROWS_PER_TURN == 0:
                await broker.turns.pause()
    if version >= 8 and body.include_topic_authorized_operations:
        for row in topics:
            if row.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                row.authorized_operations = operations.OF_TOPIC
    of_cluster = 8 <= version <= 10 and body.include_cluster_authorized_operations
    me = response.MetadataResponseBroker(
        version=version, node_id=broker.cluster.node_id, host=broker.host, port=broker.port, rack=None
    )
    return response(
        version=version,
        throttle_time_ms=0,
        brokers=[me],
        cluster_id=broker.logs.cluster_id,
        controller_id=broker.cluster.node_id,
        topics=topics,
        authorized_operations=operations.OF_CLUSTER if of_cluster else None,
    )


def _asked_row(broker: Broker, version: int, item: Any, refused: Mapping[str, ErrorCode]) -> Any:
    name = item.name
    topic_id = item.topic_id if version >= 10 else None
    if not name and topic_id is not None:
        by_id = broker.cluster.topics_by_id.get(topic_id.bytes)
        if by_id is not None:
            return _topic_row(broker, version, by_id)
        return _error_row(version, None if version >= 12 else "", ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    if topic_name_problem(name) is not None:
        return _error_row(version, name or "", ErrorCode.INVALID_TOPIC_EXCEPTION)
    topic = broker.cluster.topics.get(name)
    if topic is None:
        return _error_row(version, name, refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return _topic_row(broker, version, topic)


async def _create_absent(broker: Broker, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create the topics that do not exist, and wait until they do; why each of the others could not be created."""
    absent = [name for name in names if name not in broker.cluster.topics]
    refused: dict[str, ErrorCode] = {}
    if absent:
        try:
            await broker.cluster.controller.exclusively(absent, _create(broker, absent, refused))
        except OSError:
            refused = {name: refused.get(name, ErrorCode.KAFKA_STORAGE_ERROR) for name in absent}
    return refused


async def _create(broker: Broker, names: Sequence[str], refused: dict[str, ErrorCode]) -> None:
    cluster = broker.cluster
    for name in names:
        if name in INTERNAL_TOPICS:
            await cluster.create_internal_topic(name)
        elif name not in cluster.topics:
            if cluster.name_problem(name) is None:
                await cluster.controller.create_topic(name, cluster.default_partitions, {})
            else:
                refused[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        broker.turns.charge(CHANGE_US)
        await broker.turns.share()


def _topic_row(broker: Broker, version: int, topic: Topic) -> Any:
    row = codec.response_class(METADATA).MetadataResponseTopic
    me = broker.cluster.node_id
    partitions = [
        row.MetadataResponsePartition(
            version=version,
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=me,
            leader_epoch=epoch,
            replica_nodes=[me],
            isr_nodes=[me],
            offline_replicas=[],
        )
        for index, epoch in enumerate(topic.leader_epochs)
    ]
    return row(
        version=version,
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=uuid.UUID(bytes=topic.topic_id),
        is_internal=topic.internal,
        partitions=partitions,
    )


def _error_row(version: int, name: str | None, error: ErrorCode, topic_id: uuid.UUID | None = None) -> Any:
    row = codec.response_class(METADATA).MetadataResponseTopic
    return row(version=version, error_code=error, name=name, topic_id=topic_id, is_internal=False, partitions=[])
