"""`GET /v1/groups`: consumer groups, their members' assigned partitions, and their committed offsets. free"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ottla.admin.fields import NUMBER, NUMBER_OR_NULL, TEXT, TEXT_OR_NULL, a_list, an_object
from ottla.admin.listing import LIMIT_MEANS, JsonRows, SmallestRows, limit_of
from ottla.admin.partitions import owners_of
from ottla.admin.routes import AdminRequest, AdminResponse, Route
from ottla.admin.transactions import PLACE
from ottla.broker.api.context import Broker
from ottla.broker.costs import LOOKUP_US
from ottla.broker.events import shorten
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.consumer.members import ConsumerGroupMember
from ottla.broker.group.members import Member
from ottla.broker.group.shard import GroupMetadata
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.consumer_group_records import OwnedPartitions
from ottla.protocol.internal_topics.consumer_protocol import read_first_partitions
from ottla.protocol.steps import to_the_end
from ottla.protocol.values import TopicPartition

MOST_MEMBERS: Final = 100
MOST_ASSIGNED: Final = 500
"""Topics of one member, and their partitions."""
MOST_OFFSETS: Final = 200
MOST_PENDING: Final = 10
"""Open transactions with an offset for one partition."""
MOST_OF_ALL: Final = 10_000
"""Members, their topics, partitions and offsets in one reply."""

_MEMBER: Final = an_object(
    {
        "member_id": TEXT,
        "client_id": TEXT,
        "epoch": {**NUMBER_OR_NULL, "description": "Null in a classic group."},
        "assignment": a_list({"type": "array"}, description="Items of the form [topic, [partition, ...]]."),
    }
)
_PENDING: Final = an_object({"producer_id": NUMBER, "transactional_id": TEXT_OR_NULL, "offset": NUMBER})
_OFFSET: Final = an_object(
    {
        **PLACE,
        "committed": NUMBER_OR_NULL,
        "pending": a_list(_PENDING, description="Offsets that open transactions have committed."),
        "log_end_offset": NUMBER_OR_NULL,
        "last_stable_offset": NUMBER_OR_NULL,
        "lag": {**NUMBER_OR_NULL, "description": "Lag up to the high watermark."},
        "lag_below_lso": {**NUMBER_OR_NULL, "description": "Lag up to the last stable offset."},
    }
)
_GROUP: Final = an_object(
    {
        "group_id": TEXT,
        "state": {**TEXT, "description": "Kafka's name: Stable, Empty, Reconciling, ..."},
        "type": {**TEXT, "description": "The protocol of the group: consumer or classic."},
        "protocol_type": TEXT,
        "epoch": {**NUMBER, "description": "The group epoch; of a classic group its generation."},
        "assignment_epoch": {**NUMBER_OR_NULL, "description": "The epoch of the target assignment."},
        "members": a_list(_MEMBER),
        "members_left_out": NUMBER,
        "offsets": a_list(_OFFSET),
        "offsets_left_out": {**NUMBER, "description": "An upper bound of the offsets that are left out."},
    }
)
SCHEMA: Final = an_object({"groups": a_list(_GROUP), "total": NUMBER, "left_out": NUMBER})

Owners = Mapping[int, tuple[str, int]]


def groups_route(broker: Broker) -> Route:
    """Return the route."""

    async def show(request: AdminRequest) -> AdminResponse:
        found = await _found(broker, limit_of(request), request.query.get("prefix", ""))
        chosen = found.rows()
        pending: set[int] = set()
        for metadata in chosen:
            for key in metadata.offsets.some_places(MOST_OFFSETS):
                pending.update(producer_id for producer_id, _ in islice(metadata.offsets.pending(key), MOST_PENDING))
            await broker.turns.spend(MOST_OFFSETS * LOOKUP_US)
        owners = await owners_of(broker, pending)
        rows, left = JsonRows("groups", broker.turns), MOST_OF_ALL
        for metadata in chosen:
            row, items = _group_row(broker, metadata, owners, left)
            left -= items
            await rows.add(row, items)
        return rows.finish(total=found.total, left_out=found.left_out)

    query = {"prefix": "Only groups whose ids begin with this text.", "limit": LIMIT_MEANS}
    return Route("GET", "/v1/groups", show, "Show consumer groups", query=query, response_schema=SCHEMA)


async def _found(broker: Broker, limit: int, prefix: str) -> SmallestRows[tuple[str], GroupMetadata]:
    found: SmallestRows[tuple[str], GroupMetadata] = SmallestRows(limit)
    for metadata in broker.list_groups():
        await broker.turns.spend(2 * LOOKUP_US)
        group_id = metadata.group.group_id
        if not metadata.ending and group_id.startswith(prefix):
            found.add((group_id,), metadata)
    return found


def _group_row(broker: Broker, metadata: GroupMetadata, owners: Owners, left: int) -> tuple[dict[str, Any], int]:
    """Return the row of a group, and its number of items, which is at most a little more than `left`."""
    group, offsets = metadata.group, metadata.offsets
    members, items = [], 0
    listed: Iterable[Member | ConsumerGroupMember] = group.members.values()
    for member in islice(listed, MOST_MEMBERS):
        if items >= left:
            break
        members.append(_member(broker, member))
        items += 1 + sum(1 + len(partitions) for _, partitions in members[-1]["assignment"])
    places = offsets.some_places(max(0, min(MOST_OFFSETS, left - items)))
    row = {
        "group_id": shorten(group.group_id),
        "state": group.state.value,
        **_protocol(group),
        "members": members,
        "members_left_out": len(group.members) - len(members),
        "offsets": [_offset(broker, metadata, key, owners) for key in places if key in offsets],
        "offsets_left_out": max(0, offsets.at_most - MOST_OFFSETS),
    }
    return row, items + 5 * len(places)


def _protocol(group: ClassicGroup | ConsumerGroup) -> dict[str, Any]:
    if isinstance(group, ConsumerGroup):
        kind, epoch, assignment_epoch = "consumer", group.epoch, group.assignment_epoch
    else:
        kind, epoch, assignment_epoch = "classic", group.generation, None
    return {
        "type": kind,
        "protocol_type": group.protocol_type or "",
        "epoch": epoch,
        "assignment_epoch": assignment_epoch,
    }


def _member(broker: Broker, member: Member | ConsumerGroupMember) -> dict[str, Any]:
    if isinstance(member, Member):
        client_id, epoch = member.client_id, None
        assignment = _decode_assignment(member.assignment)
    else:
        client_id, epoch = member.metadata.client_id, member.epoch
        assignment = _list_partitions(broker, member.current.assigned)
    return {
        "member_id": shorten(member.member_id),
        "client_id": shorten(client_id),
        "epoch": epoch,
        "assignment": [[shorten(topic), list(indexes)] for topic, indexes in _few(assignment)],
    }


def _list_partitions(broker: Broker, assigned: OwnedPartitions) -> list[tuple[str, tuple[int, ...]]]:
    """Return (topic, partitions) of a member of the consumer protocol, at most `MOST_ASSIGNED` of each."""
    topics = broker.cluster.topics_by_id
    known = ((topics[topic_id].name, indexes) for topic_id, indexes in assigned.items() if topic_id in topics)
    return [(name, tuple(islice(indexes, MOST_ASSIGNED))) for name, indexes in islice(known, MOST_ASSIGNED)]


def _few(assignment: list[tuple[str, tuple[int, ...]]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    left = MOST_ASSIGNED
    for topic, indexes in assignment:
        yield topic, indexes[:left]
        left -= len(indexes)
        if left <= 0:
            return


def _decode_assignment(assignment: bytes) -> list[tuple[str, tuple[int, ...]]]:
    """Return (topic, partitions) of a member, at most `MOST_ASSIGNED` of both; none if a consumer cannot read them."""
    try:
        partitions = to_the_end(read_first_partitions(assignment, MOST_ASSIGNED))
    except ProtocolError:
        return []
    return [(topic, tuple(indexes)) for topic, indexes in partitions.items()]


def _offset(broker: Broker, metadata: GroupMetadata, key: TopicPartition, owners: Owners) -> dict[str, Any]:
    topic, index = key
    value = metadata.offsets.get(key)
    committed = None if value is None else value.value.offset
    ends: tuple[int, int, int] | None = None
    if broker.cluster.has_partition(topic, index) and not broker.cluster.is_unopened(topic, index):
        partition = broker.cluster.partition(topic, index)
        if partition is not None:
            ends = partition.log_end_offset, partition.last_stable_offset, partition.high_watermark
    return {
        "topic": topic,
        "partition": index,
        "committed": committed,
        "pending": [
            {
                "producer_id": producer_id,
                "transactional_id": shorten(owners[producer_id][0]) if producer_id in owners else None,
                "offset": offset,
            }
            for producer_id, offset in islice(metadata.offsets.pending(key), MOST_PENDING)
        ],
        "log_end_offset": None if ends is None else ends[0],
        "last_stable_offset": None if ends is None else ends[1],
        "lag": None if ends is None or committed is None else max(0, ends[2] - committed),
        "lag_below_lso": None if ends is None or committed is None else max(0, ends[1] - committed),
    }
