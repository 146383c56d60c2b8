"""DeleteTopics 1-6: metadata when it is durable, files after `file.delete.delay.ms`. free

Version notes: 4 is flexible; 5 adds error messages and may answer THROTTLING_QUOTA_EXCEEDED (KIP-599); 6 names topics
by name or by id. A topic that is named twice is not deleted (`ControllerApis.deleteTopics`). The internal topics are
not deleted: INVALID_REQUEST, because they hold every open transaction and every group position. A client that may not
describe a topic does not get its name for its id.
"""

import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.broker.api.authorization import DELETE_ANY_TOPIC, DELETE_TOPIC, DESCRIBE_TOPIC, MESSAGES
from ottla.broker.api.context import Broker
from ottla.broker.api.indexed_rows import index_rows
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import TopicImage
from ottla.broker.costs import CHANGE_US
from ottla.broker.quotas.managers import QUOTA_EXCEEDED
from ottla.broker.security.authorizer import Need
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import ZERO_UUID

_REFUSED: Final = (DELETE_TOPIC.error, MESSAGES[DELETE_TOPIC.error])

FIRST_STRICT_VERSION: Final = 5

NameOrId = tuple[str | None, uuid.UUID | None]


class Outcome(NamedTuple):
    """The answer for a topic. `topic` is None if it was not found or not looked up."""

    topic: TopicImage | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete each topic that exists; one row per requested topic."""
    body = request.body
    topics: list[NameOrId]
    if request.api_version >= 6:
        topics = [(item.name, item.topic_id) for item in body.topics]
    else:
        topics = [(name, None) for name in body.topic_names]
    first, twice = await index_rows(broker.turns, topics, lambda each: each)
    outcomes = {each: _DUPLICATE_NAME if each[0] is not None else _DUPLICATE_ID for each in twice}
    await _Deleting(broker, request, outcomes).delete_all([each for each in first if each not in twice])
    reply = ReplyBuilder(broker, request)
    responses = reply.rows("responses")
    for name, topic_id in first:
        topic, error, message = outcomes[name, topic_id]
        if topic is not None:
            await responses.add(topic.name, topic.topic_id, error, message)
        else:
            await responses.add(name, ZERO_UUID if topic_id is None else topic_id.bytes, error, message)
    return reply.finish(responses=responses)


class _Deleting:
    """A DeleteTopics request in progress. `outcomes` get one entry for each topic."""

    def __init__(self, broker: Broker, request: Request, outcomes: dict[NameOrId, Outcome]) -> None:
        self._broker = broker
        self._request = request
        self._outcomes = outcomes
        self._quota = request.mutation_quota(FIRST_STRICT_VERSION)
        self._may_all = broker.may(request, DELETE_ANY_TOPIC)
        self._deleted: set[bytes] = set()

    async def delete_all(self, topics: Sequence[NameOrId]) -> None:
        """Set an outcome for each topic, when the deletions are durable."""
        try:
            await self._broker.cluster.controller.in_parts(topics, self._name_of, self._delete)
        except OSError as failed:
            for each in topics:
                outcome = self._find(*each)
                if not outcome.error:
                    outcome = outcome._replace(error=ErrorCode.KAFKA_STORAGE_ERROR, message=str(failed))
                self._outcomes[each] = outcome
                await self._broker.turns.yield_if_due()

    async def _delete(self, topics: Sequence[NameOrId]) -> None:
        """Log the deletion of each topic that may be deleted. No other request changes these topics in between."""
        for each in topics:
            outcome = self._find(*each)
            topic = outcome.topic
            if topic is not None and not outcome.error:
                if topic.topic_id in self._deleted:
                    outcome = Outcome(topic, ErrorCode.INVALID_REQUEST, _BY_NAME_AND_ID)
                elif self._quota is not None and not self._quota.takes(topic.partition_count):
                    outcome = Outcome(topic, *QUOTA_EXCEEDED)
                else:
                    self._broker.cluster.controller.delete_topic(topic)
                    self._deleted.add(topic.topic_id)
            self._outcomes[each] = outcome
            await self._broker.turns.spend(CHANGE_US)

    def _name_of(self, key: NameOrId) -> str | None:
        """Return the name of the topic, or None if its id is unknown."""
        name, topic_id = key
        if name is not None or topic_id is None:
            return name
        topic = self._broker.cluster.topics_by_id.get(topic_id.bytes)
        return None if topic is None else topic.name

    def _find(self, name: str | None, topic_id: uuid.UUID | None) -> Outcome:
        if name is not None and topic_id is not None:
            return Outcome(None, ErrorCode.INVALID_REQUEST, "Name the topic or its id, not both")
        outcome = self._find_by_id(topic_id) if name is None else self._find_by_name(name)
        topic = outcome.topic
        if topic is not None and topic.internal and not outcome.error:
            return Outcome(topic, ErrorCode.INVALID_REQUEST, f"The internal topic {topic.name} cannot be deleted")
        return outcome

    def _find_by_id(self, topic_id: uuid.UUID | None) -> Outcome:
        """Look up a topic by id. Every client learns whether the id exists, but gets the name only with DESCRIBE."""
        topic = self._broker.cluster.topics_by_id.get(topic_id.bytes) if topic_id is not None else None
        if topic is None:
            return Outcome(None, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        if self._may(DELETE_TOPIC, topic.name):
            return Outcome(topic)
        return Outcome(topic if self._may(DESCRIBE_TOPIC, topic.name) else None, *_REFUSED)

    def _find_by_name(self, name: str) -> Outcome:
        """Look up a topic by name. Only a client that may describe it learns whether it exists."""
        if not self._may(DESCRIBE_TOPIC, name):
            return Outcome(None, *_REFUSED)
        topic = self._broker.cluster.topics.get(name)
        if topic is None:
            message = "This server does not host this topic-partition."
            return Outcome(None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return Outcome(topic) if self._may(DELETE_TOPIC, name) else Outcome(None, *_REFUSED)

    def _may(self, need: Need, name: str) -> bool:
        return self._may_all or self._broker.may(self._request, need, name)


_DUPLICATE_NAME: Final = Outcome(None, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
_DUPLICATE_ID: Final = Outcome(None, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
_BY_NAME_AND_ID: Final = "The provided topic name maps to an ID that was already supplied."
