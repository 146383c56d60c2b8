"""The groups of one partition of `__consumer_offsets` with their offsets, replayed from its log. pure

A shard holds the whole state of its partition, so loading it again replaces one object. `apply` replays a record;
records that the coordinator logs are applied by it too, with two exceptions. A loaded group applies its own next record
(`ClassicGroup.apply_step`), and a new marker ends its transaction (`end_transaction`) without being read back. A
group exists from the first record that names it (also an aborted commit), or from the first request that creates it
(`obtain`), until its tombstone.
"""

from collections import deque
from typing import Final

from ottla.broker.coordinator.shard import StateLog
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup, IllegalRecord
from ottla.broker.group.log import CoordinatorRecord, Value, replay_batch
from ottla.broker.group.offsets import GroupOffsets, OffsetTransaction
from ottla.broker.group.replies import JoinReply, SyncReply
from ottla.broker.ports.clock import Timer
from ottla.broker.turns import Wait
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.internal_topics.consumer_group_records import ConsumerGroupKey, ConsumerGroupRecordType
from ottla.protocol.internal_topics.offsets_records import GroupKey, GroupValue, OffsetKey, OffsetValue

SETTLED_AT_ONCE: Final = 200
"""Number of pending offsets of an ended transaction that are completed in one step."""


class GroupMetadata:
    """A group with its offsets, its waiting handlers, and the timer for its next deadline.

    `ending`: the group is being deleted, and cannot be used until its tombstone is logged. `store` holds the group, as
    long as it has not resigned.
    """

    __slots__ = ("ending", "group", "joins", "offsets", "store", "syncs", "timer", "wake_at_ms")

    def __init__(self, group: ClassicGroup | ConsumerGroup, store: "GroupStore") -> None:
        self.group: ClassicGroup | ConsumerGroup = group
        self.store = store
        self.offsets = GroupOffsets()
        self.ending = False
        self.joins: dict[str, Wait[JoinReply]] = {}
        self.syncs: dict[str, Wait[SyncReply]] = {}
        self.timer: Timer | None = None
        self.wake_at_ms = 0.0

    @property
    def index(self) -> int:
        """The partition of the group."""
        return self.store.index

    @property
    def shard(self) -> "GroupShard":
        """The shard that holds, or held, the group. A group that was read without a log has none."""
        assert isinstance(self.store, GroupShard)
        return self.store

    def cancel_timer(self) -> None:
        """Cancel the timer of the next deadline."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class GroupStore:
    """The groups of partition `index`, by id. `wall_ms` is the time of loading."""

    __slots__ = ("_ended", "_initial_delay_ms", "_open", "_wall_ms", "groups", "index")

    def __init__(self, index: int = 0, initial_delay_ms: int = 0, wall_ms: int = 0) -> None:
        self.index = index
        self.groups: dict[str, GroupMetadata] = {}
        self._initial_delay_ms = initial_delay_ms
        self._wall_ms = wall_ms
        # By producer id.
        self._open: dict[int, OffsetTransaction] = {}
        self._ended: deque[OffsetTransaction] = deque()

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """Apply the records, or the marker, of one batch of the log."""
        for record in replay_batch(header, batch):
            self.apply(record, self._wall_ms)

    def apply(self, record: CoordinatorRecord, wall_ms: int) -> None:
        """Apply one record or marker."""
        key, value = record.key, record.value
        if key is None:
            self.end_transaction(record.producer_id, record.committed)
        elif isinstance(key, GroupKey):
            if isinstance(value, GroupValue):
                self._classic_group(key.group, wall_ms).restore(value)
            else:
                self._remove_group(key.group, wall_ms)
        elif isinstance(key, ConsumerGroupKey):
            self._apply_consumer_record(key, value, wall_ms)
        elif isinstance(value, OffsetValue):
            self._apply_offset(record, key, value, wall_ms)
        else:
            self._remove_offset(key)

    def obtain(self, group_id: str, wall_ms: int) -> GroupMetadata:
        """Return the group; create it as Empty if it does not exist."""
        metadata = self.groups.get(group_id)
        if metadata is None:
            metadata = self.groups[group_id] = GroupMetadata(self._new_group(group_id, wall_ms), self)
        return metadata

    def _classic_group(self, group_id: str, wall_ms: int) -> ClassicGroup:
        group = self.obtain(group_id, wall_ms).group
        if isinstance(group, ConsumerGroup):
            raise IllegalRecord(f"record of a classic group {group_id}, which is a consumer group")
        return group

    def _apply_consumer_record(self, key: ConsumerGroupKey, value: Value | None, wall_ms: int) -> None:
        """Apply a record of a consumer group. A classic group of the same name, without members, gives way."""
        metadata = self.groups.get(key.group)
        if value is None and (metadata is None or isinstance(metadata.group, ClassicGroup)):
            return
        if metadata is None:
            metadata = self.obtain(key.group, wall_ms)
        group = metadata.group
        if isinstance(group, ClassicGroup):
            if group.members:
                raise IllegalRecord(f"record of a consumer group {key.group}, which is a classic group with members")
            metadata.group = group = ConsumerGroup(key.group)
        assert value is None or not isinstance(value, (OffsetValue, GroupValue))
        group.apply(key, value)
        if value is None and key.record_type is ConsumerGroupRecordType.METADATA:
            self._remove_group(key.group, wall_ms)

    def end_transaction(self, producer_id: int, commit: bool) -> int:
        """Apply a marker of `producer_id`: its pending offsets are committed or dropped.

        Return the number of offsets that were completed. Those of a large transaction are left to `settle`.
        """
        transaction = self._open.pop(producer_id, None)
        if transaction is None:
            return 0
        transaction.committed = commit
        places = transaction.places
        if len(places) > SETTLED_AT_ONCE:
            self._ended.append(transaction)
            return 0
        for offsets, key in places:
            offsets.complete_pending(key, transaction)
        return len(places)

    @property
    def is_settled(self) -> bool:
        """Whether `settle` has nothing to do."""
        return not self._ended

    def settle(self) -> int:
        """Complete some offsets of a large transaction that has ended; return how many there were."""
        if not self._ended:
            return 0
        transaction = self._ended[0]
        count = transaction.complete_some(SETTLED_AT_ONCE)
        if not transaction.places:
            self._ended.popleft()
        return count

    def _apply_offset(self, record: CoordinatorRecord, key: OffsetKey, value: OffsetValue, wall_ms: int) -> None:
        metadata = self.groups.get(key.group) or self.obtain(key.group, wall_ms)
        offsets = metadata.offsets
        place = (key.topic, key.partition)
        if record.producer_id < 0:
            offsets.commit(place, value, record.record_offset)
            return
        transaction = self._open.get(record.producer_id)
        if transaction is None:
            transaction = self._open[record.producer_id] = OffsetTransaction(record.producer_id)
        offsets.commit_pending(transaction, place, value, record.record_offset)

    def _remove_offset(self, key: OffsetKey) -> None:
        metadata = self.groups.get(key.group)
        if metadata is not None:
            metadata.offsets.remove((key.topic, key.partition))

    def _remove_group(self, group_id: str, wall_ms: int) -> None:
        """Apply the tombstone of a group. The group stays while it has offsets."""
        metadata = self.groups.get(group_id)
        if metadata is not None:
            metadata.group = self._new_group(group_id, wall_ms)
            if metadata.offsets.is_empty:
                self._forget(metadata)

    def _forget(self, metadata: GroupMetadata) -> None:
        """Drop a group that is in no log any more."""
        metadata.cancel_timer()
        self.groups.pop(metadata.group.group_id, None)

    def _new_group(self, group_id: str, wall_ms: int) -> ClassicGroup:
        return ClassicGroup(group_id, self._initial_delay_ms, wall_ms)


class GroupShard(GroupStore):
    """A store with its log. `settling`: the offsets of ended transactions are being completed in the background."""

    __slots__ = ("log", "resigned", "settling")

    def __init__(self, log: StateLog, initial_delay_ms: int, wall_ms: int) -> None:
        super().__init__(log.index, initial_delay_ms, wall_ms)
        self.log = log
        self.resigned = False
        self.settling = False
