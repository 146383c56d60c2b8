"""A member of a consumer group, and its reconciliation with the target assignment. pure

A member owns what is assigned to it and what it has yet to give up (pending revocation). It gives up first: until it no
longer reports what it must give up, its epoch and the rest stay. A partition is free when no member owns it, so no two
members own one partition. A member that waits for partitions of others asks again with each heartbeat.

| state                | ends when                                                       |
|----------------------|-----------------------------------------------------------------|
| STABLE               | the target assignment has another epoch                         |
| UNREVOKED_PARTITIONS | the member reports that it owns none of what it must give up    |
| UNRELEASED_PARTITIONS| other members have given up all that the target wants to give it|

Source: `MemberState`, `ConsumerGroupMember`, `CurrentAssignmentBuilder` of Kafka 4.3.1.
"""

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.protocol.internal_topics.consumer_group_records import (
    Assignment,
    CurrentAssignment,
    MemberMetadata,
    OwnedPartitions,
)

LEAVE_EPOCH: Final = -1
"""Member epoch of a heartbeat that leaves the group."""
LEAVE_STATIC_EPOCH: Final = -2
"""Member epoch of a static member that leaves the group and will come back."""

PartitionEpoch = Callable[[bytes, int], int]
"""Return the epoch of the owner of a partition, by topic id and index; -1 if it has none."""


class MemberState(IntEnum):
    """State of a member, as its record has it."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


NOT_ASSIGNED: Final = CurrentAssignment(0, -1, MemberState.STABLE, {}, {})
"""What a member has that has just joined."""


class ConsumerGroupMember(NamedTuple):
    """A member: its id and the values of its last two records."""

    member_id: str
    metadata: MemberMetadata
    current: CurrentAssignment = NOT_ASSIGNED

    @property
    def epoch(self) -> int:
        return self.current.member_epoch

    @property
    def state(self) -> MemberState:
        return MemberState(self.current.state) if self.current.state <= 2 else MemberState.UNKNOWN

    def owned_since(self, epoch: int, topic_id: bytes, index: int) -> bool:
        """Return whether the member owns a partition that it got at this epoch or before (KIP-1251)."""
        owned = self.current.assigned.get(topic_id, {}), self.current.pending_revocation.get(topic_id, {})
        return any(index in epochs and epochs[index] <= epoch for epochs in owned)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Return whether the member has all that the target assignment of this epoch gives it, and nothing else."""
        return self.current.state == MemberState.STABLE and self.epoch == target_epoch


class Target(NamedTuple):
    """The target assignment of one member."""

    epoch: int
    partitions: Assignment


def owns_any(owned: Assignment | None, partitions: OwnedPartitions) -> bool:
    """Return whether a member owns one of the partitions; also if it did not say what it owns."""
    if owned is None:
        return True
    return any(not partitions[topic_id].keys().isdisjoint(owned.get(topic_id, ())) for topic_id in partitions)


def owns_only(owned: Assignment | None, partitions: OwnedPartitions) -> bool:
    """Return whether a member has said what it owns, and all of it is among the partitions."""
    return owned is not None and all(
        index in partitions.get(topic_id, ()) for topic_id, indexes in owned.items() for index in indexes
    )


def reconcile(
    current: CurrentAssignment,
    target: Target,
    topic_ids: Collection[bytes],
    owned: Assignment | None,
    has_subscription_changed: bool,
    partition_epoch: PartitionEpoch,
) -> CurrentAssignment | None:
    """Return what a member has next. None if its state is unknown, so that it must begin again with nothing.

    `topic_ids` are the topics to which it is subscribed, `owned` what it reports to own (None: nothing reported).
    """
    match current.state:
        case MemberState.STABLE:
            if current.member_epoch != target.epoch:
                return _move_to_target(current, target, topic_ids, owned, partition_epoch)
            return _drop_other_topics(current, topic_ids, owned) if has_subscription_changed else current
        case MemberState.UNREVOKED_PARTITIONS:
            if owns_any(owned, current.pending_revocation):
                return _drop_other_topics(current, topic_ids, owned) if has_subscription_changed else current
            return _move_to_target(current, target, topic_ids, owned, partition_epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return _move_to_target(current, target, topic_ids, owned, partition_epoch)
    if owned is None or owned:
        return None
    return _move_to_target(
        current._replace(member_epoch=target.epoch), target, topic_ids, owned, partition_epoch
    )._replace(previous_member_epoch=current.member_epoch)


def _move_to_target(
    current: CurrentAssignment,
    target: Target,
    topic_ids: Collection[bytes],
    owned: Assignment | None,
    partition_epoch: PartitionEpoch,
) -> CurrentAssignment:
    """Return the next step towards the target: give up what it does not have, then take what is free."""
    wanted = {topic_id: indexes for topic_id, indexes in target.partitions.items() if topic_id in topic_ids}
    kept: dict[bytes, dict[int, int]] = {}
    surplus: dict[bytes, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        indexes = set(wanted.get(topic_id, ()))
        _put(kept, topic_id, {index: epoch for index, epoch in epochs.items() if index in indexes})
        _put(surplus, topic_id, {index: epoch for index, epoch in epochs.items() if index not in indexes})
    if surplus and owns_any(owned, surplus):
        return CurrentAssignment(
            current.member_epoch, current.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, surplus
        )
    assigned, is_complete = _take_free(kept, target.epoch, wanted, current.pending_revocation, partition_epoch)
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return CurrentAssignment(target.epoch, current.member_epoch, state, assigned, {})


def _take_free(
    kept: OwnedPartitions,
    target_epoch: int,
    wanted: Assignment,
    pending_revocation: OwnedPartitions,
    partition_epoch: PartitionEpoch,
) -> tuple[OwnedPartitions, bool]:
    """Return `kept` with the wanted partitions that no other member owns, and whether these are all that are wanted."""
    assigned: dict[bytes, Mapping[int, int]] = {}
    is_complete = True
    for topic_id in [*kept, *(topic_id for topic_id in wanted if topic_id not in kept)]:
        epochs = dict(kept.get(topic_id, {}))
        for index in wanted.get(topic_id, ()):
            if index in epochs:
                continue
            if partition_epoch(topic_id, index) == -1 or index in pending_revocation.get(topic_id, ()):
                epochs[index] = target_epoch
            else:
                is_complete = False
        if epochs:
            assigned[topic_id] = epochs
    return assigned, is_complete


def _drop_other_topics(
    current: CurrentAssignment, topic_ids: Collection[bytes], owned: Assignment | None
) -> CurrentAssignment:
    """Return what a member has after a change of its subscription: topics that it left must be given up."""
    kept = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id in topic_ids}
    # As in Kafka, a member that no longer has topics counts as changed, even if it had no partitions.
    if len(kept) == len(current.assigned) and (topic_ids or current.pending_revocation):
        return current
    pending = {topic_id: dict(epochs) for topic_id, epochs in current.pending_revocation.items()}
    for topic_id, epochs in current.assigned.items():
        if topic_id not in kept:
            pending.setdefault(topic_id, {}).update(epochs)
    current = current._replace(previous_member_epoch=current.member_epoch, assigned=kept)
    if not owns_any(owned, pending):
        return current
    return current._replace(state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=pending)


def _put(assignment: dict[bytes, dict[int, int]], topic_id: bytes, epochs: dict[int, int]) -> None:
    if epochs:
        assignment[topic_id] = epochs
