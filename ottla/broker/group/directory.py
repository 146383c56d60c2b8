"""Which groups this broker has: loading them, finding them. shell

A group's partition of `__consumer_offsets` is loaded before its groups answer; until then they answer
COORDINATOR_LOAD_IN_PROGRESS. A partition that cannot be loaded to its end answers NOT_COORDINATOR: half of its offsets
would send consumers back.
"""

import logging
from collections.abc import Callable

from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.group.log import Replayed, client_error, group_batch, replay_batch
from ottla.broker.group.store import Entry, GroupStore
from ottla.broker.log.partition import Partition
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.state_records import GroupKey

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
        self._damaged: set[int] = set()

    async def load(self, on_loaded: Callable[[Entry], None]) -> None:
        """Load what stands in `__consumer_offsets`, a few milliseconds per turn."""
        topic = self._cluster.topics.get(CONSUMER_OFFSETS_TOPIC)
        self.loading = set(range(topic.partition_count)) if topic is not None else set()
        for index in sorted(self.loading):
            found: set[str] = set()
            try:
                await self._load(self.partition(index), found)
            except (ProtocolError, OSError) as error:
                log.error("Loading %s-%d stopped: %s", CONSUMER_OFFSETS_TOPIC, index, error)
                self._damaged.add(index)
            self.loading.discard(index)
            for entry in filter(None, map(self.store.entries.get, found)):
                on_loaded(entry)
        if self.store.entries:
            log.info("Loaded %d groups", len(self.store.entries))

    async def _load(self, partition: Partition, found: set[str]) -> None:
        """Apply one log from its start; the ids of its groups go to `found`."""
        if partition.offline is not None:
            return
        deadline = self._clock.monotonic_ms() + LOAD_BUDGET_MS
        for header, batch in partition.scan(partition.log_start_offset):
            for said in replay_batch(header, batch):
                self.store.apply(partition.index, said, self._clock.monotonic_ms())
                if said.key is not None:
                    found.add(said.key.group)
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

    def find(self, group_id: str) -> tuple[Entry | None, ErrorCode]:
        """The group, if there is one; or why this broker cannot say."""
        entry = self.store.entries.get(group_id)
        index = self.partition_of(group_id) if entry is None else entry.index
        if index in self.loading:
            return None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if index in self._damaged or self.partition(index).offline is not None:
            return None, ErrorCode.NOT_COORDINATOR
        return entry, ErrorCode.NONE

    def obtain(self, group_id: str) -> Entry:
        """The group, created Empty when there is none."""
        return self.store.obtain(group_id, self.partition_of(group_id), self._clock.monotonic_ms())

    def remove_group(self, entry: Entry) -> ErrorCode:
        """Log the end of a group and forget it; it stays when the log refuses."""
        group_id = entry.group.group_id
        result = self.partition(entry.index).append_own(group_batch(group_id, None, self._clock.now_ms()))
        if not result.error:
            said = Replayed(-1, result.base_offset, GroupKey(group_id), None)
            self.store.apply(entry.index, said, self._clock.monotonic_ms())
        return client_error(result.error)
