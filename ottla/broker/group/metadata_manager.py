"""The groups of this broker: load and find them, log their changes and apply them. shell

Until a group's partition of `__consumer_offsets` is loaded, its groups answer COORDINATOR_LOAD_IN_PROGRESS. The groups
of a partition that cannot be loaded to its end answer NOT_COORDINATOR: with half of the offsets consumers would read
records again.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.coordinator.runtime import CoordinatorRuntime, client_error
from ottla.broker.coordinator.shard import StateLog
from ottla.broker.costs import BATCH_US, COMPLETE_OFFSET_US, ROW_US, STATE_BYTE_US, STATE_RECORD_US
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.log import (
    CoordinatorRecord,
    EncodedRows,
    Rows,
    consumer_group_batch,
    encode_rows,
    group_batch,
    offsets_batch,
)
from ottla.broker.group.members import Moment
from ottla.broker.group.replies import Outcome, Step
from ottla.broker.group.shard import GroupMetadata, GroupShard
from ottla.broker.log.partition import Partition
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.internal_topics.offsets_records import GroupKey, GroupValue, OffsetKey, OffsetValue
from ottla.protocol.steps import to_the_end
from ottla.protocol.values import NO_PRODUCER_ID, ProducerIdAndEpoch, TransactionMarker

log = logging.getLogger(__name__)


Change = tuple[int, Rows]
"""Content of one batch: the producer id (NO_PRODUCER_ID outside of transactions), and the records to apply."""

APPLIED_BY_GROUP: Final[Change] = (NO_PRODUCER_ID, ())
"""Step of a loaded group: no record is to be replayed (`CoordinatorResult.replayRecords` of Kafka)."""


class GroupMetadataManager(CoordinatorRuntime[GroupShard, Change, ErrorCode]):
    """The groups of one broker and the partitions that hold them.

    `on_loaded` is called for each group when its partition is loaded. `on_resigned` is called for each group that
    another broker coordinates from now on.
    """

    _cluster: Cluster

    def __init__(
        self,
        cluster: Cluster,
        turns: Turns,
        clock: Clock,
        initial_rebalance_delay_ms: int,
        on_loaded: Callable[[GroupMetadata], None],
        on_resigned: Callable[[GroupMetadata], None],
    ) -> None:
        super().__init__(CONSUMER_OFFSETS_TOPIC, cluster, turns, self.complete_all)
        self._clock = clock
        self._initial_rebalance_delay_ms = initial_rebalance_delay_ms
        self._on_loaded = on_loaded
        self._on_resigned = on_resigned

    # ---- called by the runtime

    def new_shard(self, partition: StateLog) -> GroupShard:
        """Return a shard without groups."""
        return GroupShard(partition, self._initial_rebalance_delay_ms, self._clock.now_ms())

    async def on_load(self, shard: GroupShard) -> None:
        """Call `on_loaded` for every group of a partition, in shares."""
        for metadata in [*shard.groups.values()]:
            if shard.resigned:
                return
            if shard.groups.get(metadata.group.group_id) is metadata:
                self._turns.charge(ROW_US * (1 + len(metadata.group.members)))
                self._on_loaded(metadata)
            await self._turns.yield_if_due()
        count = sum(len(each.groups) for each in self.shards.values())
        if count and not self.loading:
            log.info("Loaded %d groups", count)

    def on_resign(self, shard: GroupShard) -> None:
        """Call `on_resigned` for every group of a shard, in shares."""
        self._turns.run_alone(self._dismiss(shard))

    async def _dismiss(self, shard: GroupShard) -> None:
        for metadata in [*shard.groups.values()]:
            self._turns.charge(ROW_US * (1 + len(metadata.joins) + len(metadata.syncs)))
            self._on_resigned(metadata)
            await self._turns.yield_if_due()

    def apply(self, shard: GroupShard, change: Change, base_offset: int) -> ErrorCode:
        """Apply logged records as a replay does."""
        producer_id, rows = change
        wall_ms = self._clock.now_ms()
        for offset, (key, value) in enumerate(rows, base_offset):
            shard.apply(CoordinatorRecord(producer_id, offset, key, value), wall_ms)
        return NO_ERROR

    def answer_refusal(self, shard: GroupShard, change: Change, error: ErrorCode) -> ErrorCode:
        """Do nothing, because nothing was logged."""
        return client_error(error)

    # ---- changes

    def log_offsets(
        self, index: int, rows: Sequence[tuple[OffsetKey, OffsetValue | None]], producer: ProducerIdAndEpoch | None
    ) -> ErrorCode:
        """Log commits, or tombstones of offsets, in one batch, and apply them."""
        batch = offsets_batch(rows, self._clock.now_ms(), producer)
        return self.write(
            self.shards[index], batch, (NO_PRODUCER_ID if producer is None else producer.producer_id, rows)
        )

    def log_group(self, index: int, group_id: str, value: GroupValue | None) -> ErrorCode:
        """Log a new group, or the tombstone of a group, and apply it. Nothing changes if the log refuses it."""
        return self._log_group(self.shards[index], group_id, value)

    def _log_group(self, shard: GroupShard, group_id: str, value: GroupValue | None) -> ErrorCode:
        batch = group_batch(group_id, value, self._clock.now_ms())
        return self.write(shard, batch, (NO_PRODUCER_ID, ((GroupKey(group_id), value),)))

    def log_removal(self, metadata: GroupMetadata) -> ErrorCode:
        """Log the tombstones of a group without members, and apply them."""
        group = metadata.group
        if isinstance(group, ConsumerGroup):
            return self.log_consumer_group(metadata.shard, [*group.tombstones()])
        return self._log_group(metadata.shard, group.group_id, None)

    def log_consumer_group(self, shard: GroupShard, rows: Rows, encoded: EncodedRows | None = None) -> ErrorCode:
        """Log records of one consumer group in one batch, and apply them. Nothing changes if the log refuses them.

        `encoded` are the same records, if they were encoded in steps before.
        """
        batch = consumer_group_batch(encoded or to_the_end(encode_rows(rows)), self._clock.now_ms())
        self._turns.charge(BATCH_US + len(rows) * STATE_RECORD_US + len(batch) * STATE_BYTE_US)
        return self.write(shard, batch, (NO_PRODUCER_ID, rows))

    def log_step(self, metadata: GroupMetadata, group: ClassicGroup, step: Step, now: Moment) -> Outcome:
        """Log the step of a loaded classic group, which then applies it; return the outcome.

        The waiting members of the group are answered even if logging fails.
        """
        record = step.record
        self._turns.charge(BATCH_US + len(record.members) * STATE_RECORD_US)
        try:
            batch = group_batch(group.group_id, record, now.wall_ms)
            error = self.write(metadata.shard, batch, APPLIED_BY_GROUP)
        except Exception:
            log.exception("Group %(group).100s could not be logged", {"group": group.group_id})
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            if error:
                log.error(
                    "Group %(group).100s could not be logged: %(error)s", {"group": group.group_id, "error": error.name}
                )
        return group.apply_step(step, error, now)

    # ---- transactions that have ended

    def complete_transaction(self, partition: Partition, marker: TransactionMarker) -> ErrorCode:
        """Append a marker to an offsets partition, and complete the pending offsets of its producer."""
        if partition.index in self.loading:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = partition.append_marker(marker).error
        shard = self.shards.get(partition.index)
        if not error and shard is not None:
            settled = shard.end_transaction(marker.producer_id, marker.commit)
            self._turns.charge(ROW_US * settled)
            if not shard.is_settled:
                self._complete_soon(shard)
        return error

    async def complete_all(self, shard: GroupShard) -> None:
        """Complete all pending offsets of ended transactions, in shares."""
        while not shard.resigned and (count := shard.settle()):
            await self._turns.spend(COMPLETE_OFFSET_US * count)

    def _complete_soon(self, shard: GroupShard) -> None:
        """Run `complete_all` in the background."""
        if not shard.settling:
            shard.settling = True
            self._turns.run_later(lambda: self._complete(shard))

    def _complete(self, shard: GroupShard) -> None:
        def on_end(_none: None) -> None:
            shard.settling = False

        def on_failure(error: Exception) -> None:
            shard.settling = False
            raise error

        self._turns.start(self.complete_all(shard), on_end, on_failure)

    # ---- finding

    def groups(self) -> list[GroupMetadata]:
        """Return every loaded group."""
        return [metadata for shard in self.shards.values() for metadata in shard.groups.values()]

    def find(self, group_id: str) -> tuple[GroupMetadata | None, ErrorCode]:
        """Return the group, or None if it does not exist; with an error if this broker cannot know."""
        shard = self.shard_of(group_id)
        if not isinstance(shard, GroupShard):
            return None, shard
        metadata = shard.groups.get(group_id)
        if metadata is not None and metadata.ending:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE  # Kafka's answer for a dead group
        return metadata, NO_ERROR

    def ends(self) -> dict[int, int]:
        """Return the end offsets of the logs, by partition."""
        topic = self._cluster.topics.get(CONSUMER_OFFSETS_TOPIC)
        count = 0 if topic is None else topic.partition_count
        found = ((index, self._cluster.partition(CONSUMER_OFFSETS_TOPIC, index)) for index in range(count))
        return {index: partition.log_end_offset for index, partition in found if partition is not None}

    def obtain(self, group_id: str) -> GroupMetadata:
        """Return the group. If it does not exist, create it as Empty without logging it."""
        return self.shards[self.partition_for(group_id)].obtain(group_id, self._clock.now_ms())
