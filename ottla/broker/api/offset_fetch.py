"""OffsetFetch 1-10: the committed offsets of groups. free

Version notes: 2 asks for all topics with a null list and has an error of the whole request; 5 adds leader epochs; 6 is
flexible; 7 can require stable offsets (KIP-447): a partition that an open transaction covers is UNSTABLE_OFFSET_COMMIT;
8 asks for several groups; 9 may name a member of the consumer protocol and its epoch (KIP-848); 10 has topic ids in
place of names. The partitions of an unknown id are UNKNOWN_TOPIC_ID, and an offset that was committed for another topic
of the same name counts as none. Topics that the client may not describe are TOPIC_AUTHORIZATION_FAILED where they are
named, and left out of all topics.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

from ottla.broker.api import durability
from ottla.broker.api.authorization import DESCRIBE_GROUP, DESCRIBE_TOPIC
from ottla.broker.api.context import Broker
from ottla.broker.api.offset_commit import FIRST_VERSION_WITH_TOPIC_IDS, id_of
from ottla.broker.api.reply import ReplyBuilder, ReplyRows
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import LOOKUP_US, REPLY_ROW_US
from ottla.broker.group.commits import fetch_offset
from ottla.broker.group.offsets import GroupOffsets
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.values import ZERO_UUID

_NO_MEMBER: Final = (None, -1)

IndexesByTopic = dict[str | bytes, dict[int, None]]
"""Name or id of a topic -> partitions."""


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
        self._by_id = request.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
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
        for place, indexes in requested.items():
            name, topic_id, refused = self._find_topic(place)
            if refused and is_all:
                await self._charge_row()
                continue
            partitions = self.reply.rows(*self._path, "partitions")
            if refused:
                await self._charge_row()
                await partitions.extend((index, -1, -1, "", refused) for index in indexes)
            else:
                await self._add_offsets(partitions, offsets, name, indexes, topic_id if place == topic_id else None)
            if self._by_id:
                await topics.add(topic_id=topic_id, partitions=partitions)
            else:
                await topics.add(name=name, partitions=partitions)
        # The offsets in the reply must be durable.
        error = await durability.wait_group_durable(self._broker, group_id)
        return error, self.reply.rows(*self._path) if error else topics

    def _find_topic(self, place: str | bytes) -> tuple[str, bytes, ErrorCode]:
        """Return name and id of a topic, and the error of its partitions. The id matters only in versions with ids."""
        cluster = self._broker.cluster
        if isinstance(place, bytes):
            image = cluster.topics_by_id.get(place)
            name, topic_id = "" if image is None else image.name, place
        else:
            image = cluster.topics.get(place)
            name, topic_id = place, ZERO_UUID if image is None else image.topic_id
        if self._by_id and image is None:
            return name, topic_id, ErrorCode.UNKNOWN_TOPIC_ID
        is_allowed = self._broker.may(self._request, DESCRIBE_TOPIC, name)
        return name, topic_id, NO_ERROR if is_allowed else DESCRIBE_TOPIC.error

    async def _add_offsets(
        self, partitions: ReplyRows, offsets: GroupOffsets, topic: str, indexes: Iterable[int], topic_id: bytes | None
    ) -> None:
        """Write the offsets of one topic; with a topic id only those that were committed for it."""
        for index in indexes:
            key = (topic, index)
            found = fetch_offset(offsets, key, self._stable, topic_id)
            self._broker.turns.charge(LOOKUP_US * offsets.depth(key))
            await partitions.add(index, found.offset, found.leader_epoch, found.metadata, found.error)

    async def repeat(self, topics: Sequence[Any], error: ErrorCode) -> ReplyRows:
        """Return every partition with the error, because v1 has no error of the whole request."""
        rows = self.reply.rows(*self._path)
        for name, indexes in (await self._merge((topics,))).items():
            await rows.add(name, [(index, -1, -1, "", error) for index in indexes])
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
            place = id_of(topic) if self._by_id else topic.name
            requested.setdefault(place, {}).update(dict.fromkeys(topic.partition_indexes))
            await self._charge_row()
        return requested

    async def _charge_row(self) -> None:
        await self._broker.turns.spend(REPLY_ROW_US)
