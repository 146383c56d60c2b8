"""OffsetCommit 2-10: store the position of a group. free

Version notes: 2-4 carry a retention time; 6 leader epochs; 7 static members; 8 is flexible; 9 answers
GROUP_ID_NOT_FOUND for a group that does not exist, and carries the epoch of a member of the consumer protocol
(KIP-848); 10 has topic ids in place of names, and answers UNKNOWN_TOPIC_ID for the partitions of an unknown one.
Partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION, those of topics that the client may not read
TOPIC_AUTHORIZATION_FAILED, whether they exist or not.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.broker.api import durability
from ottla.broker.api.authorization import READ_GROUP, READ_TOPIC
from ottla.broker.api.context import Broker
from ottla.broker.api.refusals import report_rows as report_rows
from ottla.broker.api.reply import with_tables
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import TopicImage
from ottla.broker.costs import BATCH_US, LOOKUP_US, ROW_US, STATE_RECORD_US
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.members import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import NO_PARTITION_LEADER_EPOCH, ZERO_UUID

INT64_MAX: Final = 2**63 - 1
ROWS_AT_ONCE: Final = 250
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Rows = list[list[tuple[int, ErrorCode]]]
"""[(partition, error)] of each topic, in the order of the request."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Commit each offset; one row per partition."""
    version, body = request.api_version, request.body
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    if broker.authorizer is not None and not broker.may(request, READ_GROUP, body.group_id):
        return await with_topics(broker, request, await refused_rows(broker, body.topics, READ_GROUP.error), by_id)
    caller = Caller(
        body.group_id,
        body.generation_id_or_member_epoch,
        body.member_id,
        body.group_instance_id if version >= 7 else None,
    )
    retention_ms = body.retention_time_ms if version <= 4 else -1
    expire_ms = min(broker.clock.now_ms() + retention_ms, INT64_MAX) if retention_ms != -1 else -1

    def commit(rows: Sequence[CommitRow]) -> list[ErrorCode]:
        return broker.groups.offsets.commit(caller, rows, knows_epochs=version >= 9)

    rows = await commit_rows(broker, request, version >= 6, expire_ms, commit, by_id)
    rows = or_else(rows, await durability.wait_group_durable(broker, body.group_id))
    return await with_topics(broker, request, rows, by_id)


async def with_topics(broker: Broker, request: Request, rows: Rows, by_id: bool) -> Reply:
    """Return the reply, which has the topics' ids or names as the request has them."""
    topics = request.body.topics
    if by_id:
        tables = [("", id_of(topic), partitions) for topic, partitions in zip(topics, rows, strict=True)]
    else:
        tables = [(topic.name, ZERO_UUID, partitions) for topic, partitions in zip(topics, rows, strict=True)]
    return await with_tables(broker, request, "topics", "partitions", tables)


def id_of(topic: Any) -> bytes:
    """Return the topic id in a request; the decoder has None for zeros."""
    return ZERO_UUID if topic.topic_id is None else topic.topic_id.bytes


def or_else(rows: Rows, error: ErrorCode) -> Rows:
    """Return the rows, with `error` in place of NONE."""
    if not error:
        return rows
    return [[(index, before or error) for index, before in partitions] for partitions in rows]


async def refused_rows(broker: Broker, topics: Sequence[Any], error: ErrorCode) -> Rows:
    """Return every row with this error."""
    rows: Rows = []
    for topic in topics:
        rows.append([(row.partition_index, error) for row in topic.partitions])
        await broker.turns.spend(ROW_US + len(topic.partitions) * LOOKUP_US)
    return rows


async def commit_rows(
    broker: Broker,
    request: Request,
    with_epochs: bool,
    expire_ms: int,
    commit: Callable[[Sequence[CommitRow]], list[ErrorCode]],
    by_id: bool = False,
) -> Rows:
    """Commit the rows of readable topics and existing partitions. Return [(partition, error)] of each topic.

    `commit` gets up to `ROWS_AT_ONCE` rows at a time, and looks up the group again each time. `by_id`: the request has
    the ids of topics, not their names.
    """
    turns = broker.turns
    found: Rows = []
    known: list[CommitRow] = []
    places: list[tuple[list[tuple[int, ErrorCode]], int]] = []
    count = 0

    async def settle() -> None:
        """Commit the collected rows and charge for them. Topics without rows are charged too."""
        nonlocal count
        turns.charged_us += ROW_US * count
        count = 0
        if known:
            for (results, at), row, error in zip(places, known, commit(known), strict=True):
                results[at] = row.partition, error
            turns.charged_us += BATCH_US + STATE_RECORD_US * len(known)
            known.clear()
            places.clear()
        if turns.must_yield:
            await turns.pause()

    for topic in request.body.topics:
        results = list[tuple[int, ErrorCode]]()
        found.append(results)
        count += 1
        image, error = find_topic(broker, request, topic, by_id)
        for row in topic.partitions:
            if count >= ROWS_AT_ONCE:
                await settle()
                image, error = find_topic(broker, request, topic, by_id)
            count += 1
            index = row.partition_index
            if image is not None and 0 <= index < image.partition_count:
                epoch = row.committed_leader_epoch if with_epochs else NO_PARTITION_LEADER_EPOCH
                metadata, topic_id = row.committed_metadata or "", image.topic_id
                known.append(CommitRow(image.name, index, row.committed_offset, epoch, metadata, expire_ms, topic_id))
                places.append((results, len(results)))
            results.append((index, error))
        if count >= ROWS_AT_ONCE:
            await settle()
    await settle()
    return found


def find_topic(broker: Broker, request: Request, topic: Any, by_id: bool) -> tuple[TopicImage | None, ErrorCode]:
    """Return a topic that may be read, if it exists, and the error of partitions that cannot be committed."""
    if by_id:
        image = broker.cluster.topics_by_id.get(id_of(topic))
        if image is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
    else:
        image = broker.cluster.topics.get(topic.name)
    if broker.authorizer is not None:
        name = topic.name if image is None else image.name
        if not broker.may(request, READ_TOPIC, name):
            return None, READ_TOPIC.error
    return image, _UNKNOWN
