"""Decisions on heartbeats, leaves and deadlines of a consumer group: the records and the reply. pure

Nothing here changes a group. The coordinator appends the records of a decision as one batch, applies them in the same
step, and answers when they are durable. A refusal changes nothing.

Source: `GroupMetadataManager` (consumerGroup...) and `TargetAssignmentBuilder` of Kafka 4.3.1. Numbers in comments are
the steps of `consumerGroupHeartbeat`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.broker.costs import ASSIGNED_PARTITION_US, ASSIGNED_TOPIC_US, PATTERN_BYTE_US
from ottla.broker.group.consumer.assignors import ASSIGNORS, Subscriber
from ottla.broker.group.consumer.consumer_group import ConsumerGroup, Record, preferred_assignor
from ottla.broker.group.consumer.members import (
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    Target,
    owns_only,
    reconcile,
)
from ottla.broker.group.consumer.regular_expressions import find_fault, must_resolve, regex_record
from ottla.broker.group.consumer.topics import FindTopic, compute_metadata_hash, find_topics
from ottla.broker.pattern import MAX_BYTES
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.consumer_group_records import (
    Assignment,
    ClassicMemberMetadata,
    ConsumerGroupKey,
    ConsumerGroupMetadata,
    ConsumerGroupRecordType,
    ConsumerGroupValue,
    MemberMetadata,
    OwnedPartitions,
    TargetAssignment,
    TargetAssignmentMetadata,
)
from ottla.protocol.steps import Steps

KINDS: Final = ConsumerGroupRecordType


class Settings(NamedTuple):
    """The options that a decision reads (`group.consumer...`, and the group's own configs)."""

    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int
    assignors: tuple[str, ...]
    regex_refresh_interval_ms: int
    max_regex_bytes: int


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request. None and -1 mean "as before".

    `classic`: a JoinGroup request of a member of the classic protocol. Its epoch is 0 for a new member, else 1.
    """

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
    classic: ClassicMemberMetadata | None = None

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
    """The records of a step, the reply, and the member, as it is afterwards unless the records remove it.

    `regexes` are the regular expressions that must be matched against the topics next; none if nothing must be.
    """

    records: tuple[Record, ...]
    reply: HeartbeatReply
    member: ConsumerGroupMember
    regexes: tuple[str, ...] = ()


def is_blank(text: str) -> bool:
    """Return whether a string is empty or has nothing but blanks, which counts as empty."""
    return not text.strip()


def decide_heartbeat(
    group: ConsumerGroup,
    beat: Heartbeat,
    settings: Settings,
    find_topic: FindTopic,
    now_ms: int,
    is_stale: bool,
    newest_topics: int = -1,
    keeps_target: bool = False,
) -> Steps[Decision | Refusal | None]:
    """Decide on a heartbeat, in steps. Return None if the group has changed between the steps: then decide again.

    `is_stale`: the topics may have changed since the group's hash was computed. `newest_topics`: the version of the
    cluster's metadata that has the topics that were created last. `keeps_target`: compute no target, and leave the
    member as it is if one is due.
    """
    if len(group.members) >= settings.max_size and beat.member_id not in group.members:
        return Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {settings.max_size} members.",
        )
    found = _find_member(group, beat)
    if isinstance(found, Refusal):
        return found
    version = group.version
    step = _Step(group, found, settings, find_topic)
    step.update_member(beat)
    new_regex = step.find_new_regex()
    if new_regex:
        yield PATTERN_BYTE_US * min(len(new_regex), MAX_BYTES)
        fault = find_fault(group, new_regex, settings.max_regex_bytes)
        if fault:
            return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, fault)
    regexes = step.find_regexes_to_resolve(newest_topics, now_ms)
    step.update_regex()
    if step.must_bump or is_stale:
        yield from step.update_epoch()
    if not keeps_target and step.needs_target(now_ms):
        yield from step.update_target(now_ms)
    is_known = (keeps_target and step.is_behind) or (yield from step.reconcile(beat.owned))
    if group.version != version:
        return None
    if not is_known:
        return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"The consumer group member is in a unknown state. {_REJOIN}")
    assigned = step.member.current.assigned
    shows_all = beat.member_epoch == 0 or beat.is_full or assigned != found.current.assigned
    reply = HeartbeatReply(
        step.member.member_id, step.member.epoch, settings.heartbeat_interval_ms, assigned if shows_all else None
    )
    return Decision(tuple(step.records), reply, step.member, regexes)


def decide_static_leave(group: ConsumerGroup, beat: Heartbeat) -> Decision | Refusal:
    """Decide on a heartbeat with the epoch -2: a static member leaves the group and will come back."""
    found = find_leaving(group, beat)
    if isinstance(found, Refusal):
        return found
    kept = {topic_id: dict.fromkeys(indexes, 0) for topic_id, indexes in found.current.assigned.items()}
    current = found.current._replace(member_epoch=LEAVE_STATIC_EPOCH, assigned=kept, pending_revocation={})
    key = ConsumerGroupKey(KINDS.CURRENT_MEMBER_ASSIGNMENT, group.group_id, found.member_id)
    reply = HeartbeatReply(beat.member_id, beat.member_epoch)
    return Decision(((key, current),), reply, found._replace(current=current))


def decide_removal(
    group: ConsumerGroup, members: Sequence[ConsumerGroupMember], find_topic: FindTopic
) -> Steps[tuple[Record, ...] | None]:
    """Return the records that remove members; None if the group has changed between the steps.

    The next heartbeat of another member computes the assignment anew.
    """
    version = group.version
    leaving = Counter(name for member in members for name in member.metadata.topic_names)
    regexes = Counter(member.metadata.topic_regex for member in members if member.metadata.topic_regex)
    left_regexes = [regex for regex, count in regexes.items() if group.regex_subscribers[regex] == count]
    metadata_hash = group.metadata_hash
    if left_regexes or any(group.topic_subscribers[name] == count for name, count in leaving.items()):
        metadata_hash = yield from compute_metadata_hash(_remaining_topics(group, leaving, left_regexes), find_topic)
    yield ASSIGNED_TOPIC_US * len(leaving)
    if group.version != version:
        return None
    bump = ConsumerGroupMetadata(group.epoch + 1, metadata_hash)
    tombstones = [record for member in members for record in _member_tombstones(group, member.member_id)]
    tombstones += [regex_record(group, regex, None) for regex in left_regexes]
    return (*tombstones, (ConsumerGroupKey(KINDS.METADATA, group.group_id), bump))


def _remaining_topics(group: ConsumerGroup, leaving: Counter[str], left_regexes: Collection[str]) -> Iterator[str]:
    """Yield the topics to which a group subscribes without some subscriptions. A topic may occur twice.

    `leaving` has the number of members that no longer name a topic. No member has one of `left_regexes` any more.
    """
    for name, count in group.topic_subscribers.items():
        if count > leaving[name]:
            yield name
    for regex, resolved in group.regexes.items():
        if regex not in left_regexes:
            yield from resolved.topics


class _Step:
    """The records of one heartbeat so far, and its member after them."""

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
        self.has_changed = False
        """Whether the subscription of the member has changed."""
        self.must_bump = False
        """Whether a group epoch must begin now. A change to an expression without known topics begins none."""
        self._left_regexes: Collection[str] = ()
        instance_id = member.metadata.instance_id
        holder = None if instance_id is None else group.static_members.get(instance_id)
        # The place of a static member, also of one that returns with the same id: no member of a group has epoch 0.
        self._replaced = holder if member.epoch == 0 else None
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
        self.has_changed = self.must_bump = metadata.topic_names != before.topic_names
        if metadata != before:
            self._add(KINDS.MEMBER_METADATA, metadata)

    def find_new_regex(self) -> str | None:
        """Return the regular expression of the member if no member of the group has it yet."""
        regex = self.member.metadata.topic_regex
        is_new = regex and regex != self._before.metadata.topic_regex and not self._group.regex_subscribers[regex]
        return regex if is_new else None

    def update_regex(self) -> None:
        """Find out whether another regular expression takes effect now, and remove one that no member has any more."""
        group, old, new = self._group, self._before.metadata.topic_regex, self.member.metadata.topic_regex
        if old == new:
            return
        self.has_changed = True
        self.must_bump = self.must_bump or (new in group.regexes if new else bool(old))
        if old and group.regex_subscribers[old] == 1:
            self._left_regexes = (old,)
            self.records.append(regex_record(group, old, None))

    def find_regexes_to_resolve(self, newest_topics: int, now_ms: int) -> tuple[str, ...]:
        """Return all regular expressions of the group if they must be matched against the topics of the cluster."""
        group = self._group
        old, new = self._before.metadata.topic_regex, self.member.metadata.topic_regex
        if not new and not group.regex_subscribers:
            return ()
        subscribers = group.regex_subscribers
        if old != new:
            subscribers = subscribers.copy()
            subscribers.subtract((old,) if old else ())
            subscribers.update((new,) if new else ())
            subscribers = +subscribers
        interval_ms = self._settings.regex_refresh_interval_ms
        is_due = must_resolve(group, subscribers.keys(), newest_topics, interval_ms, now_ms)
        return tuple(subscribers) if is_due else ()

    def update_epoch(self) -> Steps[None]:
        """Begin a group epoch if the subscribed names or their topics have changed."""
        group = self._group
        metadata_hash = yield from compute_metadata_hash(self._subscribed_names(), self._find_topic)
        if self.must_bump or metadata_hash != group.metadata_hash:
            self._epoch += 1
            self._add(KINDS.METADATA, ConsumerGroupMetadata(self._epoch, metadata_hash))
        if group.has_partition_metadata:
            self.records.append((ConsumerGroupKey(KINDS.PARTITION_METADATA, group.group_id), None))

    @property
    def is_behind(self) -> bool:
        """Whether the target assignment is that of an earlier group epoch."""
        return self._epoch > self._group.assignment_epoch

    def needs_target(self, now_ms: int) -> bool:
        """Return whether a target assignment of the group epoch is due: not if the last one was computed recently."""
        group, interval_ms = self._group, self._settings.assignment_interval_ms
        is_recent = group.assignment_ms and interval_ms and now_ms < group.assignment_ms + interval_ms
        return self.is_behind and not is_recent

    def update_target(self, now_ms: int) -> Steps[None]:
        """Compute the target assignment of the group epoch."""
        members = {
            member_id: member for member_id, member in self._group.members.items() if member_id != self._replaced
        }
        members[self.member.member_id] = self.member
        before = self._previous_targets()
        targets = yield from compute_targets(self._group, members, before, self._settings, self._find_topic)
        for member_id in members:
            wanted = targets.get(member_id, {})
            if self._group.targets.get(member_id) != wanted:
                self._add(KINDS.TARGET_ASSIGNMENT_MEMBER, TargetAssignment(wanted), member_id)
        self._add(KINDS.TARGET_ASSIGNMENT_METADATA, TargetAssignmentMetadata(self._epoch, now_ms))
        self._target = Target(self._epoch, targets.get(self.member.member_id, {}))

    def reconcile(self, owned: Assignment | None) -> Steps[bool]:
        """Move the member towards its target. Return False if its state is unknown."""
        member, target = self.member, self._target
        if member.is_reconciled_to(target.epoch) and not self.has_changed:
            return True
        names = self._group.topics_of(self.member.metadata)
        topic_ids = {topic.topic_id for topic in (yield from find_topics(names, self._find_topic))}
        current = reconcile(member.current, target, topic_ids, owned, self.has_changed, self._group.partition_epoch)
        partitions = sum(map(len, (*target.partitions.values(), *member.current.assigned.values())))
        yield ASSIGNED_PARTITION_US * partitions
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

    def _subscribed_names(self) -> Iterator[str]:
        """Yield the names of topics to which the group subscribes after this heartbeat. A name may occur twice."""
        known = self._group.members.get(self._replaced or self.member.member_id)
        left = set(() if known is None else known.metadata.topic_names).difference(self.member.metadata.topic_names)
        yield from _remaining_topics(self._group, Counter(left), self._left_regexes)
        yield from self.member.metadata.topic_names

    def _add(self, kind: ConsumerGroupRecordType, value: ConsumerGroupValue, member_id: str | None = None) -> None:
        of_group = kind in (KINDS.METADATA, KINDS.TARGET_ASSIGNMENT_METADATA)
        name = "" if of_group else member_id or self.member.member_id
        self.records.append((ConsumerGroupKey(kind, self._group.group_id, name), value))


def compute_targets(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerGroupMember],
    targets: Mapping[str, Assignment],
    settings: Settings,
    find_topic: FindTopic,
) -> Steps[dict[str, Assignment]]:
    """Return the target of each member, by the assignor that most members name.

    `group` has the topics of the regular expressions.
    """
    counts: dict[bytes, int] = {}
    by_subscription: dict[tuple[tuple[str, ...], str | None], dict[bytes, None]] = {}
    subscribers: dict[str, Subscriber] = {}
    for member_id, member in members.items():
        subscription = member.metadata.topic_names, member.metadata.topic_regex or None
        if subscription not in by_subscription:
            found = yield from find_topics(group.topics_of(member.metadata), find_topic)
            by_subscription[subscription] = {topic.topic_id: None for topic in found}
            counts.update((topic.topic_id, topic.partition_count) for topic in found)
        topic_ids = by_subscription[subscription]
        subscribers[member_id] = Subscriber(member.metadata.instance_id, topic_ids, targets.get(member_id, {}))
        yield ASSIGNED_TOPIC_US
    assignor = preferred_assignor(members.values()) or settings.assignors[0]
    # As in Kafka, members with both names and a regular expression count as different.
    is_homogeneous = len(by_subscription) == 1 and not all(*by_subscription)
    return (yield from ASSIGNORS[assignor](subscribers, counts, is_homogeneous))


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
    """Return the member that takes over the place of a static member that has left for a while.

    A member of the classic protocol does not announce that: it takes over, and is taken over, at any time.
    """
    if holder.epoch != LEAVE_STATIC_EPOCH and holder.metadata.classic is None and beat.classic is None:
        return Refusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {beat.member_id} with instance id {instance_id} cannot join the group because the instance "
            f"id is owned by {holder.member_id} member.",
        )
    current = holder.current._replace(member_epoch=0, previous_member_epoch=0)
    return ConsumerGroupMember(beat.member_id, holder.metadata, current)


def find_leaving(group: ConsumerGroup, beat: Heartbeat) -> ConsumerGroupMember | Refusal:
    """Return the member that leaves with a heartbeat."""
    if beat.instance_id is not None:
        return _find_static(group, beat, beat.instance_id)
    return group.members.get(beat.member_id) or _unknown_member(group, beat.member_id)


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
    if sent in (0, current.member_epoch) or beat.classic is not None:
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
        classic=beat.classic,
    )


def _member_tombstones(group: ConsumerGroup, member_id: str) -> Iterable[Record]:
    kinds = (KINDS.CURRENT_MEMBER_ASSIGNMENT, KINDS.TARGET_ASSIGNMENT_MEMBER, KINDS.MEMBER_METADATA)
    return [(ConsumerGroupKey(kind, group.group_id, member_id), None) for kind in kinds]


_FRESH: Final = MemberMetadata(None, None, "", "", (), "", -1, None)
_REJOIN: Final = "The member must abandon all its partitions and rejoin."
