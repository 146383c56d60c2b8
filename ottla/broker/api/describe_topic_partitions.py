"""DescribeTopicPartitions 0: topics in pages of partitions, in the order of their names (KIP-966). free

A page begins at the cursor and has at most as many partitions as the client and `max.request.partition.size.limit`
allow, at least one. The reply has the cursor of the next page, or none after the last one. Without a list all topics
are described that the client may DESCRIBE. Named ones that it may not are TOPIC_AUTHORIZATION_FAILED on each page, and
absent ones are UNKNOWN_TOPIC_OR_PARTITION. The cursor of a list must name one of its topics: INVALID_REQUEST for each
topic otherwise, and for a partition below zero. A topic that is named twice is described once.

Source: `DescribeTopicPartitionsRequestHandler`, `KRaftMetadataCache.describeTopicResponse` of Kafka 4.3.1.
"""

from collections.abc import Collection, Sequence
from typing import Final

from ottla.broker.api import operations
from ottla.broker.api.authorization import DESCRIBE_TOPIC, SEE_TOPIC, find_denials
from ottla.broker.api.context import Broker
from ottla.broker.api.placement import Placement
from ottla.broker.api.reply import ReplyBuilder, with_rows
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import INTERNAL_TOPICS, TopicImage
from ottla.broker.costs import LOOKUP_US
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_names import detect_invalid_topic
from ottla.protocol.values import ZERO_UUID

_METADATA_VERSION: Final = 12
"""Leaders and replicas are those that this version of Metadata reports."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe the topics from the cursor on."""
    body = request.body
    first = body.cursor.topic_name if body.cursor is not None else ""
    asked = dict.fromkeys(topic.name for topic in body.topics)
    names = sorted(name for name in asked or broker.metadata.topics if name >= first)
    broker.turns.charge((len(body.topics) + len(broker.metadata.topics)) * LOOKUP_US)
    if body.cursor is not None and (body.cursor.partition_index < 0 or (asked and first not in asked)):
        rows = ((ErrorCode.INVALID_REQUEST, name, ZERO_UUID, False, ()) for name in asked)
        return await with_rows(broker, request, "topics", rows)
    page = _Page(broker, request)
    hidden = await find_denials(broker, request, DESCRIBE_TOPIC, names) if asked else ()
    visible = [name for name in names if name not in hidden] if hidden else names
    return await page.write(visible, hidden)


class _Page:
    """The reply to one request."""

    def __init__(self, broker: Broker, request: Request) -> None:
        self._broker = broker
        self._request = request
        self._reply = ReplyBuilder(broker, request)
        self._topics = self._reply.rows("topics")
        is_advertised = bool(broker.endpoints_of(request.session.listener_name))
        self._placement = Placement(broker, _METADATA_VERSION, is_advertised=is_advertised)
        limit = min(broker.config.max_request_partition_size_limit, request.body.response_partition_limit)
        self._left = max(limit, 1)

    async def write(self, names: Sequence[str], hidden: Collection[str]) -> Reply:
        """Return the reply with these topics as far as the limit allows, and the errors of hidden ones."""
        following = await self._add_topics(names)
        for name in hidden:
            await self._topics.add(DESCRIBE_TOPIC.error, name, ZERO_UUID, False, ())
        return self._reply.finish(topics=self._topics, next_cursor=following)

    async def _add_topics(self, names: Sequence[str]) -> tuple[str, int] | None:
        """Add topics until the limit is reached. Return the cursor of the next page, or None."""
        cursor, are_named = self._request.body.cursor, bool(self._request.body.topics)
        for name in names:
            if not are_named and not self._broker.may(self._request, SEE_TOPIC, name):
                await self._broker.turns.yield_if_due()
                continue
            if not self._left:
                return name, 0
            topic = self._broker.metadata.topics.get(name)
            if topic is not None:
                start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
                following = await self._add(topic, start)
                if following is not None:
                    return name, following
            elif are_named:
                await self._add_absent(name)
        return None

    async def _add(self, topic: TopicImage, start: int) -> int | None:
        """Add a topic. Return the partition with which the next page begins, or None if the rest of it fits."""
        partitions = self._reply.rows("topics", "partitions")
        end = min(topic.partition_count, start + self._left)
        for index in range(start, end):
            registration, epoch = topic.registrations[index], topic.leader_epochs[index]
            _, leader, replicas, in_sync, offline = self._placement.locate(topic, index)
            eligible, last_known = registration.eligible_leader_replicas or (), registration.last_known_elr or ()
            await partitions.add(ErrorCode.NONE, index, leader, epoch, replicas, in_sync, eligible, last_known, offline)
        self._left -= partitions.count
        await self._topics.add(
            ErrorCode.NONE, topic.name, topic.topic_id, topic.internal, partitions, self._operations(topic.name)
        )
        return end if end < topic.partition_count else None

    async def _add_absent(self, name: str) -> None:
        is_invalid = detect_invalid_topic(name) is not None
        error = ErrorCode.INVALID_TOPIC_EXCEPTION if is_invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await self._topics.add(error, name, ZERO_UUID, name in INTERNAL_TOPICS, (), self._operations(name))

    def _operations(self, name: str) -> int:
        return operations.of_topic(self._broker, self._request, name)
