"""OffsetDelete 0: single offsets of a group. free

A group with members loses offsets only of topics to which none of them has subscribed (GROUP_SUBSCRIBED_TO_TOPIC), and
none if they are no consumers (NON_EMPTY_GROUP). An offset that does not exist is deleted all the same. Partitions that
do not exist are UNKNOWN_TOPIC_OR_PARTITION; an error of the group is that of the request, which has no rows then.
"""

from ottla.broker.api import durability
from ottla.broker.api.context import Broker, Reply, Request
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete each offset; one row per partition."""
    version, body = request.api_version, request.body
    response = codec.response_class(ApiKey.OFFSET_DELETE)
    exists = broker.cluster.has_partition
    asked = [(topic.name, [row.partition_index for row in topic.partitions]) for topic in body.topics]
    known = [(name, [index for index in indexes if exists(name, index)]) for name, indexes in asked]
    error, errors = await broker.groups.removal.delete_offsets(body.group_id, known)
    error = error or await durability.of_group(broker, body.group_id)
    if error:
        return response(version=version, error_code=error, throttle_time_ms=0, topics=[])
    topic_class = response.OffsetDeleteResponseTopic
    row_class = topic_class.OffsetDeleteResponsePartition
    topics = []
    for (name, indexes), (_, known_indexes), known_errors in zip(asked, known, errors, strict=True):
        told = dict(zip(known_indexes, known_errors, strict=True))
        rows = [
            row_class(
                version=version,
                partition_index=index,
                error_code=told.get(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
            for index in dict.fromkeys(indexes)
        ]
        topics.append(topic_class(version=version, name=name, partitions=rows))
    return response(version=version, error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)
