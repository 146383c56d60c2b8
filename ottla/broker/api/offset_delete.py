"""OffsetDelete 0: delete single offsets of a group. free

A group with members loses only offsets of topics to which none of them has subscribed (GROUP_SUBSCRIBED_TO_TOPIC), and
none if the members are not consumers (NON_EMPTY_GROUP). Deleting an offset that does not exist succeeds. Partitions
that do not exist are UNKNOWN_TOPIC_OR_PARTITION. An error of the group is that of the request, which has no rows then.
"""

from ottla.broker.api import durability
from ottla.broker.api.authorization import DELETE_GROUP, READ_TOPIC, find_denials
from ottla.broker.api.context import Broker
from ottla.broker.api.refusals import report_rows as report_rows
from ottla.broker.api.reply import encode_reply, with_tables
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete each offset; one row per partition."""
    body = request.body
    if not broker.may(request, DELETE_GROUP, body.group_id):
        return encode_reply(request, error_code=DELETE_GROUP.error)
    exists = broker.cluster.has_partition
    requested: list[tuple[str, list[int], ErrorCode]] = []
    known: list[tuple[str, list[int]]] = []
    refused = await find_denials(broker, request, READ_TOPIC, (topic.name for topic in body.topics))
    for topic in body.topics:
        name, indexes = topic.name, [row.partition_index for row in topic.partitions]
        is_refused = name in refused
        requested.append((name, indexes, READ_TOPIC.error if is_refused else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        known.append((name, [] if is_refused else [index for index in indexes if exists(name, index)]))
        await broker.turns.spend((1 + len(indexes)) * ROW_US)
    error, errors = await broker.groups.deletion.delete_offsets(body.group_id, known)
    error = error or await durability.wait_group_durable(broker, body.group_id)
    if error:
        return encode_reply(request, error_code=error)
    topics = []
    for (name, indexes, absent), (_, known_indexes), known_errors in zip(requested, known, errors, strict=True):
        outcomes = dict(zip(known_indexes, known_errors, strict=True))
        rows = [(index, outcomes.get(index, absent)) for index in dict.fromkeys(indexes)]
        topics.append((name, rows))
        await broker.turns.spend(ROW_US + len(indexes) * LOOKUP_US)
    return await with_tables(broker, request, "topics", "partitions", topics)
