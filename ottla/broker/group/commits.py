"""Committed offsets: plain commits, commits in transactions, fetches. shell

A transactional commit is a transactional batch of the producer in `__consumer_offsets`. It stays pending until the
producer's marker is appended to that partition (KIP-447). `GroupMetadataManager.log_offsets` appends the record and
applies it to `GroupOffsets`; the response waits until the log is durable.

Source: `org.apache.kafka.coordinator.group.OffsetMetadataManager` of Kafka 4.3.1.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.broker.coordinator.shard import StateLog
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.members import Caller
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.offsets import GroupOffsets
from ottla.broker.group.states import ClassicGroupState
from ottla.broker.ports.clock import Clock
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.internal_topics.offsets_records import OffsetKey, OffsetValue
from ottla.protocol.values import NO_PARTITION_LEADER_EPOCH, ProducerIdAndEpoch, TopicPartition


class CommitRow(NamedTuple):
    """An offset to commit; `expire_ms` is wall time, -1 for the broker's retention.

    `topic_id` is None if there is no such topic.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    expire_ms: int = -1
    topic_id: bytes | None = None


class FetchedOffset(NamedTuple):
    """The committed offset of one partition; offset and leader epoch are -1 if none is committed."""

    error: ErrorCode
    offset: int = -1
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    metadata: str = ""


_EMPTY: Final = ClassicGroupState.EMPTY
NOTHING_COMMITTED: Final = FetchedOffset(NO_ERROR)
UNSTABLE: Final = FetchedOffset(ErrorCode.UNSTABLE_OFFSET_COMMIT)


class OffsetCommits:
    """The committed offsets of every group of one broker."""

    def __init__(self, manager: GroupMetadataManager, clock: Clock, metadata_max_chars: int) -> None:
        self._manager = manager
        self.partition_for = manager.partition_for
        self._clock = clock
        self._metadata_max_chars = metadata_max_chars

    def log_of(self, group_id: str) -> StateLog | None:
        """Return the log that holds the group's offsets; None if its partition is not loaded."""
        shard = self._manager.shards.get(self.partition_for(group_id))
        return None if shard is None else shard.log

    def commit(
        self,
        caller: Caller,
        rows: Sequence[CommitRow],
        producer: ProducerIdAndEpoch | None = None,
        knows_epochs: bool = False,
    ) -> list[ErrorCode]:
        """Commit offsets of a group, in the producer's transaction if one is given. Return an error for each row.

        A group that does not exist is created if the caller gives no generation. `knows_epochs`: the request's version
        has the epochs of members of the consumer protocol.
        """
        metadata, error = self._manager.find(caller.group_id)
        if not error:
            if metadata is None:
                if caller.generation >= 0:
                    error = ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION
            elif isinstance(metadata.group, ConsumerGroup):
                error = self._member_commit_error(metadata.group, caller, rows, producer is not None, knows_epochs)
            else:
                error = self._commit_error(metadata.group, caller, producer is not None)
        if error:
            return [error] * len(rows)
        now_ms = self._clock.now_ms()
        kept: list[tuple[OffsetKey, OffsetValue | None]] = []
        errors = []
        for topic, partition, offset, leader_epoch, committed_metadata, expire_ms, topic_id in rows:
            too_long = self._is_too_long(committed_metadata)
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE if too_long else NO_ERROR)
            if not too_long:
                key = OffsetKey(caller.group_id, topic, partition)
                if (producer is not None and not knows_epochs) or expire_ms != -1:
                    topic_id = None  # as in Kafka 4.3.1: not in transactions, and not in values of version 1
                value = OffsetValue(offset, leader_epoch, committed_metadata, now_ms, expire_ms, topic_id)
                kept.append((key, value))
        if kept:
            index = self._manager.partition_for(caller.group_id) if metadata is None else metadata.store.index
            error = self._manager.log_offsets(index, kept, producer)
        elif metadata is None:
            self._manager.obtain(caller.group_id)
        return [before or error for before in errors] if error else errors

    def of_group(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> tuple[ErrorCode, GroupOffsets]:
        """Return the offsets of a group, which are empty if it does not exist.

        A member of the consumer protocol gives its id and epoch, which must be right (`validateOffsetFetch`).
        """
        metadata, error = self._manager.find(group_id)
        names_member = member_id is not None or member_epoch >= 0
        if names_member and metadata is not None and isinstance(metadata.group, ConsumerGroup):
            member = metadata.group.members.get(member_id or "")
            if member is None:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            elif member.epoch != member_epoch:
                is_classic = member.metadata.classic is not None
                error = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
        return error, GroupOffsets() if error or metadata is None else metadata.offsets

    def _member_commit_error(
        self, group: ConsumerGroup, caller: Caller, rows: Sequence[CommitRow], transactional: bool, knows_epochs: bool
    ) -> ErrorCode:
        """Validate a commit to a group of the consumer protocol (`ConsumerGroup.validateOffsetCommit`)."""
        if caller.generation < 0 and group.is_empty:
            return NO_ERROR
        if transactional and caller.generation == -1 and not caller.is_member:
            return NO_ERROR
        member = group.members.get(caller.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_classic = member.metadata.classic is not None
        if not transactional and not knows_epochs and not is_classic:
            return ErrorCode.UNSUPPORTED_VERSION
        if caller.generation == member.epoch:
            return NO_ERROR
        has_generation = is_classic or not knows_epochs
        stale = ErrorCode.ILLEGAL_GENERATION if has_generation else ErrorCode.STALE_MEMBER_EPOCH
        if caller.generation > member.epoch:
            return stale
        is_owner = all(
            row.topic_id is not None and member.owned_since(caller.generation, row.topic_id, row.partition)
            for row in rows
            if not self._is_too_long(row.metadata)
        )
        return NO_ERROR if is_owner else stale

    def _commit_error(self, group: ClassicGroup, caller: Caller, transactional: bool) -> ErrorCode:
        """Validate a commit (`ClassicGroup.validateOffsetCommit`). A plain commit also extends the session."""
        if caller.generation < 0 and group.state is _EMPTY:
            return NO_ERROR
        if caller.is_member:
            error = group.roster.error(caller.member_id, caller.group_instance_id)
            if error:
                return error
            if caller.generation != group.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional:
            if group.state is ClassicGroupState.COMPLETING_REBALANCE:
                return ErrorCode.REBALANCE_IN_PROGRESS
            group.members[caller.member_id].touch(self._clock.monotonic_ms())
        return NO_ERROR

    def _is_too_long(self, metadata: str) -> bool:
        """Return whether the metadata is larger than offset.metadata.max.bytes, counted in UTF-16 units as Kafka
        does."""
        if 2 * len(metadata) <= self._metadata_max_chars:
            return False
        return len(metadata.encode("utf-16-le")) // 2 > self._metadata_max_chars


def fetch_offset(
    offsets: GroupOffsets, key: TopicPartition, require_stable: bool, topic_id: bytes | None = None
) -> FetchedOffset:
    """Return the committed offset of (topic, partition); UNSTABLE_OFFSET_COMMIT if `require_stable` and a transaction
    is open. With a topic id, an offset that was committed for another topic of this name counts as none."""
    if require_stable and offsets.is_unstable(key):
        return UNSTABLE
    committed = offsets.get(key)
    if committed is None:
        return NOTHING_COMMITTED
    value = committed.value
    if topic_id is not None and value.topic_id not in (None, topic_id):
        return NOTHING_COMMITTED
    return FetchedOffset(NO_ERROR, value.offset, value.leader_epoch, value.metadata)
