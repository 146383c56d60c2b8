"""What a heartbeat, a leave or a deadline does to a consumer group: the records and the reply. pure

Nothing here changes a group. The coordinator appends the records of a decision as one batch, applies them in the same
step, and answers when they are durable. A refusal leaves nothing behind.

Source: `GroupMetadataManager` (consumerGroup...) and `TargetAssignmentBuilder` of Kafka 4.3.1. Numbers in comments are
the steps of `consumerGroupHeartbeat`.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.broker.group.consumer.assignors import ASSIGNORS, Subscriber
from ottla.broker.group.consumer.consumer_group import ConsumerGroup, Record, preferred_assignor
from ottla.broker.group.consumer.members import (
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    Target,
    owns_only,
    reconcile,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.consumer_group_records import (
    Assignment,
    ConsumerGroupKey,
    ConsumerGroupMetadata,
    ConsumerGroupRecordType,
    ConsumerGroupValue,
    MemberMetadata,
    OwnedPartitions,
    TargetAssignment,
    TargetAssignmentMetadata,
)

KINDS: Final = ConsumerGroupRecordType


class TopicInfo(NamedTuple):
    """A topic of the cluster, as far as an assignment needs it."""

    topic_id: bytes
    partition_count: int


FindTopic = Callable[[str], TopicInfo | None]
"""Return the topic of this name; None if there is none."""


class Settings(NamedTuple):
    """The options that a decision reads (`group.consumer...`, and the group's own configs)."""

    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int
    assignors: tuple[str, ...]


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request with an epoch of 0 or more. None and -1 mean "as before"."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    server_assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """Whether the member sends everything, so that it gets its whole assignment."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )


class Refusal(NamedTuple):
    """An error, and Kafka's text for it."""

    error: ErrorCode
    message: str | None


class HeartbeatReply(NamedTuple):
    """The answer to a member. `assigned` is None if its assignment did not change."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assigned: OwnedPartitions | None = None


class Decision(NamedTuple):
    """The records of a step, the reply, and the member, as it is afterwards unless the records remove it."""

    records: tuple[Record, ...]
    reply: HeartbeatReply
    member: ConsumerGroupMember


def is_blank(text: str) -> bool:
    """Return whether a string is empty or has nothing but blanks, which counts as empty."""
    return not text.strip()


def decide_heartbeat(
    group: ConsumerGroup, beat: Heartbeat, settings: Settings, find_topic: FindTopic, now_ms: int, is_stale: bool
) -> Decision | Refusal:
    """Decide on a heartbeat. `is_stale`: the topics may have changed since the group's hash was computed."""
    if len(group.members) >= settings.max_size and beat.member_id not in group.members:
        return Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {settings.max_size} members.",
        )
    found = _find_member(group, beat)
    if isinstance(found, Refusal):
        return found
    step = _Step(group, found, settings, find_topic)
    step.update_member(beat)
    step.update_epoch(is_stale)
    step.update_target(now_ms)
    if not step.reconcile(beat.owned):
        return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"The consumer group member is in a unknown state. {_REJOIN}")
    assigned = step.member.current.assigned
    shows_all = beat.member_epoch == 0 or beat.is_full or assigned != found.current.assigned
    reply = HeartbeatReply(
        step.member.member_id, step.member.epoch, settings.heartbeat_interval_ms, assigned if shows_all else None
    )
    return Decision(tuple(step.records), reply, step.member)


def decide_leave(group: ConsumerGroup, beat: Heartbeat, find_topic: FindTopic) -> Decision | Refusal:
    """Decide on a heartbeat with the epoch -1, which leaves the group, or -2 of a static member, which will return."""
    if beat.instance_id is None:
        member = group.members.get(beat.member_id)
        if member is None:
            return _unknown_member(group, beat.member_id)
    else:
        found = _find_static(group, beat, beat.instance_id)
        if isinstance(found, Refusal):
            return found
        member = found
    reply = HeartbeatReply(beat.member_id, beat.member_epoch)
    if beat.member_epoch != LEAVE_STATIC_EPOCH:
        return Decision(tuple(remove_members(group, [member], find_topic)), reply, member)
    kept = {topic_id: dict.fromkeys(indexes, 0) for topic_id, indexes in member.current.assigned.items()}
    current = member.current._replace(member_epoch=LEAVE_STATIC_EPOCH, assigned=kept, pending_revocation={})
    key = ConsumerGroupKey(KINDS.CURRENT_MEMBER_ASSIGNMENT, group.group_id, member.member_id)
    return Decision(((key, current),), reply, member._replace(current=current))


def remove_members(
    group: ConsumerGroup, members: Sequence[ConsumerGroupMember], find_topic: FindTopic
) -> Iterable[Record]:
    """Yield the records that remove members. The next heartbeat of another member computes the assignment anew."""
    for member in members:
        yield from _member_tombstones(group, member.member_id)
    names = Counter(group.topic_subscribers)
    for member in members:
        names.subtract(member.metadata.topic_names)
    metadata_hash = compute_metadata_hash([name for name, count in names.items() if count > 0], find_topic)
    bump = ConsumerGroupMetadata(group.epoch + 1, metadata_hash)
    yield ConsumerGroupKey(KINDS.METADATA, group.group_id), bump


def compute_metadata_hash(names: Iterable[str], find_topic: FindTopic) -> int:
    """Return a hash of the ids and sizes of these topics; 0 if none of them exists. It is compared with itself alone.

    Kafka computes another one, so that a group of a directory of Kafka's begins with one more epoch.
    """
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic = find_topic(name)
        if topic is not None:
            found = True
            digest.update(topic.topic_id + topic.partition_count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


class _Step:
    """One heartbeat: the records so far, and the member as they leave it."""

    def __init__(
        self, group: ConsumerGroup, member: ConsumerGroupMember, settings: Settings, find_topic: FindTopic
    ) -> None:
        self.records: list[Record] = []
        self.member = member
        self._group = group
        self._before = member
        self._settings = settings
        self._find_topic = find_topic
        self._epoch = group.epoch
        self._has_changed = False
        instance_id = member.metadata.instance_id
        holder = None if instance_id is None else group.static_members.get(instance_id)
        self._replaced = holder if holder != member.member_id else None
        self._target = group.target(self._replaced or member.member_id)
        if self._replaced is not None:
            self.records += _member_tombstones(group, self._replaced)
            self._add(KINDS.MEMBER_METADATA, member.metadata)
            self._add(KINDS.TARGET_ASSIGNMENT_MEMBER, TargetAssignment(self._target.partitions))
            self._add(KINDS.CURRENT_MEMBER_ASSIGNMENT, member.current)

    def update_member(self, beat: Heartbeat) -> None:
        """Take over what the heartbeat says about the member."""
        before = self.member.metadata
        metadata = _take_over(before, beat)
        self.member = self.member._replace(metadata=metadata)
        self._has_changed = metadata.topic_names != before.topic_names
        if metadata != before:
            self._add(KINDS.MEMBER_METADATA, metadata)

    def update_epoch(self, is_stale: bool) -> None:
        """Begin a group epoch if the subscribed names or their topics have changed."""
        group = self._group
        if not (self._has_changed or is_stale):
            return
        metadata_hash = compute_metadata_hash(self._subscribed_names(), self._find_topic)
        if self._has_changed or metadata_hash != group.metadata_hash:
            self._epoch += 1
            self._add(KINDS.METADATA, ConsumerGroupMetadata(self._epoch, metadata_hash))
        if group.has_partition_metadata:
            self.records.append((ConsumerGroupKey(KINDS.PARTITION_METADATA, group.group_id), None))

    def update_target(self, now_ms: int) -> None:
        """Compute the target assignment of a new group epoch, unless the last one was computed too recently."""
        group = self._group
        if self._epoch <= group.assignment_epoch:
            return
        interval_ms = self._settings.assignment_interval_ms
        if group.assignment_ms and interval_ms and now_ms < group.assignment_ms + interval_ms:
            return
        members = {**group.members, self.member.member_id: self.member}
        if self._replaced is not None:
            del members[self._replaced]
        targets = compute_targets(members, self._previous_targets(), self._settings, self._find_topic)
        before = self._previous_targets()
        for member_id in members:
            wanted = targets.get(member_id, {})
            if before.get(member_id) != wanted:
                self._add(KINDS.TARGET_ASSIGNMENT_MEMBER, TargetAssignment(wanted), member_id)
        self._add(KINDS.TARGET_ASSIGNMENT_METADATA, TargetAssignmentMetadata(self._epoch, now_ms))
        self._target = Target(self._epoch, targets.get(self.member.member_id, {}))

    def reconcile(self, owned: Assignment | None) -> bool:
        """Move the member towards its target. Return False if its state is unknown."""
        member, target = self.member, self._target
        if member.is_reconciled_to(target.epoch) and not self._has_changed:
            return True
        topic_ids = _topic_ids(member.metadata, self._find_topic)
        current = reconcile(member.current, target, topic_ids, owned, self._has_changed, self._group.partition_epoch)
        if current is None:
            return False
        if current != member.current:
            self.member = member._replace(current=current)
            self._add(KINDS.CURRENT_MEMBER_ASSIGNMENT, current)
        return True

    def _previous_targets(self) -> dict[str, Assignment]:
        targets = dict(self._group.targets)
        if self._replaced is not None:
            targets[self.member.member_id] = targets.pop(self._replaced, {})
        return targets

    def _subscribed_names(self) -> list[str]:
        names = Counter(self._group.topic_subscribers)
        known = self._group.members.get(self._replaced or self.member.member_id)
        if known is not None:
            names.subtract(known.metadata.topic_names)
        names.update(self.member.metadata.topic_names)
        return [name for name, count in names.items() if count > 0]

    def _add(self, kind: ConsumerGroupRecordType, value: ConsumerGroupValue, member_id: str | None = None) -> None:
        of_group = kind in (KINDS.METADATA, KINDS.TARGET_ASSIGNMENT_METADATA)
        name = "" if of_group else member_id or self.member.member_id
        self.records.append((ConsumerGroupKey(kind, self._group.group_id, name), value))


def compute_targets(
    members: Mapping[str, ConsumerGroupMember],
    targets: Mapping[str, Assignment],
    settings: Settings,
    find_topic: FindTopic,
) -> dict[str, Assignment]:
    """Return the target of each member, by the assignor that most members name."""
    topics: dict[str, TopicInfo] = {}
    for name in {name for member in members.values() for name in member.metadata.topic_names}:
        topic = find_topic(name)
        if topic is not None:
            topics[name] = topic
    by_names: dict[tuple[str, ...], list[bytes]] = {}
    for member in members.values():
        names = member.metadata.topic_names
        if names not in by_names:
            by_names[names] = [topics[name].topic_id for name in names if name in topics]
    subscribers = {
        member_id: Subscriber(
            member.metadata.instance_id, by_names[member.metadata.topic_names], targets.get(member_id, {})
        )
        for member_id, member in members.items()
    }
    assignor = preferred_assignor(members.values()) or settings.assignors[0]
    counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
    return ASSIGNORS[assignor](subscribers, counts, len(by_names) == 1)


def _find_member(group: ConsumerGroup, beat: Heartbeat) -> ConsumerGroupMember | Refusal:
    """Return the member that sent a heartbeat, as it is before; a fresh one if it joins."""
    if beat.instance_id is not None:
        holder = group.members.get(group.static_members.get(beat.instance_id, ""))
        if beat.member_epoch == 0 and holder is not None:
            return _return_static(holder, beat, beat.instance_id)
        if beat.member_epoch > 0:
            found = _find_static(group, beat, beat.instance_id)
            return found if isinstance(found, Refusal) else _epoch_refusal(found, beat) or found
    member = group.members.get(beat.member_id)
    if member is not None:
        return _epoch_refusal(member, beat) or member
    if beat.member_epoch > 0:
        return _unknown_member(group, beat.member_id)
    return ConsumerGroupMember(beat.member_id, _FRESH)


def _return_static(holder: ConsumerGroupMember, beat: Heartbeat, instance_id: str) -> ConsumerGroupMember | Refusal:
    """Return the member that takes over the place of a static member that has left for a while."""
    if holder.epoch != LEAVE_STATIC_EPOCH and holder.metadata.classic is None:
        return Refusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {beat.member_id} with instance id {instance_id} cannot join the group because the instance "
            f"id is owned by {holder.member_id} member.",
        )
    current = holder.current._replace(member_epoch=0, previous_member_epoch=0)
    return ConsumerGroupMember(beat.member_id, holder.metadata, current)


def _find_static(group: ConsumerGroup, beat: Heartbeat, instance_id: str) -> ConsumerGroupMember | Refusal:
    holder = group.members.get(group.static_members.get(instance_id, ""))
    if holder is None:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder.member_id != beat.member_id:
        return Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {beat.member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder


def _epoch_refusal(member: ConsumerGroupMember, beat: Heartbeat) -> Refusal | None:
    """Return the refusal of an epoch that is not the member's; None if it is, or if its last reply may be lost."""
    sent, current = beat.member_epoch, member.current
    if sent in (0, current.member_epoch):
        return None
    if (
        sent == current.previous_member_epoch
        and sent < current.member_epoch
        and owns_only(beat.owned, current.assigned)
    ):
        return None
    size = "greater" if sent > current.member_epoch else "smaller"
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({sent}) than the one known by the group coordinator "
        f"({current.member_epoch}). {_REJOIN}",
    )


def _unknown_member(group: ConsumerGroup, member_id: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def _take_over(before: MemberMetadata, beat: Heartbeat) -> MemberMetadata:
    return MemberMetadata(
        instance_id=before.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=before.rack_id if beat.rack_id is None else beat.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topic_names=before.topic_names if beat.topic_names is None else tuple(sorted(set(beat.topic_names))),
        topic_regex=before.topic_regex if beat.topic_regex is None else beat.topic_regex,
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if beat.rebalance_timeout_ms == -1
        else beat.rebalance_timeout_ms,
        server_assignor=before.server_assignor if beat.server_assignor is None else beat.server_assignor,
    )


def _topic_ids(metadata: MemberMetadata, find_topic: FindTopic) -> Collection[bytes]:
    found = (find_topic(name) for name in metadata.topic_names)
    return {topic.topic_id for topic in found if topic is not None}


def _member_tombstones(group: ConsumerGroup, member_id: str) -> Iterable[Record]:
    kinds = (KINDS.CURRENT_MEMBER_ASSIGNMENT, KINDS.TARGET_ASSIGNMENT_MEMBER, KINDS.MEMBER_METADATA)
    return [(ConsumerGroupKey(kind, group.group_id, member_id), None) for kind in kinds]


_FRESH: Final = MemberMetadata(None, None, "", "", (), "", -1, None)
_REJOIN: Final = "The member must abandon all its partitions and rejoin."
