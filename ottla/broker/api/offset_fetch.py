"""OffsetFetch 1-9: the committed offsets of groups. free

Version notes: 2 asks for all topics with a null list and has an error of the whole request; 5 adds leader epochs; 6 is
flexible; 7 can require stable offsets (KIP-447): a partition that an open transaction covers is UNSTABLE_OFFSET_COMMIT;
8 asks for several groups; 9 may name a member of the consumer protocol and its epoch (KIP-848). Topics that the client
may not describe are TOPIC_AUTHORIZATION_FAILED where they are named, and left out of all topics.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

from ottla.broker.api import durability
from ottla.broker.api.authorization import DESCRIBE_GROUP, DESCRIBE_TOPIC
from ottla.broker.api.context import Api, Broker, Reply, Request
from ottla.broker.api.reply import ReplyBuilder, ReplyRows
from ottla.broker.costs import LOOKUP_US, REPLY_ROW_US
from ottla.broker.group.commits import fetch_offset
from ottla.broker.group.offsets import GroupOffsets
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

_NO_MEMBER: Final = (None, -1)

IndexesByTopic = dict[str, dict[int, None]]
"""topic -> partitions."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Fetch the offsets of one group, or of several from v8. A group or partition that is named twice is answered
    once."""
    version, body = request.api_version, request.body
    answer = _Answer(broker, request, ("topics",) if version < 8 else ("groups", "topics"))
    if version < 8:
        error, topics = await answer.of_group(body.group_id, (body.topics,))
        if error and version < 2:
            topics = await answer.repeat(body.topics, error)
        return answer.reply.finish(topics=topics, error_code=error)
    by_group: dict[str, list[Any]] = {}
    for each in body.groups:
        by_group.setdefault(each.group_id, []).append(each)
    groups = answer.reply.rows("groups")
    for group_id, mentions in by_group.items():
        member = (mentions[0].member_id, mentions[0].member_epoch) if version >= 9 else _NO_MEMBER
        error, topics = await answer.of_group(group_id, [each.topics for each in mentions], member)
        await groups.add(group_id, topics, error)
    return answer.reply.finish(groups=groups)


class _Answer:
    """The reply. `path` is the field of its topics."""

    def __init__(self, broker: Broker, request: Request, path: Sequence[str]) -> None:
        self.reply = ReplyBuilder(broker, request)
        self._broker = broker
        self._request = request
        self._path = path
        self._stable = request.api_version >= 7 and request.body.require_stable

    async def of_group(
        self,
        group_id: str,
        mentions: Sequence[Sequence[Any] | None],
        member: tuple[str | None, int] = _NO_MEMBER,
    ) -> tuple[ErrorCode, ReplyRows]:
        """Return the offsets of one group, each with its value when its row is written; all of them if a mention is
        None. `member`: the id and epoch of the member that asks."""
        topics = self.reply.rows(*self._path)
        if not self._broker.may(self._request, DESCRIBE_GROUP, group_id):
            return DESCRIBE_GROUP.error, topics
        error, offsets = self._broker.groups.offsets.of_group(group_id, *member)
        if error:
            return error, topics
        is_all = None in mentions
        requested = await self._find_offsets(offsets) if is_all else await self._merge(mentions)
        for topic, indexes in requested.items():
            partitions = self.reply.rows(*self._path, "partitions")
            if not self._broker.may(self._request, DESCRIBE_TOPIC, topic):
                await self._charge_row()
                if not is_all:
                    await partitions.extend((index, -1, -1, "", DESCRIBE_TOPIC.error) for index in indexes)
                    await topics.add(name=topic, partitions=partitions)
                continue
            for index in indexes:
                key = (topic, index)
                found = fetch_offset(offsets, key, self._stable)
                self._broker.turns.charge(LOOKUP_US * offsets.depth(key))
                await partitions.add(index, found.offset, found.leader_epoch, found.metadata, found.error)
            await topics.add(name=topic, partitions=partitions)
        # The offsets in the reply must be durable.
        error = await durability.wait_group_durable(self._broker, group_id)
        return error, self.reply.rows(*self._path) if error else topics

    async def repeat(self, topics: Sequence[Any], error: ErrorCode) -> ReplyRows:
        """Return every partition with the error, because v1 has no error of the whole request."""
        rows = self.reply.rows(*self._path)
        for topic, indexes in (await self._merge((topics,))).items():
            await rows.add(topic, [(index, -1, -1, "", error) for index in indexes])
        return rows

    async def _find_offsets(self, offsets: GroupOffsets) -> IndexesByTopic:
        """Return every partition that has an offset."""
        requested: IndexesByTopic = {}
        for key in offsets.places():
            if offsets.get(key) is not None:
                topic, index = key
                requested.setdefault(topic, {})[index] = None
            await self._charge_row()
        return requested

    async def _merge(self, mentions: Iterable[Sequence[Any] | None]) -> IndexesByTopic:
        """Return all partitions that a group's mentions name."""
        requested: IndexesByTopic = {}
        for topic in chain.from_iterable(filter(None, mentions)):
            requested.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
            await self._charge_row()
        return requested

    async def _charge_row(self) -> None:
        await self._broker.turns.spend(REPLY_ROW_US)


API: Final = Api(ApiKey.OFFSET_FETCH, 1, 9, handle, (DESCRIBE_GROUP, DESCRIBE_TOPIC))
