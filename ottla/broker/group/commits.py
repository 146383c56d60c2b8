"""Committed offsets: plain commits, commits in transactions, fetches. shell

A transactional commit is a transactional batch of the producer in `__consumer_offsets`; it stays pending until the
producer's marker arrives in that partition (KIP-447).
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.cluster.sinks import TransactionMarker
from ottla.broker.group.directory import GroupDirectory
from ottla.broker.group.log import Producer, Replayed, client_error, offsets_batch
from ottla.broker.group.members import Caller
from ottla.broker.group.offsets import Key
from ottla.broker.group.states import GroupState
from ottla.broker.group.store import Entry
from ottla.broker.ports.clock import Clock
from ottla.protocol.errors import ErrorCode
from ottla.protocol.state_records import OffsetKey, OffsetValue


class CommitRow(NamedTuple):
    """One offset to commit; `expire_ms` is wall time, -1 for the broker's retention."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    expire_ms: int = -1


class FetchedOffset(NamedTuple):
    """The committed offset of one partition; offset and leader epoch are -1 when there is none."""

    error: ErrorCode
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""


class OffsetCommits:
    """The offsets of every group of one broker."""

    def __init__(self, directory: GroupDirectory, clock: Clock, metadata_max_bytes: int) -> None:
        self._directory = directory
        self._clock = clock
        self._metadata_max_bytes = metadata_max_bytes

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group's offsets."""
        return self._directory.partition_of(group_id)

    def commit(self, caller: Caller, rows: Sequence[CommitRow], producer: Producer | None = None) -> list[ErrorCode]:
        """Commit offsets of a group, inside the producer's transaction when one is given; an error per row."""
        entry, error = self._committer(caller, producer is not None)
        if error or entry is None:
            return [error] * len(rows)
        too_long = [len(row.metadata.encode()) > self._metadata_max_bytes for row in rows]
        kept = [row for row, long in zip(rows, too_long, strict=True) if not long]
        error = self._append(entry, kept, producer) if kept else ErrorCode.NONE
        return [ErrorCode.OFFSET_METADATA_TOO_LARGE if long else error for long in too_long]

    def fetch(
        self, group_id: str, keys: Sequence[Key] | None, require_stable: bool
    ) -> tuple[ErrorCode, dict[Key, FetchedOffset]]:
        """The committed offsets of `keys`, or of all keys when None.

        With `require_stable` a key that an open transaction covers is UNSTABLE_OFFSET_COMMIT.
        """
        error = self._directory.unavailable(group_id)
        if error:
            return error, {}
        entry = self._directory.find(group_id)
        if entry is None:
            return ErrorCode.NONE, {key: FetchedOffset(ErrorCode.NONE) for key in keys or ()}
        asked = sorted(entry.offsets.keys()) if keys is None else keys
        found = {key: _fetched(entry, key, require_stable) for key in asked}
        if keys is None:
            found = {key: row for key, row in found.items() if row.error or row.offset >= 0}
        return ErrorCode.NONE, found

    def write_marker(self, index: int, marker: TransactionMarker) -> ErrorCode:
        """Append a marker to an offsets partition and settle the pending offsets of its producer."""
        if index in self._directory.loading:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        result = self._directory.partition(index).append_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.commit,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        if not result.error:
            self._directory.store.end_transaction(index, marker.producer_id, marker.commit)
        return result.error

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: tombstones for its offsets in every group."""
        for entry in self._directory.store.entries.values():
            keys = [key for key in entry.offsets.keys() if key[0] == topic]  # noqa: SIM118 - a method, not a dict
            if keys:
                rows = [(OffsetKey(entry.group.group_id, *key), None) for key in keys]
                self._log(entry, rows, None)

    def _committer(self, caller: Caller, transactional: bool) -> tuple[Entry | None, ErrorCode]:
        error = self._directory.unavailable(caller.group_id)
        if error:
            return None, error
        entry = self._directory.find(caller.group_id)
        if entry is None:
            if caller.generation >= 0:
                return None, ErrorCode.ILLEGAL_GENERATION
            return self._directory.obtain(caller.group_id), ErrorCode.NONE
        return entry, self._commit_error(entry, caller, transactional)

    def _commit_error(self, entry: Entry, caller: Caller, transactional: bool) -> ErrorCode:
        """`ClassicGroup.validateOffsetCommit` of Kafka 4.3.1."""
        group = entry.group
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if caller.generation < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if caller.is_member:
            error = group.member_error(caller.member_id, caller.group_instance_id)
            if error:
                return error
            if caller.generation != group.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = group.members.get(caller.member_id)
        if member is not None:
            member.touch(self._clock.monotonic_ms())
        return ErrorCode.NONE

    def _append(self, entry: Entry, rows: Sequence[CommitRow], producer: Producer | None) -> ErrorCode:
        now_ms = self._clock.now_ms()
        group_id = entry.group.group_id
        values: list[tuple[OffsetKey, OffsetValue | None]] = [
            (
                OffsetKey(group_id, row.topic, row.partition),
                OffsetValue(row.offset, row.leader_epoch, row.metadata, now_ms, row.expire_ms),
            )
            for row in rows
        ]
        return self._log(entry, values, producer)

    def _log(
        self, entry: Entry, rows: Sequence[tuple[OffsetKey, OffsetValue | None]], producer: Producer | None
    ) -> ErrorCode:
        """Log first; what is in the log is applied as a replay would apply it."""
        batch = offsets_batch(rows, self._clock.now_ms(), producer)
        result = self._directory.partition(entry.index).append_own(batch)
        if result.error:
            return client_error(result.error)
        producer_id = -1 if producer is None else producer.producer_id
        now_ms = self._clock.monotonic_ms()
        for delta, (key, value) in enumerate(rows):
            said = Replayed(producer_id, result.base_offset + delta, key, value)
            self._directory.store.apply(entry.index, said, now_ms)
        return ErrorCode.NONE


def _fetched(entry: Entry, key: Key, require_stable: bool) -> FetchedOffset:
    if require_stable and entry.offsets.is_unstable(key):
        return FetchedOffset(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = entry.offsets.committed.get(key)
    if committed is None:
        return FetchedOffset(ErrorCode.NONE)
    value = committed.value
    return FetchedOffset(ErrorCode.NONE, value.offset, value.leader_epoch, value.metadata)
