"""One partition of `__consumer_offsets`, whose records go into the store of all groups. free"""

from ottla.broker.coordinator.shard import StateLog
from ottla.broker.group.log import replay_batch
from ottla.broker.group.store import GroupStore
from ottla.protocol.batch_header import BatchHeader


class GroupShard:
    """The groups of one log partition. `replayed` are the ids of those that its log named when it was replayed."""

    __slots__ = ("_store", "_wall_ms", "log", "replayed")

    def __init__(self, log: StateLog, store: GroupStore, wall_ms: int) -> None:
        self.log = log
        self.replayed: set[str] = set()
        self._store = store
        self._wall_ms = wall_ms

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """Apply the records, or the marker, of one batch of the log."""
        for record in replay_batch(header, batch):
            self._store.apply(self.log.index, record, self._wall_ms)
            if record.key is not None:
                self.replayed.add(record.key.group)
