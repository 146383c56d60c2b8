"""OffsetCommit 2-9: store the position of a group. free

Version notes: 2-4 carry a retention time; 6 leader epochs; 7 static members; 8 is flexible; 9 answers
GROUP_ID_NOT_FOUND for a group that does not exist, and carries the epoch of a member of the consumer protocol
(KIP-848). Partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION, those of topics that the client may not read
TOPIC_AUTHORIZATION_FAILED, whether they exist or not.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.broker.api import durability
from ottla.broker.api.authorization import READ_GROUP, READ_TOPIC
from ottla.broker.api.context import Api, Broker, Reply, Request
from ottla.broker.api.refusals import report_rows
from ottla.broker.api.reply import with_tables
from ottla.broker.costs import BATCH_US, LOOKUP_US, ROW_US, STATE_RECORD_US
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.members import Caller
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import NO_PARTITION_LEADER_EPOCH, ZERO_UUID

INT64_MAX = 2**63 - 1
ROWS_AT_ONCE = 250
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Rows = list[tuple[str, list[tuple[int, ErrorCode]]]]
"""[(topic, [(partition, error)])]."""


async def handle(broker: Broker, request: Request) -> Reply:
    """Commit each offset; one row per partition."""
    version, body = request.api_version, request.body
    if broker.authorizer is not None and not broker.may(request, READ_GROUP, body.group_id):
        rows = await refused_rows(broker, body.topics, READ_GROUP.error)
        return await with_tables(
            broker, request, "topics", "partitions", [(name, ZERO_UUID, row) for name, row in rows]
        )
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

    topics = await commit_rows(broker, request, version >= 6, expire_ms, commit)
    topics = or_else(topics, await durability.wait_group_durable(broker, body.group_id))
    tables = [(name, ZERO_UUID, partitions) for name, partitions in topics]
    return await with_tables(broker, request, "topics", "partitions", tables)


def or_else(rows: Rows, error: ErrorCode) -> Rows:
    """Return the rows, with `error` in place of NONE."""
    if not error:
        return rows
    return [(topic, [(index, before or error) for index, before in partitions]) for topic, partitions in rows]


async def refused_rows(broker: Broker, topics: Sequence[Any], error: ErrorCode) -> Rows:
    """Return every row with this error."""
    rows: Rows = []
    for topic in topics:
        rows.append((topic.name, [(row.partition_index, error) for row in topic.partitions]))
        await broker.turns.spend(ROW_US + len(topic.partitions) * LOOKUP_US)
    return rows


async def commit_rows(
    broker: Broker,
    request: Request,
    with_epochs: bool,
    expire_ms: int,
    commit: Callable[[Sequence[CommitRow]], list[ErrorCode]],
) -> Rows:
    """Commit the rows of readable topics and existing partitions. Return (topic, [(partition, error)]) as requested.

    `commit` gets up to `ROWS_AT_ONCE` rows at a time, and looks up the group again each time.
    """
    exists, turns = broker.cluster.has_partition, broker.turns
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
        name, results = topic.name, list[tuple[int, ErrorCode]]()
        found.append((name, results))
        count += 1
        is_refused = broker.authorizer is not None and not broker.may(request, READ_TOPIC, name)
        for row in topic.partitions:
            if count >= ROWS_AT_ONCE:
                await settle()
            count += 1
            index = row.partition_index
            if is_refused:
                results.append((index, READ_TOPIC.error))
                continue
            if exists(name, index):
                epoch = row.committed_leader_epoch if with_epochs else NO_PARTITION_LEADER_EPOCH
                metadata = row.committed_metadata or ""
                known.append(CommitRow(name, index, row.committed_offset, epoch, metadata, expire_ms))
                places.append((results, len(results)))
            results.append((index, _UNKNOWN))
        if count >= ROWS_AT_ONCE:
            await settle()
    await settle()
    return found


API: Final = Api(ApiKey.OFFSET_COMMIT, 2, 9, handle, (READ_GROUP, READ_TOPIC), report_rows=report_rows)
