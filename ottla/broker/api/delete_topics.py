"""DeleteTopics 1-6: metadata when it is durable, files after `file.delete.delay.ms`. free

Version notes: 4 is flexible; 5 adds error messages; 6 names topics by name or by id. What is named twice is not
deleted (`ControllerApis.deleteTopics`). The internal topics are not deleted: INVALID_REQUEST, because every open
transaction and every group position stands in them.
"""

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.named import named
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.cluster.image import TopicImage
from ottla.broker.costs import CHANGE_US
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import ZERO_UUID

Asked = tuple[str | None, uuid.UUID | None]


class Outcome(NamedTuple):
    """What is answered for a topic; it is None where it was not found or not looked for."""

    topic: TopicImage | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete each topic that exists; one row per topic asked for."""
    body = request.body
    asked: list[Asked]
    if request.api_version >= 6:
        asked = [(item.name, item.topic_id) for item in body.topics]
    else:
        asked = [(name, None) for name in body.topic_names]
    first, twice = await named(broker.turns, asked, lambda each: each)
    outcomes = {each: _DUPLICATE_NAME if each[0] is not None else _DUPLICATE_ID for each in twice}
    await _delete_all(broker, [each for each in first if each not in twice], outcomes)
    reply = ReplyBuilder(broker, request)
    responses = reply.rows("responses")
    for name, topic_id in first:
        topic, error, message = outcomes[name, topic_id]
        if topic is not None:
            await responses.add(topic.name, topic.topic_id, error, message)
        else:
            await responses.add(name, ZERO_UUID if topic_id is None else topic_id.bytes, error, message)
    return reply.finish(responses=responses)


async def _delete_all(broker: Broker, wanted: Sequence[Asked], outcomes: dict[Asked, Outcome]) -> None:
    """An outcome for each topic, when what was deleted is gone."""
    deleted: set[bytes] = set()
    try:
        await broker.cluster.controller.in_parts(
            wanted, lambda each: _name_of(broker, *each), lambda part: _delete(broker, part, deleted, outcomes)
        )
    except OSError as failed:
        for each in wanted:
            outcome = _find(broker, *each)
            outcomes[each] = outcome if outcome.error else outcome._replace(error=_STORAGE, message=str(failed))


async def _delete(broker: Broker, wanted: Sequence[Asked], deleted: set[bytes], outcomes: dict[Asked, Outcome]) -> None:
    """Log the end of each topic that may be deleted; nobody else changes them meanwhile."""
    for each in wanted:
        outcome = _find(broker, *each)
        topic = outcome.topic
        if topic is not None and topic.topic_id in deleted:
            outcome = Outcome(topic, ErrorCode.INVALID_REQUEST, _BY_NAME_AND_ID)
        elif topic is not None and not outcome.error:
            broker.cluster.controller.delete_topic(topic)
            deleted.add(topic.topic_id)
        outcomes[each] = outcome
        broker.turns.charge(CHANGE_US)
        await broker.turns.share()


def _name_of(broker: Broker, name: str | None, topic_id: uuid.UUID | None) -> str | None:
    """What the topic is called, if anybody knows."""
    if name is not None or topic_id is None:
        return name
    topic = broker.cluster.topics_by_id.get(topic_id.bytes)
    return None if topic is None else topic.name


def _find(broker: Broker, name: str | None, topic_id: uuid.UUID | None) -> Outcome:
    if name is not None and topic_id is not None:
        return Outcome(None, ErrorCode.INVALID_REQUEST, "Name the topic or its id, not both")
    if name is None:
        topic = broker.cluster.topics_by_id.get(topic_id.bytes) if topic_id is not None else None
        if topic is None:
            return Outcome(None, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    else:
        topic = broker.cluster.topics.get(name)
        if topic is None:
            message = "This server does not host this topic-partition."
            return Outcome(None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if topic.internal:
        return Outcome(topic, ErrorCode.INVALID_REQUEST, f"The internal topic {topic.name} cannot be deleted")
    return Outcome(topic)


_STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
_DUPLICATE_NAME = Outcome(None, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
_DUPLICATE_ID = Outcome(None, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
_BY_NAME_AND_ID = "The provided topic name maps to an ID that was already supplied."
