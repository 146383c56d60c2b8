"""Which groups this broker has: loading them, finding them. shell

A group's partition of `__consumer_offsets` is loaded before its groups answer; until then they answer
COORDINATOR_LOAD_IN_PROGRESS.
"""

import logging

from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.group.log import replay_batch
from ottla.broker.group.store import Entry, GroupStore
from ottla.broker.log.partition import Partition
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.hashing import coordinator_partition

log = logging.getLogger("ottla.group")

LOAD_BUDGET_MS = 5.0


class GroupDirectory:
    """The groups of one broker and the partitions that hold them."""

    def __init__(self, cluster: Cluster, turns: Turns, clock: Clock, initial_rebalance_delay_ms: int) -> None:
        self._cluster = cluster
        self._turns = turns
        self._clock = clock
        self.store = GroupStore(initial_rebalance_delay_ms, clock.now_ms() - clock.monotonic_ms())
        self.loading: set[int] = set()

    async def load(self) -> None:
        """Load what stands in `__consumer_offsets`, a few milliseconds per turn."""
        topic = self._cluster.topics.get(CONSUMER_OFFSETS_TOPIC)
        self.loading = set(range(topic.partition_count)) if topic is not None else set()
        for index in sorted(self.loading):
            partition = self._cluster.partition(CONSUMER_OFFSETS_TOPIC, index)
            if partition is not None and partition.offline is None:
                try:
                    await self._load(partition)
                except ProtocolError as error:
                    log.error("Loading %s-%d stopped at a bad record: %s", CONSUMER_OFFSETS_TOPIC, index, error)
            self.loading.discard(index)
        if self.store.entries:
            log.info("Loaded %d groups", len(self.store.entries))

    async def _load(self, partition: Partition) -> None:
        deadline = self._clock.monotonic_ms() + LOAD_BUDGET_MS
        for header, batch in partition.scan(partition.log_start_offset):
            for said in replay_batch(header, batch):
                self.store.apply(partition.index, said, self._clock.monotonic_ms())
            if self._clock.monotonic_ms() > deadline:
                await self._turns.pause()
                deadline = self._clock.monotonic_ms() + LOAD_BUDGET_MS

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group."""
        topic = self._cluster.ensure_internal_topic(CONSUMER_OFFSETS_TOPIC)
        return coordinator_partition(group_id, topic.partition_count)

    def partition(self, index: int) -> Partition:
        """The log of one offsets partition."""
        partition = self._cluster.partition(CONSUMER_OFFSETS_TOPIC, index)
        assert partition is not None
        return partition

    def unavailable(self, group_id: str) -> ErrorCode:
        """Why the group cannot be asked at all, or NONE."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        index = self.partition_of(group_id)
        if index in self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self.partition(index).offline is not None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def find(self, group_id: str) -> Entry | None:
        """The group, if there is one."""
        return self.store.entries.get(group_id)

    def obtain(self, group_id: str) -> Entry:
        """The group, created Empty when there is none."""
        return self.store.obtain(group_id, self.partition_of(group_id), self._clock.monotonic_ms())
