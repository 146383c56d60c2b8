"""OffsetFetch 1-8: the committed offsets of groups. free

Version notes: 2 asks for all topics with a null list and has an error of the whole request; 5 adds leader epochs; 6 is
flexible; 7 can require stable offsets (KIP-447): a partition that an open transaction covers is UNSTABLE_OFFSET_COMMIT;
8 asks for several groups.
"""

from collections.abc import Sequence
from typing import Any

from ottla.broker.api import durability
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.group.commits import FetchedOffset, FetchedTopics
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

OFFSET_FETCH = 9


async def handle(broker: Broker, request: Request) -> Reply:
    """Fetch the offsets of one group, or of several from v8."""
    version, body = request.api_version, request.body
    response = codec.response_class(OFFSET_FETCH)
    stable = body.require_stable if version >= 7 else False
    if version < 8:
        error, found = await _fetch(broker, body.group_id, body.topics, stable)
        if error and version < 2:
            found = _repeat_error(body.topics, error)
        topics = _topics(response.OffsetFetchResponseTopic, "OffsetFetchResponsePartition", version, found)
        return response(version=version, throttle_time_ms=0, topics=topics, error_code=error)
    groups = []
    for asked in body.groups:
        error, found = await _fetch(broker, asked.group_id, asked.topics, stable)
        row = response.OffsetFetchResponseGroup
        topics = _topics(row.OffsetFetchResponseTopics, "OffsetFetchResponsePartitions", version, found)
        groups.append(row(version=version, group_id=asked.group_id, topics=topics, error_code=error))
    return response(version=version, throttle_time_ms=0, groups=groups)


async def _fetch(
    broker: Broker, group_id: str, topics: Sequence[Any] | None, stable: bool
) -> tuple[ErrorCode, FetchedTopics]:
    asked = None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]
    found = broker.groups.offsets.fetch(group_id, asked, stable)
    # What is seen here must not be taken back.
    error = await durability.of_group(broker, group_id)
    return (error, []) if error else found


def _repeat_error(topics: Sequence[Any], error: ErrorCode) -> FetchedTopics:
    """v1 has no error of the whole request: every partition carries it."""
    return [(topic.name, [(index, FetchedOffset(error)) for index in topic.partition_indexes]) for topic in topics]


def _topics(topic_class: Any, partition_class: str, version: int, found: FetchedTopics) -> list[Any]:
    row_class = getattr(topic_class, partition_class)
    return [
        topic_class(
            version=version,
            name=name,
            partitions=[
                row_class(
                    version=version,
                    partition_index=index,
                    committed_offset=row.offset,
                    committed_leader_epoch=row.leader_epoch,
                    metadata=row.metadata,
                    error_code=row.error,
                )
                for index, row in rows
            ],
        )
        for name, rows in found
    ]
