"""`GET /v1/groups`: consumer groups, their members' assigned partitions, and their committed offsets. free"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ottla.admin.fields import NUMBER, NUMBER_OR_NULL, TEXT, TEXT_OR_NULL, a_list, an_object
from ottla.admin.listing import LIMIT_MEANS, JsonRows, SmallestRows, limit_of
from ottla.admin.partitions import HOLDER, Owners, find_holder, holder_row, owners_of
from ottla.admin.routes import AdminRequest, AdminResponse, Route
from ottla.admin.topics.pieces import read_piece
from ottla.admin.transactions import PLACE
from ottla.broker.api.context import Broker
from ottla.broker.costs import LOOKUP_US
from ottla.broker.events import shorten
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.consumer.members import ConsumerGroupMember
from ottla.broker.group.members import Member
from ottla.broker.group.shard import GroupMetadata
from ottla.broker.log.partition import Partition
from ottla.fates import Fate
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
MOST_GAPS: Final = 20
"""Offsets below the last stable offset from which the log is read in one request, for records that consumers get."""
GAP_BYTES: Final = 16 * 1024

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
        "held_by": {**HOLDER, "description": "The open transaction before which read_committed has no more records."},
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

Held = Mapping[tuple[str, TopicPartition], tuple[int, int]]
"""(Group, partition) -> (first offset, producer id) of the open transaction that the group waits for."""


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
        held = await _find_holders(broker, chosen)
        owners = await owners_of(broker, pending | {producer_id for _, producer_id in held.values()})
        rows, left = JsonRows("groups", broker.turns), MOST_OF_ALL
        for metadata in chosen:
            row, items = _group_row(broker, metadata, owners, held, left)
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


async def _find_holders(broker: Broker, groups: Iterable[GroupMetadata]) -> Held:
    """Find the offsets of groups that wait for the end of an open transaction."""
    found: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
    gaps = MOST_GAPS
    for metadata in groups:
        for key in metadata.offsets.some_places(MOST_OFFSETS):
            await broker.turns.spend(3 * LOOKUP_US)
            value, partition = metadata.offsets.get(key), _open_partition(broker, key)
            holder = None if partition is None else find_holder(partition)
            if value is None or partition is None or holder is None:
                continue
            offset = value.value.offset
            is_held = offset >= partition.last_stable_offset
            if not is_held and gaps > 0 and offset >= partition.log_start_offset:
                gaps -= 1
                is_held = await _has_nothing_for(broker, partition, offset)
            if is_held:
                found[metadata.group.group_id, key] = holder
    return found


async def _has_nothing_for(broker: Broker, partition: Partition, offset: int) -> bool:
    """Return whether a few bytes from `offset` to the last stable offset are markers and aborted records only."""
    stable = partition.last_stable_offset
    try:
        if partition.log.segments.bytes_between(offset, stable, GAP_BYTES + 1) > GAP_BYTES:
            return False
        piece = await broker.long_work.drive(read_piece(partition, offset, stable, GAP_BYTES))
    except (ProtocolError, OSError):  # a Fetch reports it
        return False
    return all(batch.header.is_control or batch.fate is Fate.ABORTED for batch in piece.batches)


def _open_partition(broker: Broker, key: TopicPartition) -> Partition | None:
    """Return the partition; None if it is not open, or does not exist."""
    topic, index = key
    if not broker.cluster.has_partition(topic, index) or broker.cluster.is_unopened(topic, index):
        return None
    return broker.cluster.partition(topic, index)


def _group_row(
    broker: Broker, metadata: GroupMetadata, owners: Owners, held: Held, left: int
) -> tuple[dict[str, Any], int]:
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
        "offsets": [_offset(broker, metadata, key, owners, held) for key in places if key in offsets],
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


def _offset(broker: Broker, metadata: GroupMetadata, key: TopicPartition, owners: Owners, held: Held) -> dict[str, Any]:
    topic, index = key
    value = metadata.offsets.get(key)
    committed = None if value is None else value.value.offset
    partition = _open_partition(broker, key)
    ends: tuple[int, int, int] | None = None
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
        "held_by": holder_row(held.get((metadata.group.group_id, key)), owners),
    }
