"""Snapshots of the metadata, `<end offset>-<epoch>.checkpoint`: a start reads one and the log behind it. shell

Written in shares while the metadata changes: the image is frozen as of the first step (`MetadataImage.freeze`). The
file is `.part` until its content is on the device, which is waited for beside the loop; then it gets its name. Older
ones go as in Kafka: the oldest while log and snapshots are larger than `metadata.max.retention.bytes`, or when it is
older than `metadata.max.retention.ms`. The newest stays, and so does the log itself.

A log that holds records which are passed over here (brokers and ACLs of a quorum) gets none: it would lose them.

Source: `SnapshotGenerator`, `RecordsSnapshotWriter`, `FileRawSnapshotWriter`, `KafkaRaftLog.maybeClean` of Kafka 4.3.1;
KIP-630.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.broker.cluster.image import MetadataImage, Topic
from ottla.broker.cluster.kraft import snapshots_of
from ottla.broker.cluster.kraft_bootstrap import cluster_records, partition_as_it_is, topic_and_configs
from ottla.broker.cluster.kraft_log import MetadataLog
from ottla.broker.costs import RECORD_US
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import File
from ottla.broker.turns import Activity, Turns, Wait
from ottla.protocol.batch import build_batch
from ottla.protocol.kraft_records import SnapshotId, snapshot_footer, snapshot_header, snapshot_name
from ottla.protocol.metadata_records import encode_metadata_record
from ottla.protocol.values_batch import ValuesBatch

log = logging.getLogger("ottla.cluster")

PART: Final = ".part"
BATCH_BYTES: Final = 256 * 1024
_AT_ONCE: Final = 200


class SnapshotSettings(NamedTuple):
    """Kafka's `metadata.log.max.record.bytes.between.snapshots`, `metadata.log.max.snapshot.interval.ms` (0: never for
    their age), `metadata.max.retention.bytes`, `metadata.max.retention.ms` (below 0: no bound)."""

    bytes_between: int = 20 * 1024 * 1024
    interval_ms: int = 3_600_000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 604_800_000


class SnapshotStore(Protocol):
    """What snapshots need of the log manager; paths begin at the data directory. All but `failed` raise OSError."""

    def side_files(self, place: str) -> list[str]:
        """Names in one partition directory."""

    def side_file_bytes(self, name: str) -> int:
        """The size of a file."""

    def new_side_file(self, name: str) -> File:
        """A file that is empty, open for writing."""

    def start_sync(self, names: Sequence[str], on_end: Callable[[OSError | None], None]) -> None:
        """Put files and directories on the device, beside the loop; `on_end` is called on it."""

    def side_file_modified_ms(self, name: str) -> int:
        """When a file was written last."""

    def rename_side_file(self, old: str, new: str) -> None: ...

    def remove_side_file(self, name: str) -> None: ...

    def met(self, error: OSError) -> None:
        """IO failed in a step that may be tried again."""


class MetadataSnapshots:
    """When snapshots are taken, and which of them stay."""

    def __init__(
        self,
        image: MetadataImage,
        metadata_log: MetadataLog,
        store: SnapshotStore,
        clock: Clock,
        turns: Turns,
        settings: SnapshotSettings,
    ) -> None:
        self._image = image
        self._log = metadata_log
        self._store = store
        self._clock = clock
        self._turns = turns
        self._settings = settings
        self._last_ms = clock.monotonic_ms()
        self._busy = False
        self._activity: Activity[None] | None = None
        self._file: File | None = None

    def look(self) -> None:
        """Take a snapshot if it is time; called every few seconds."""
        settings, metadata = self._settings, self._log
        waited_ms = self._clock.monotonic_ms() - self._last_ms
        old = settings.interval_ms > 0 and waited_ms >= settings.interval_ms
        if metadata.bytes_since_snapshot > 0 and (old or metadata.bytes_since_snapshot >= settings.bytes_between):
            self.take()

    def take(self) -> None:
        """Take one, unless one is under way or the log holds what it would lose."""
        if not self._busy and self._log.can_be_replaced:
            self._busy = True
            self._activity = self._turns.start(self._take(), self._ended, self._broke)

    def stop(self) -> None:
        """Write nothing more; a `.part` is left to the next snapshot."""
        self._busy = True
        if self._activity is not None:
            self._activity.discard()
        self._let_go()

    def _let_go(self) -> None:
        self._image.thaw()
        file, self._file = self._file, None
        if file is not None:
            file.close()

    async def _take(self) -> None:
        metadata = self._log
        snapshot = SnapshotId(metadata.end_offset, metadata.partition.latest_epoch)
        self._last_ms, written_bytes = self._clock.monotonic_ms(), metadata.bytes_since_snapshot
        place = metadata.partition.name
        for left in [name for name in self._store.side_files(place) if name.endswith(PART)]:
            self._store.remove_side_file(f"{place}/{left}")
        path = f"{place}/{snapshot_name(snapshot)}"
        self._file = self._store.new_side_file(path + PART)
        await self._write(self._file, snapshot)
        self._let_go()
        await self._durable([path + PART])
        self._store.rename_side_file(path + PART, path)
        await self._durable([place])
        metadata.bytes_since_snapshot -= written_bytes
        log.info("Took the snapshot %s of the metadata", snapshot_name(snapshot))
        self._clean(place)

    async def _write(self, file: File, snapshot: SnapshotId) -> None:
        now_ms = self._clock.now_ms()
        offset = 0
        frozen = self._image.freeze()
        head = build_batch(
            [snapshot_header(now_ms)], timestamp_ms=now_ms, control=True, partition_leader_epoch=snapshot.epoch
        )
        file.append((head,))
        offset += 1
        batch = ValuesBatch()
        batch.add(map(encode_metadata_record, cluster_records(self._image, self._log.node_id)))
        while frozen:
            _, topic = frozen.popitem()
            for some in _values_of(topic):
                batch.add(some)
                self._turns.charge(len(some) * RECORD_US * 8)
                if batch.size_bytes >= BATCH_BYTES:
                    offset = _put(file, batch, offset, snapshot.epoch, now_ms)
                    batch = ValuesBatch()
                await self._turns.share()
        offset = _put(file, batch, offset, snapshot.epoch, now_ms)
        foot = build_batch(
            [snapshot_footer()],
            base_offset=offset,
            timestamp_ms=now_ms,
            control=True,
            partition_leader_epoch=snapshot.epoch,
        )
        file.append((foot,))

    async def _durable(self, names: Sequence[str]) -> None:
        wait: Wait[OSError | None] = Wait(self._turns)
        self._store.start_sync(names, wait.wake)
        error = await wait
        if error is not None:
            raise error

    def _clean(self, place: str) -> None:
        """Remove the oldest snapshots; the newest stays, and so does the log."""
        settings = self._settings
        names = [snapshot_name(each) for each in snapshots_of(self._store.side_files(place))]
        sizes = [self._store.side_file_bytes(f"{place}/{name}") for name in names]
        total = self._log.partition.size_bytes + sum(sizes)
        now_ms = self._clock.now_ms()
        for name, size in zip(names[:-1], sizes[:-1], strict=True):
            too_large = 0 <= settings.retention_bytes < total
            age_ms = now_ms - self._store.side_file_modified_ms(f"{place}/{name}")
            if not too_large and not 0 <= settings.retention_ms < age_ms:
                break
            self._store.remove_side_file(f"{place}/{name}")
            total -= size

    def _ended(self, result: None) -> None:
        self._busy = False

    def _broke(self, error: Exception) -> None:
        self._let_go()
        self._busy = False
        if isinstance(error, OSError):
            self._store.met(error)
        else:
            log.error("A snapshot of the metadata was given up", exc_info=error)


def _values_of(topic: Topic) -> Iterator[Sequence[bytes]]:
    """The records of a topic, encoded, a few at a time. What they say is fixed with the first of them."""
    epochs, placements = [*topic.leader_epochs], [*topic.placements]
    yield [encode_metadata_record(record) for record in topic_and_configs(topic)]
    for start in range(0, len(epochs), _AT_ONCE):
        some = range(start, min(start + _AT_ONCE, len(epochs)))
        yield [
            encode_metadata_record(partition_as_it_is(topic.topic_id, index, epochs[index], placements[index]))
            for index in some
        ]


def _put(file: File, batch: ValuesBatch, offset: int, epoch: int, now_ms: int) -> int:
    """Append a batch, unless it is empty; the next offset."""
    if batch.count:
        file.append((batch.build(timestamp_ms=now_ms, base_offset=offset, partition_leader_epoch=epoch),))
    return offset + batch.count
