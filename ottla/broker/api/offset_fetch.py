"""OffsetFetch 1-8: the committed offsets of groups. free

Version notes: 2 asks for all topics with a null list and has an error of the whole request; 5 adds leader epochs; 6 is
flexible; 7 can require stable offsets (KIP-447): a partition that an open transaction covers is UNSTABLE_OFFSET_COMMIT;
8 asks for several groups.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ottla.broker.api import durability
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import ReplyBuilder, ReplyRows
from ottla.broker.group.commits import fetched
from ottla.broker.group.offsets import Key
from ottla.protocol.errors import ErrorCode

Asked = dict[str, dict[int, None]] | None
"""topic -> partitions; None for all that have an offset."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Fetch the offsets of one group, or of several from v8. What is named twice is answered once."""
    version, body = request.api_version, request.body
    reply = ReplyBuilder(broker, request)
    stable = body.require_stable if version >= 7 else False
    if version < 8:
        asked = _merged((body.topics,))
        error, topics = await _topics(broker, reply, ("topics",), body.group_id, asked, stable)
        if error and version < 2:
            topics = await _repeat_error(reply, asked or {}, error)
        return reply.finish(topics=topics, error_code=error)
    by_group: dict[str, list[Sequence[Any] | None]] = {}
    for each in body.groups:
        by_group.setdefault(each.group_id, []).append(each.topics)
    groups = reply.rows("groups")
    for group_id, mentions in by_group.items():
        error, topics = await _topics(broker, reply, ("groups", "topics"), group_id, _merged(mentions), stable)
        await groups.add(group_id, topics, error)
    return reply.finish(groups=groups)


def _merged(mentions: Iterable[Sequence[Any] | None]) -> Asked:
    """Everything that a group's mentions ask for."""
    asked: dict[str, dict[int, None]] = {}
    for topics in mentions:
        if topics is None:
            return None
        for topic in topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return asked


async def _topics(
    broker: Broker, reply: ReplyBuilder, path: Sequence[str], group_id: str, asked: Asked, stable: bool
) -> tuple[ErrorCode, ReplyRows]:
    """The rows of one group, each as it is when its turn comes."""
    topics = reply.rows(*path)
    error, offsets = broker.groups.offsets.of_group(group_id)
    if error:
        return error, topics
    keys: Iterable[Key] = list(offsets.committed)
    rows: dict[str, ReplyRows] = {}
    if asked is not None:
        keys = ((topic, index) for topic, indexes in asked.items() for index in indexes)
        rows = {topic: reply.rows(*path, "partitions") for topic in asked}
    for key in keys:
        topic, index = key
        found = fetched(offsets, key, stable)
        if topic not in rows:
            rows[topic] = reply.rows(*path, "partitions")
        await rows[topic].add(index, found.offset, found.leader_epoch, found.metadata, found.error)
    # What is seen here must not be taken back.
    error = await durability.of_group(broker, group_id)
    if not error:
        for topic, partitions in rows.items():
            await topics.add(name=topic, partitions=partitions)
    return error, topics


async def _repeat_error(reply: ReplyBuilder, asked: dict[str, dict[int, None]], error: ErrorCode) -> ReplyRows:
    """v1 has no error of the whole request: every partition carries it."""
    topics = reply.rows("topics")
    for topic, indexes in asked.items():
        await topics.add(topic, [(index, -1, -1, "", error) for index in indexes])
    return topics
