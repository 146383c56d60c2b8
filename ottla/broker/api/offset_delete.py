"""OffsetDelete 0: single offsets of a group. free

A group with members loses offsets only of topics to which none of them has subscribed (GROUP_SUBSCRIBED_TO_TOPIC), and
none if they are no consumers (NON_EMPTY_GROUP). An offset that does not exist is deleted all the same. Partitions that
do not exist are UNKNOWN_TOPIC_OR_PARTITION; an error of the group is that of the request, which has no rows then.
"""

from ottla.broker.api import durability
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import encoded
from ottla.broker.costs import ROW_US
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete each offset; one row per partition."""
    body = request.body
    exists = broker.cluster.has_partition
    asked = [(topic.name, [row.partition_index for row in topic.partitions]) for topic in body.topics]
    broker.turns.charge(sum(len(indexes) for _, indexes in asked) * ROW_US)
    known = [(name, [index for index in indexes if exists(name, index)]) for name, indexes in asked]
    error, errors = await broker.groups.deletion.delete_offsets(body.group_id, known)
    error = error or await durability.wait_group_durable(broker, body.group_id)
    if error:
        return encoded(request, error_code=error)
    topics = []
    for (name, indexes), (_, known_indexes), known_errors in zip(asked, known, errors, strict=True):
        told = dict(zip(known_indexes, known_errors, strict=True))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics.append((name, [(index, told.get(index, unknown)) for index in dict.fromkeys(indexes)]))
    return encoded(request, topics=topics)
