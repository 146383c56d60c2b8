"""Functions with bugs that run in the place of functions of the consumer protocol's groups. free

The first parameter of each function is the function that it replaces; `plants.py` has the places.
"""

from collections.abc import Sequence
from typing import Final

from lab.planting import Original
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup, Record
from ottla.broker.group.consumer.members import ConsumerGroupMember
from ottla.broker.group.consumer.migration import Downgrade
from ottla.broker.group.log import EncodedRows, Rows
from ottla.broker.group.shard import GroupMetadata
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.consumer_group_records import (
    Assignment,
    ConsumerGroupKey,
    ConsumerGroupMetadata,
    ConsumerGroupRecordType,
    OwnedPartitions,
    TargetAssignment,
)
from ottla.protocol.internal_topics.offsets_records import GroupValue
from ottla.protocol.steps import Steps

NEVER_MS: Final = 1e12


def take_others(
    take_free: Original,
    kept: OwnedPartitions,
    target_epoch: int,
    wanted: Assignment,
    pending_revocation: OwnedPartitions,
    _partition_epoch: object,
) -> object:
    return take_free(kept, target_epoch, wanted, pending_revocation, lambda _topic_id, _index: -1)


def own_nothing(_owns_any: Original, *_: object) -> bool:
    return False


async def wait_for_nothing(_wait_group_durable: Original, *_: object) -> ErrorCode:
    return ErrorCode.NONE


def remove_in_earlier_epoch(
    decide_removal: Original, group: ConsumerGroup, *arguments: object
) -> Steps[tuple[Record, ...] | None]:
    records: tuple[Record, ...] | None = yield from decide_removal(group, *arguments)
    if records is None:
        return None
    *tombstones, (key, value) = records
    assert isinstance(value, ConsumerGroupMetadata)
    return (*tombstones, (key, value._replace(epoch=group.epoch - 1)))


def find_no_ended_session(late_members: Original, group: ConsumerGroup, now_ms: float) -> list[ConsumerGroupMember]:
    group.sessions = dict.fromkeys(group.sessions, now_ms + NEVER_MS)
    late: list[ConsumerGroupMember] = late_members(group, now_ms)
    return late


def keep_session_of_old_id(remove_member: Original, group: ConsumerGroup, member_id: str) -> None:
    """Remove a member, but not the session of a static one."""
    end_ms, is_static = group.sessions.get(member_id), member_id in group.static_members.values()
    remove_member(group, member_id)
    if is_static and end_ms is not None:
        group.sessions[member_id] = end_ms


def start_session_of_old_id(start_session: Original, group: ConsumerGroup, member_id: str, end_ms: float) -> None:
    """Begin the session of a static member under an id that it had before, if there is one."""
    is_new = member_id not in group.sessions and member_id in group.static_members.values()
    left = (each for each in group.sessions if each not in group.members)
    start_session(group, next(left, member_id) if is_new else member_id, end_ms)


def own_everything(_owned_since: Original, *_: object) -> bool:
    return True


def leave_targets_out(encode_rows: Original, rows: Rows) -> Steps[EncodedRows]:
    kept = [row for row in rows if not isinstance(row[1], TargetAssignment)]
    encoded: EncodedRows = yield from encode_rows(kept)
    return encoded


def leave_tombstones_out(encode_rows: Original, rows: Rows) -> Steps[EncodedRows]:
    kept = [row for row in rows if row[1] is not None or not _is_subscription(row[0])]
    encoded: EncodedRows = yield from encode_rows(kept)
    return encoded


def _is_subscription(key: object) -> bool:
    return isinstance(key, ConsumerGroupKey) and key.record_type is ConsumerGroupRecordType.MEMBER_METADATA


# --- migration of groups


def forget_assignment(convert_member: Original, *arguments: object) -> Steps[ConsumerGroupMember | None]:
    member: ConsumerGroupMember | None = yield from convert_member(*arguments)
    return None if member is None else member._replace(current=member.current._replace(assigned={}))


def upgrade_in_earlier_epoch(
    upgrade_records: Original, group_id: str, epoch: int, metadata_hash: int, members: Sequence[ConsumerGroupMember]
) -> object:
    current = [each.current._replace(member_epoch=epoch - 1, previous_member_epoch=epoch - 1) for each in members]
    changed = [each._replace(current=value) for each, value in zip(members, current, strict=True)]
    return upgrade_records(group_id, epoch - 1, metadata_hash, changed)


def start_no_sessions(end_classic: Original, groups: object, metadata: GroupMetadata, classic: ClassicGroup) -> None:
    end_classic(groups, metadata, classic)
    if isinstance(metadata.group, ConsumerGroup):
        metadata.group.sessions.clear()


def never_join_again(_must_join: Original, *_: object) -> Steps[bool]:
    yield from ()
    return False


def exchange_assignments(decide_downgrade: Original, *arguments: object) -> Steps[Downgrade | None]:
    """Give each member of the classic group the assignment of the next one."""
    downgrade: Downgrade | None = yield from decide_downgrade(*arguments)
    if downgrade is None:
        return None
    *before, (key, value) = downgrade.records
    assert isinstance(value, GroupValue)
    others = [*value.members[1:], *value.members[:1]]
    rows = tuple(row._replace(assignment=other.assignment) for row, other in zip(value.members, others, strict=True))
    return downgrade._replace(records=(*before, (key, value._replace(members=rows))))


def downgrade_in_earlier_generation(decide_downgrade: Original, *arguments: object) -> Steps[Downgrade | None]:
    downgrade: Downgrade | None = yield from decide_downgrade(*arguments)
    if downgrade is None:
        return None
    *before, (key, value) = downgrade.records
    assert isinstance(value, GroupValue)
    return downgrade._replace(records=(*before, (key, value._replace(generation=value.generation - 1))))


def find_no_reason(_find_reason: Original, *_: object) -> None:
    return None


def accept_every_generation(_commit_error: Original, *_: object) -> ErrorCode:
    return ErrorCode.NONE


def see_no_new_topics(_newest_topics: Original, *_: object) -> int:
    return -1
