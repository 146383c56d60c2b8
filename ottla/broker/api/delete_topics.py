"""DeleteTopics 1-6: metadata at once, files after `file.delete.delay.ms`. free

Version notes: 4 is flexible; 5 adds error messages; 6 names topics by name or by id. The internal topics are not
deleted: INVALID_REQUEST, because every open transaction and every group position stands in them.
"""

import uuid

from ottla.broker.api.context import ROWS_PER_TURN, Broker, Reply, Request
from ottla.broker.cluster.image import Topic
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

DELETE_TOPICS = 20


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete each topic that exists; one row per topic asked for."""
    version, body = request.api_version, request.body
    response = codec.response_class(DELETE_TOPICS)
    if version >= 6:
        asked = [(item.name, item.topic_id) for item in body.topics]
    else:
        asked = [(name, None) for name in body.topic_names]
    rows: list[Reply] = []
    for name, topic_id in asked:
        if len(rows) % ROWS_PER_TURN == ROWS_PER_TURN - 1:
            await broker.turns.pause()
        topic, error, message = _find(broker, name, topic_id)
        if topic is not None and not error:
            try:
                broker.cluster.delete_topic(topic)
            except OSError as failed:
                error, message = ErrorCode.KAFKA_STORAGE_ERROR, str(failed)
        rows.append(
            response.DeletableTopicResult(
                version=version,
                name=topic.name if topic is not None else name,
                topic_id=uuid.UUID(bytes=topic.topic_id) if topic is not None else topic_id,
                error_code=error,
                error_message=message,
            )
        )
    return response(version=version, throttle_time_ms=0, responses=rows)


def _find(broker: Broker, name: str | None, topic_id: uuid.UUID | None) -> tuple[Topic | None, ErrorCode, str | None]:
    if name is not None and topic_id is not None:
        return None, ErrorCode.INVALID_REQUEST, "Name the topic or its id, not both"
    if name is None:
        topic = broker.cluster.topics_by_id.get(topic_id.bytes) if topic_id is not None else None
        if topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
    else:
        topic = broker.cluster.topics.get(name)
        if topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    if topic.internal:
        return topic, ErrorCode.INVALID_REQUEST, f"The internal topic {topic.name} cannot be deleted"
    return topic, ErrorCode.NONE, None
