"""CreateTopics 2-7: names, partition counts, configs. free

Partitions and replication factor of -1 are the broker's defaults, in every version as in Kafka, although the protocol
has them from version 4 on. The replication factor is -1 or 1: there is one broker.

Version notes: 5 is flexible and returns the configs in force; 7 returns the topic id.
"""

import uuid
from collections import Counter
from typing import Any, NamedTuple

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.cluster.image import INTERNAL_TOPICS, Topic
from ottla.broker.config import describe_topic, topic_config_problem
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

CREATE_TOPICS = 19
MAX_PARTITIONS = 10_000
"""Of one request, all its topics together (`ReplicationControlManager.MAX_PARTITIONS_PER_BATCH`)."""
TOPICS_PER_TURN = 20


class Refused(NamedTuple):
    """Why a topic is not created."""

    error: ErrorCode
    message: str


async def handle(broker: Broker, request: Request) -> Reply:
    """Create each topic, or only check it when `validate_only`."""
    version, body = request.api_version, request.body
    response = codec.response_class(CREATE_TOPICS)
    times = Counter(asked.name for asked in body.topics)
    first = {asked.name: asked for asked in reversed(body.topics)}
    excessive = sum(_partition_count(broker, asked) for asked in body.topics) > MAX_PARTITIONS
    rows = []
    for asked in map(first.__getitem__, times):
        if excessive:
            refused: Refused | None = Refused(
                ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
            )
        elif times[asked.name] > 1:
            refused = Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        else:
            refused = _refuse(broker, asked)
        rows.append(_row(broker, version, asked, refused, body.validate_only))
        if len(rows) % TOPICS_PER_TURN == 0:
            await broker.turns.pause()
    return response(version=version, throttle_time_ms=0, topics=rows)


def _refuse(broker: Broker, asked: Any) -> Refused | None:
    if asked.name in INTERNAL_TOPICS and asked.name not in broker.cluster.topics:
        return Refused(ErrorCode.INVALID_REQUEST, f"The internal topic {asked.name} is created when it is needed")
    problem = broker.cluster.name_problem(asked.name)
    if problem is not None:
        return Refused(*problem)
    refused = _refuse_assignment(broker, asked) if asked.assignments else _refuse_counts(asked)
    if refused is None:
        message = topic_config_problem(_configs(asked))
        if message:
            return Refused(ErrorCode.INVALID_CONFIG, message)
    return refused


def _refuse_counts(asked: Any) -> Refused | None:
    if asked.num_partitions != -1 and not 1 <= asked.num_partitions <= MAX_PARTITIONS:
        return Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions was set to an invalid value: {asked.num_partitions} is not in 1..{MAX_PARTITIONS}",
        )
    if asked.replication_factor not in (-1, 1):
        return Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {asked.replication_factor} time(s): only 1 broker(s) are registered.",
        )
    return None


def _refuse_assignment(broker: Broker, asked: Any) -> Refused | None:
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, so partitions and replication factor must be -1.",
        )
    indexes = sorted(row.partition_index for row in asked.assignments)
    if indexes != list(range(len(indexes))) or len(indexes) > MAX_PARTITIONS:
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The partitions must be numbered from 0 without a gap.")
    if any(list(row.broker_ids) != [broker.cluster.node_id] for row in asked.assignments):
        return Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The only broker is {broker.cluster.node_id}: every partition has it as its one replica.",
        )
    return None


def _partition_count(broker: Broker, asked: Any) -> int:
    """The partitions that a topic would get; at least 0."""
    if asked.assignments:
        return len(asked.assignments)
    return broker.cluster.default_partitions if asked.num_partitions == -1 else max(0, int(asked.num_partitions))


def _configs(asked: Any) -> dict[str, str | None]:
    return {config.name: config.value for config in asked.configs or ()}


def _row(broker: Broker, version: int, asked: Any, refused: Refused | None, validate_only: bool) -> Any:
    result = codec.response_class(CREATE_TOPICS).CreatableTopicResult
    own = {name: value for name, value in _configs(asked).items() if value is not None}
    count = _partition_count(broker, asked)
    topic: Topic | None = None
    if refused is None and not validate_only:
        try:
            topic = broker.cluster.create_topic(asked.name, count, own)
        except OSError as error:
            refused = Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    if refused is not None:
        return result(
            version=version,
            name=asked.name,
            topic_id=None,
            error_code=refused.error,
            error_message=refused.message,
            configs=None if version >= 5 else [],
        )
    return result(
        version=version,
        name=asked.name,
        topic_id=_id(topic),
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=count,
        replication_factor=1,
        configs=[
            result.CreatableTopicConfigs(
                version=version,
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=False,
            )
            for entry in (describe_topic(broker.config, own) if version >= 5 else ())
        ],
    )


def _id(topic: Topic | None) -> uuid.UUID | None:
    return None if topic is None else uuid.UUID(bytes=topic.topic_id)
