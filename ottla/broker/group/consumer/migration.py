"""Migration of a group with members from the classic to the consumer protocol and back. pure

The first member of the consumer protocol upgrades a classic group: the other members stay, as members of the classic
protocol in a consumer group (`classic_members.py`). The removal of the last member of the consumer protocol downgrades
it: a classic group with the target assignments begins a rebalance. Each of the two is one batch of records.

Source: `validateOnlineUpgrade`, `convertToConsumerGroup`, `validateOnlineDowngrade...`, `convertToClassicGroup` of
`GroupMetadataManager`, `ConsumerGroup.fromClassicGroup`, `ClassicGroup.fromConsumerGroup`,
`ConsumerGroupMigrationPolicy` of Kafka 4.3.1.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from ottla.broker.costs import LOOKUP_US, STATE_RECORD_US
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup, IllegalRecord, Record
from ottla.broker.group.consumer.decisions import (
    KINDS,
    Decision,
    Heartbeat,
    Refusal,
)
from ottla.broker.group.consumer.members import ConsumerGroupMember, MemberState
from ottla.broker.group.consumer.topics import FindTopic, compute_metadata_hash
from ottla.broker.group.log import Key, Value
from ottla.broker.group.members import Member, Protocols, Roster, Timeouts
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.internal_topics import consumer_protocol
from ottla.protocol.internal_topics.consumer_group_records import (
    Assignment,
    ClassicMemberMetadata,
    ConsumerGroupKey,
    ConsumerGroupMetadata,
    ConsumerGroupRecordType,
    CurrentAssignment,
    MemberMetadata,
    TargetAssignment,
    TargetAssignmentMetadata,
)
from ottla.protocol.internal_topics.offsets_records import GroupKey, GroupValue
from ottla.protocol.steps import Steps

FindName = Callable[[bytes], str | None]
"""Return the name of the topic with this id; None if there is none."""
Row = tuple[Key, Value | None]
"""A record of a classic or a consumer group; None is a tombstone."""
_Snapshot = tuple[int, str | None, tuple[tuple[str, str | None, Timeouts, Protocols, bytes], ...]]


class MigrationPolicy(Enum):
    """The directions in which groups with members migrate (`group.consumer.migration.policy`)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def can_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def can_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class Upgrade(NamedTuple):
    """The group of a heartbeat, and the records that make it a consumer group if it is not one yet."""

    records: tuple[Row, ...]
    group: ConsumerGroup
    snapshot: _Snapshot | None = None

    def is_current(self, found: ClassicGroup | ConsumerGroup | None) -> bool:
        """Return whether a classic group is as it was when the upgrade was decided."""
        return not isinstance(found, ClassicGroup) or self.snapshot == _take_snapshot(found)


class Downgrade(NamedTuple):
    """The records that replace a consumer group by a classic one, and the protocols of its members.

    The record of a classic group has only the subscription for the chosen protocol. `reason` is that of the rebalance
    that follows; None if none does.
    """

    records: tuple[Row, ...]
    protocols: dict[str, Protocols]
    reason: str | None


# -- upgrade ----------------------------------------------------------------------------------------------------------


def decide_group(
    beat: Heartbeat,
    found: ClassicGroup | ConsumerGroup | None,
    policy: MigrationPolicy,
    max_size: int,
    find_topic: FindTopic,
) -> Steps[Upgrade | Refusal]:
    """Return the group of a heartbeat. A heartbeat with the epoch 0 begins it, or upgrades a classic group."""
    group_id = beat.group_id
    if isinstance(found, ConsumerGroup):
        return Upgrade((), found)
    if found is None and beat.member_epoch == 0:
        return Upgrade((), ConsumerGroup(group_id))
    if found is None:
        text = f"Consumer group {group_id} not found." if beat.member_epoch > 0 else f"Group {group_id} not found."
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, text)
    if beat.member_epoch != 0:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if found.is_empty:
        return Upgrade(((GroupKey(group_id), None),), ConsumerGroup(group_id), _take_snapshot(found))
    return (yield from decide_upgrade(found, policy, max_size, find_topic))


def decide_upgrade(
    classic: ClassicGroup, policy: MigrationPolicy, max_size: int, find_topic: FindTopic
) -> Steps[Upgrade | Refusal]:
    """Return the consumer group that a classic group with members becomes, with its generation as the epoch.

    Each member keeps its assignment. A member that waits for a reply is to join again.
    """
    reason = _find_obstacle(classic, policy, max_size)
    if reason is not None:
        return _refuse(classic, reason)
    if classic.protocol is None:
        text = f"Classic group {classic.group_id} has no generation yet."
        return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    snapshot = _take_snapshot(classic)
    members: list[ConsumerGroupMember] = []
    for member in [*classic.members.values()]:
        try:
            converted = yield from _convert_member(member, classic.protocol, snapshot[0], find_topic)
        except ProtocolError:
            return _refuse(classic, "the embedded consumer protocol is malformed")
        if converted is None:
            return _refuse(classic, _CUSTOM_ASSIGNOR, _ADVICE)
        members.append(converted)
    names = {name for member in members for name in member.metadata.topic_names}
    metadata_hash = yield from compute_metadata_hash(names, find_topic)
    records = _upgrade_records(classic.group_id, snapshot[0], metadata_hash, members)
    group = ConsumerGroup(classic.group_id)
    for key, value in records:
        try:
            group.apply(key, value)
        except IllegalRecord:
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, None)  # two members have one partition
        yield STATE_RECORD_US
    return Upgrade(((GroupKey(classic.group_id), None), *records), group, snapshot)


def _find_obstacle(classic: ClassicGroup, policy: MigrationPolicy, max_size: int) -> str | None:
    if not policy.can_upgrade:
        return "online upgrade is disabled"
    if not classic.is_of_consumers:
        return "the group does not use the consumer embedded protocol"
    if len(classic.members) > max_size:
        return "the group size exceeds the consumer group maximum size"
    return None


def _refuse(classic: ClassicGroup, reason: str, advice: str = "") -> Refusal:
    text = f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.{advice}"
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _take_snapshot(classic: ClassicGroup) -> _Snapshot:
    members = (
        (member.member_id, member.group_instance_id, member.timeouts, member.protocols, member.assignment)
        for member in classic.members.values()
    )
    return classic.generation, classic.protocol, tuple(members)


def _convert_member(
    member: Member, protocol: str, epoch: int, find_topic: FindTopic
) -> Steps[ConsumerGroupMember | None]:
    """Return a member of the classic protocol as one of a consumer group; None if it uses an assignor of its own.

    Raises ProtocolError.
    """
    assigned: Assignment = {}
    if member.assignment:
        given = yield from consumer_protocol.read_assignment(member.assignment)
        if given.has_user_data:
            return None
        assigned = yield from find_partitions(given.partitions, find_topic)
    # A member that joined last may lack the protocol of the generation. Its subscription is the same in all.
    content = member.subscription(protocol) or member.protocols[0][1]
    subscription = yield from consumer_protocol.read_subscription(content)
    metadata = MemberMetadata(
        member.group_instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        member.timeouts.rebalance_ms,
        None,
        ClassicMemberMetadata(member.timeouts.session_ms, member.protocols),
    )
    owned = {topic_id: dict.fromkeys(indexes, epoch) for topic_id, indexes in assigned.items()}
    return ConsumerGroupMember(
        member.member_id, metadata, CurrentAssignment(epoch, epoch, MemberState.STABLE, owned, {})
    )


def find_partitions(partitions: consumer_protocol.Partitions, find_topic: FindTopic) -> Steps[Assignment]:
    """Return partitions of a client's message by topic id, without those that do not exist."""
    found: dict[bytes, tuple[int, ...]] = {}
    for name, indexes in partitions.items():
        topic = find_topic(name)
        if topic is not None:
            some = (index for index in indexes if 0 <= index < topic.partition_count)
            found[topic.topic_id] = tuple(dict.fromkeys(some))
        yield LOOKUP_US * (1 + len(indexes))
    return found


def _upgrade_records(
    group_id: str, epoch: int, metadata_hash: int, members: Sequence[ConsumerGroupMember]
) -> list[Record]:
    def add_keys(kind: ConsumerGroupRecordType) -> Iterable[tuple[ConsumerGroupKey, ConsumerGroupMember]]:
        return [(ConsumerGroupKey(kind, group_id, member.member_id), member) for member in members]

    targets = [
        {topic_id: tuple(indexes) for topic_id, indexes in member.current.assigned.items()} for member in members
    ]
    return [
        *((key, member.metadata) for key, member in add_keys(KINDS.MEMBER_METADATA)),
        (ConsumerGroupKey(KINDS.METADATA, group_id), ConsumerGroupMetadata(epoch, metadata_hash)),
        *(
            (key, TargetAssignment(target))
            for (key, _), target in zip(add_keys(KINDS.TARGET_ASSIGNMENT_MEMBER), targets, strict=True)
        ),
        (ConsumerGroupKey(KINDS.TARGET_ASSIGNMENT_METADATA, group_id), TargetAssignmentMetadata(epoch)),
        *((key, member.current) for key, member in add_keys(KINDS.CURRENT_MEMBER_ASSIGNMENT)),
    ]


# -- downgrade --------------------------------------------------------------------------------------------------------


def can_downgrade(
    group: ConsumerGroup, removed: Sequence[ConsumerGroupMember], replaces: bool, policy: MigrationPolicy, max_size: int
) -> bool:
    """Return whether a group becomes a classic one when members are removed.

    `replaces`: a static member of the classic protocol takes the place of the one that is removed.
    """
    left = len(group.members) - len(removed) + replaces
    return policy.can_downgrade and 0 < left <= max_size and group.is_classic_without(removed)


def decide_downgrade(
    group: ConsumerGroup,
    removed: Sequence[ConsumerGroupMember],
    replacement: Decision | None,
    find_name: FindName,
    wall_ms: int,
) -> Steps[Downgrade | None]:
    """Return the records that replace a consumer group by a classic one; None if the group changes meanwhile.

    `replacement` is the decision on a member that takes over the place and the target of the one that is removed.
    """
    version = group.version
    joined = None if replacement is None else replacement.member
    places = {member_id: member_id for member_id in group.members}
    for member in removed:
        del places[member.member_id]
    members = {member_id: group.members[member_id] for member_id in places}
    if joined is not None:
        places[joined.member_id], members[joined.member_id] = removed[0].member_id, joined
    roster = Roster()
    for member in members.values():
        roster.add(_to_classic(member))
        yield LOOKUP_US
    protocol = roster.choose_protocol()
    for classic in roster.members.values():
        target = group.targets.get(places[classic.member_id], {})
        classic.assignment = yield from encode_assignment(target, find_name, classic.subscription(protocol))
    if group.version != version:
        return None
    rows = tuple(member.to_record(protocol) for member in roster.members.values())
    value = GroupValue(consumer_protocol.TYPE, group.epoch, protocol, roster.leader, wall_ms, rows)
    tombstones = [*group.tombstones()]
    if joined is not None:
        tombstones = [(_rename(key, removed[0].member_id, joined.member_id), None) for key, _ in tombstones]
    protocols = {member.member_id: member.protocols for member in roster.members.values()}
    before = () if replacement is None else replacement.records
    records: tuple[Row, ...] = (*before, *tombstones, (GroupKey(group.group_id), value))
    return Downgrade(records, protocols, _find_reason(group, before))


def _find_reason(group: ConsumerGroup, replacement: Sequence[Record]) -> str | None:
    """Return why the classic group rebalances. It does not if a member is replaced and the targets are current."""
    if not replacement:
        return f"Downgrade group {group.group_id} from consumer to classic for member leaving."
    epochs = [value.epoch for _, value in replacement if isinstance(value, ConsumerGroupMetadata)]
    if max(epochs, default=group.epoch) > group.assignment_epoch:
        return f"Downgrade group {group.group_id} from consumer to classic with stale assignment."
    return None


def _rename(key: ConsumerGroupKey, before: str, after: str) -> ConsumerGroupKey:
    """Return the key of a record of one member for another member."""
    is_regex = key.record_type is KINDS.REGULAR_EXPRESSION
    return key if is_regex or key.name != before else key._replace(name=after)


def _to_classic(member: ConsumerGroupMember) -> Member:
    metadata = member.metadata
    classic = metadata.classic or ClassicMemberMetadata(0, ())
    return Member(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        Timeouts(metadata.rebalance_timeout_ms, classic.session_timeout_ms),
        classic.protocols,
    )


def encode_assignment(partitions: Assignment, find_name: FindName, subscription: bytes) -> Steps[bytes]:
    """Encode partitions in the version of a member's subscription. Topics that are gone are left out."""
    try:
        version = consumer_protocol.read_version(subscription)
    except ProtocolError:
        version = 0
    rows = [(name, indexes) for topic_id, indexes in partitions.items() if (name := find_name(topic_id)) is not None]
    return (yield from consumer_protocol.encode_assignment(rows, version))


_CUSTOM_ASSIGNOR: Final = "an unsupported custom assignor is in use"
_ADVICE: Final = " Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
