"""A consumer group of the consumer protocol: the state that its records give. pure

Only `apply` changes it, with the records that a decision returned and the log has, or those of a replay. A session or
rebalance deadline is in memory only: it is set by the coordinator, and a replay begins them anew.

Source: `ConsumerGroup`, `ModernGroup`, `GroupMetadataManager.replay` of Kafka 4.3.1.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final

from ottla.broker.group.consumer.members import LEAVE_EPOCH, ConsumerGroupMember, MemberState, Target
from ottla.broker.group.members import NEVER_MS
from ottla.broker.turns import Gate
from ottla.protocol.internal_topics.consumer_group_records import (
    Assignment,
    ClassicMemberMetadata,
    ConsumerGroupKey,
    ConsumerGroupMetadata,
    ConsumerGroupRecordType,
    ConsumerGroupValue,
    CurrentAssignment,
    MemberMetadata,
    OwnedPartitions,
    PartitionMetadata,
    ResolvedRegularExpression,
    TargetAssignment,
    TargetAssignmentMetadata,
)

Record = tuple[ConsumerGroupKey, ConsumerGroupValue | None]
"""A record of a consumer group; None is a tombstone."""

_LEFT: Final = CurrentAssignment(LEAVE_EPOCH, LEAVE_EPOCH, MemberState.STABLE, {}, {})
_UNKNOWN_SUBSCRIPTION: Final = MemberMetadata(None, None, "", "", (), "", -1, None)


class ConsumerGroupState(Enum):
    """State of a group, with the name that ListGroups and ConsumerGroupDescribe show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class IllegalRecord(RuntimeError):
    """A record that cannot follow the state of its group: a bug, or a log that something else wrote."""


class ConsumerGroup:
    """The members of one group, their targets, and who owns which partition."""

    protocol_type: Final = "consumer"
    is_of_consumers: Final = True

    __slots__ = (
        "_matched",
        "_owners",
        "assignment_epoch",
        "assignment_ms",
        "classic_count",
        "classic_protocols",
        "due_ms",
        "epoch",
        "gate",
        "group_id",
        "has_partition_metadata",
        "is_resolving",
        "joins",
        "members",
        "metadata_hash",
        "rebalances",
        "regex_subscribers",
        "regexes",
        "resolve_after_ms",
        "sessions",
        "static_members",
        "syncs",
        "targets",
        "topic_subscribers",
        "topics_version",
        "version",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 1
        self.assignment_ms = 0
        self.members: dict[str, ConsumerGroupMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id to member id."""
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegularExpression] = {}
        """The resolved regular expressions."""
        self.regex_subscribers: Counter[str] = Counter()
        """The number of members that subscribe to each regular expression, resolved or not."""
        self._matched: dict[str, frozenset[str]] = {}
        """The topics of each resolved regular expression."""
        self.has_partition_metadata = False
        """Whether the log has a record of Kafka 4.0 that must get its tombstone."""
        self.topic_subscribers: Counter[str] = Counter()
        """The number of members that name each topic."""
        self.classic_count = 0
        """The number of members of the classic protocol."""
        self.classic_protocols: Counter[str] = Counter()
        """The number of these members that support each of their protocols (assignors)."""
        self._owners: dict[bytes, dict[int, int]] = {}
        # From here on in memory only.
        self.sessions: dict[str, float] = {}
        """Member id to the monotonic time at which its session ends."""
        self.rebalances: dict[str, tuple[float, int]] = {}
        """Id of a member that must give up partitions, to the time by which it must have done so, and its epoch."""
        self.joins: dict[str, float] = {}
        """Id of a member of the classic protocol to the time by which it must send JoinGroup."""
        self.syncs: dict[str, float] = {}
        """Id of a member of the classic protocol to the time by which it must send SyncGroup."""
        self.due_ms = NEVER_MS
        """Not after the earliest of these times."""
        self.version = 0
        """The number of records applied, to detect changes between the steps of a decision."""
        self.gate = Gate()
        """Held while a decision on the group is made in steps."""
        self.topics_version = -1
        """The version of the cluster's metadata with which the hash of the subscribed topics was last compared."""
        self.is_resolving = False
        """Whether the regular expressions are being matched against the topics of the cluster."""
        self.resolve_after_ms = 0
        """The time before which that is not tried again, after a failure."""

    @property
    def preferred_assignor(self) -> str | None:
        """The assignor that most members name; None if no member names one."""
        return preferred_assignor(self.members.values())

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def partition_epoch(self, topic_id: bytes, index: int) -> int:
        """Return the epoch of the member that owns a partition, -1 if none does."""
        owners = self._owners.get(topic_id)
        return -1 if owners is None else owners.get(index, -1)

    def target(self, member_id: str) -> Target:
        """Return the target of a member; one without a target is to have nothing."""
        return Target(self.assignment_epoch, self.targets.get(member_id, {}))

    def supports(self, protocols: Iterable[str]) -> bool:
        """Return whether all members of the classic protocol support one of these protocols."""
        return any(self.classic_protocols[name] == self.classic_count for name in protocols)

    def is_classic_without(self, members: Sequence[ConsumerGroupMember]) -> bool:
        """Return whether only members of the classic protocol are left without some members."""
        leaving = sum(member.metadata.classic is not None for member in members)
        return self.classic_count - leaving == len(self.members) - len(members)

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member names the topic, or a regular expression of one has matched it."""
        return topic in self.topic_subscribers or any(topic in topics for topics in self._matched.values())

    def topics_of(self, subscription: MemberMetadata) -> Iterator[str]:
        """Yield the topics that a member names, and those that its regular expression matched when it was resolved."""
        yield from subscription.topic_names
        resolved = self.regexes.get(subscription.topic_regex or "")
        if resolved is not None:
            yield from resolved.topics

    def has_matched(self, regex: str, topics: Sequence[str]) -> bool:
        """Return whether these are the topics that a regular expression matched."""
        matched = self._matched.get(regex, frozenset())
        return len(matched) == len(topics) and matched.issuperset(topics)

    def apply(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> None:
        """Apply a record. Raises IllegalRecord."""
        self.version += 1
        match value:
            case None:
                self._remove(key)
            case ConsumerGroupMetadata(epoch, metadata_hash):
                self.epoch, self.metadata_hash = epoch, metadata_hash
            case PartitionMetadata():
                self.has_partition_metadata = True
            case MemberMetadata():
                self._update(self._member(key.name)._replace(metadata=value))
            case TargetAssignmentMetadata(epoch, timestamp_ms):
                self.assignment_epoch, self.assignment_ms = epoch, timestamp_ms
            case TargetAssignment(partitions):
                self.targets[key.name] = partitions
            case CurrentAssignment():
                self._update(self._member(key.name)._replace(current=value))
            case ResolvedRegularExpression():
                self.regexes[key.name] = value
                self._matched[key.name] = frozenset(value.topics)

    def start_session(self, member_id: str, end_ms: float) -> None:
        """Let the session of a member end at this monotonic time."""
        self.sessions[member_id] = end_ms
        self.due_ms = min(self.due_ms, end_ms)

    def start_rebalance(self, member: ConsumerGroupMember, end_ms: float) -> None:
        """Let a member be removed at this monotonic time, if it has the same epoch then."""
        self.rebalances[member.member_id] = end_ms, member.epoch
        self.due_ms = min(self.due_ms, end_ms)

    def start_join(self, member: ConsumerGroupMember, now_ms: float) -> None:
        """Let a member of the classic protocol be removed if it does not join again in time, unless it has to
        already."""
        end_ms = self.joins.setdefault(member.member_id, now_ms + member.metadata.rebalance_timeout_ms)
        self.due_ms = min(self.due_ms, end_ms)

    def start_sync(self, member_id: str, end_ms: float) -> None:
        """Let a member of the classic protocol be removed at this monotonic time, if it has not sent SyncGroup."""
        self.syncs[member_id] = end_ms
        self.due_ms = min(self.due_ms, end_ms)

    def end_timers(self, member_id: str) -> None:
        """Forget the times of a member."""
        for ends in (self.sessions, self.rebalances, self.joins, self.syncs):
            ends.pop(member_id, None)

    def late_members(self, now_ms: float) -> list[ConsumerGroupMember]:
        """Return the members with a time that has ended, and find the next time."""
        plain = (self.sessions, self.joins, self.syncs)
        late = {member_id: None for ends in plain for member_id, end_ms in ends.items() if end_ms <= now_ms}
        for member_id, (end_ms, epoch) in [*self.rebalances.items()]:
            if end_ms <= now_ms:
                del self.rebalances[member_id]
                if member_id in self.members and self.members[member_id].epoch == epoch:
                    late[member_id] = None
        all_ends = [*(end_ms for ends in plain for end_ms in ends.values())]
        all_ends += [end_ms for end_ms, _ in self.rebalances.values()]
        self.due_ms = min((end_ms for end_ms in all_ends if end_ms > now_ms), default=NEVER_MS)
        return [self.members[member_id] for member_id in late if member_id in self.members]

    def tombstones(self) -> Iterator[Record]:
        """Yield the tombstones of all records of the group."""
        kinds = ConsumerGroupRecordType
        for kind in (kinds.CURRENT_MEMBER_ASSIGNMENT, kinds.TARGET_ASSIGNMENT_MEMBER):
            yield from ((ConsumerGroupKey(kind, self.group_id, member_id), None) for member_id in self.members)
        yield ConsumerGroupKey(kinds.TARGET_ASSIGNMENT_METADATA, self.group_id), None
        for member_id in self.members:
            yield ConsumerGroupKey(kinds.MEMBER_METADATA, self.group_id, member_id), None
        for regex in self.regexes:
            yield ConsumerGroupKey(kinds.REGULAR_EXPRESSION, self.group_id, regex), None
        yield ConsumerGroupKey(kinds.PARTITION_METADATA, self.group_id), None
        yield ConsumerGroupKey(kinds.METADATA, self.group_id), None

    def _member(self, member_id: str) -> ConsumerGroupMember:
        return self.members.get(member_id) or ConsumerGroupMember(member_id, _UNKNOWN_SUBSCRIPTION)

    def _remove(self, key: ConsumerGroupKey) -> None:
        match key.record_type:
            case ConsumerGroupRecordType.METADATA:
                if self.members or self.targets or self.assignment_epoch != -1:
                    raise IllegalRecord(f"tombstone of group {self.group_id}, which has members or a target assignment")
            case ConsumerGroupRecordType.PARTITION_METADATA:
                self.has_partition_metadata = False
            case ConsumerGroupRecordType.MEMBER_METADATA:
                self._remove_member(key.name)
            case ConsumerGroupRecordType.TARGET_ASSIGNMENT_METADATA:
                if self.targets:
                    raise IllegalRecord(
                        f"tombstone of the target assignment of group {self.group_id}, which has members"
                    )
                self.assignment_epoch, self.assignment_ms = -1, 0
            case ConsumerGroupRecordType.TARGET_ASSIGNMENT_MEMBER:
                self.targets.pop(key.name, None)
            case ConsumerGroupRecordType.CURRENT_MEMBER_ASSIGNMENT:
                if key.name in self.members:
                    self._update(self.members[key.name]._replace(current=_LEFT))
            case ConsumerGroupRecordType.REGULAR_EXPRESSION:
                self.regexes.pop(key.name, None)
                self._matched.pop(key.name, None)

    def _remove_member(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        if member.epoch != LEAVE_EPOCH or member_id in self.targets:
            raise IllegalRecord(f"tombstone of member {member_id} of group {self.group_id}, which has an assignment")
        del self.members[member_id]
        self.end_timers(member_id)
        _recount(self.topic_subscribers, member.metadata.topic_names, ())
        _recount(self.regex_subscribers, _regexes(member), ())
        self._count_classic(member.metadata.classic, -1)
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _update(self, member: ConsumerGroupMember) -> None:
        before = self.members.get(member.member_id)
        if before is None or before.metadata is not member.metadata:
            names = () if before is None else before.metadata.topic_names
            _recount(self.topic_subscribers, names, member.metadata.topic_names)
            _recount(self.regex_subscribers, () if before is None else _regexes(before), _regexes(member))
            self._count_classic(None if before is None else before.metadata.classic, -1)
            self._count_classic(member.metadata.classic, 1)
        if before is not None and before.current is not member.current:
            self._free(before.current.assigned, before.epoch)
            self._free(before.current.pending_revocation, before.epoch)
        if before is None or before.current is not member.current:
            self._occupy(member.current.assigned, member.epoch)
            self._occupy(member.current.pending_revocation, member.epoch)
        self.members[member.member_id] = member
        if member.metadata.instance_id is not None:
            self.static_members[member.metadata.instance_id] = member.member_id

    def _count_classic(self, classic: ClassicMemberMetadata | None, step: int) -> None:
        if classic is not None:
            self.classic_count += step
            for name in {name for name, _ in classic.protocols}:
                self.classic_protocols[name] += step
                if not self.classic_protocols[name]:
                    del self.classic_protocols[name]

    def _free(self, owned: OwnedPartitions, epoch: int) -> None:
        """Remove the owner of partitions, where it is the member with this epoch."""
        for topic_id, indexes in owned.items():
            owners = self._owners.get(topic_id, {})
            for index in indexes:
                if owners.get(index) == epoch:
                    del owners[index]
            if not owners:
                self._owners.pop(topic_id, None)

    def _occupy(self, owned: OwnedPartitions, epoch: int) -> None:
        for topic_id, indexes in owned.items():
            owners = self._owners.setdefault(topic_id, {})
            for index in indexes:
                if index in owners and owners[index] >= epoch:
                    raise IllegalRecord(
                        f"partition {index} of a topic of group {self.group_id} gets an owner of epoch {epoch}, "
                        f"and has one of epoch {owners[index]}"
                    )
                owners[index] = epoch


def _regexes(member: ConsumerGroupMember) -> Sequence[str]:
    """Return the regular expression of a member, if it has one."""
    return (member.metadata.topic_regex,) if member.metadata.topic_regex else ()


def _recount(counts: Counter[str], before: Iterable[str], after: Iterable[str]) -> None:
    """Count what a member subscribes to, instead of what it subscribed to before."""
    if before is after:
        return
    counts.update(after)
    counts.subtract(before)
    for each in before:
        if not counts[each]:
            del counts[each]


def count_epochs(records: Iterable[Record]) -> int:
    """Return the number of group epochs that records begin."""
    return sum(isinstance(value, ConsumerGroupMetadata) for _, value in records)


def preferred_assignor(members: Iterable[ConsumerGroupMember]) -> str | None:
    """Return the assignor that most of the members name; None if no member names one."""
    votes = Counter(member.metadata.server_assignor for member in members if member.metadata.server_assignor)
    return max(votes, key=lambda name: votes[name]) if votes else None
