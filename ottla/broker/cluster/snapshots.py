"""Snapshots of the metadata, `<end offset>-<epoch>.checkpoint`: a start reads one and the log after it. shell

A snapshot is written in several turns while the metadata changes: the image is frozen as of the first step
(`MetadataImage.freeze`). The file is named `.part` until a sync in a thread has completed; then it gets its name.

The oldest snapshot is deleted while log and snapshots are larger than `metadata.max.retention.bytes`, or when its last
record is older than `metadata.max.retention.ms`. The log then begins at the end of the next snapshot, and segments that
lie wholly before that are deleted too. The newest snapshot and the records after it stay. A file is deleted only when
its replacement is durable: a start at any moment finds a complete snapshot, and the log from its end on.

Source: `SnapshotGenerator`, `RecordsSnapshotWriter`, `FileRawSnapshotWriter`, `KafkaRaftLog.maybeClean`,
`RaftMetadataLogCleanerManager` of Kafka 4.3.1; KIP-630, KIP-853.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Final

from ottla.broker.cluster.image import TopicImage
from ottla.broker.cluster.kraft import snapshots_of
from ottla.broker.cluster.kraft_bootstrap import cluster_records, partition_record, security_records, topic_and_configs
from ottla.broker.cluster.kraft_log import MetadataLog
from ottla.broker.config import Config
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.partition import Partition
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import File
from ottla.broker.turns import Handler, OneAtATime, Turns, Wait
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.kraft_records import (
    SnapshotId,
    snapshot_footer,
    snapshot_header,
    snapshot_name,
    snapshot_timestamp_ms,
)
from ottla.protocol.internal_topics.metadata_records import encode_metadata_record
from ottla.protocol.steps import RECORD_US
from ottla.protocol.values_batch import ValuesBatch

log = logging.getLogger(__name__)

PART: Final = ".part"
BATCH_BYTES: Final = 256 * 1024
CLEAN_EVERY_MS: Final = 60_000.0
_AT_ONCE: Final = 200


class MetadataSnapshots:
    """Writer of snapshots, which also removes old ones.

    `delete_segments` deletes segments before the start of the log, in shares.
    """

    def __init__(
        self,
        metadata_log: MetadataLog,
        store: LogManager,
        clock: Clock,
        turns: Turns,
        config: Config,
        delete_segments: Callable[[Partition], Handler[None]],
    ) -> None:
        self._image = metadata_log.image
        self._log = metadata_log
        self._store = store
        self._clock = clock
        self._turns = turns
        self._config = config
        self._delete_segments = delete_segments
        self._last_ms = self._cleaned_ms = clock.monotonic_ms()
        self._timestamps_ms: dict[SnapshotId, int | None] = {}
        self._work = OneAtATime(turns, self._broke)
        self._stopped = False
        self._file: File | None = None

    def take_if_due(self) -> None:
        """Take a snapshot or remove old ones if it is time. Called every few seconds."""
        now_ms = self._clock.monotonic_ms()
        interval_ms = self._config.metadata_log_max_snapshot_interval_ms  # 0: never for their age
        is_old = 0 < interval_ms <= now_ms - self._last_ms
        most_bytes = self._config.metadata_log_max_record_bytes_between_snapshots
        new_bytes = self._log.bytes_since_snapshot
        if new_bytes > 0 and (is_old or new_bytes >= most_bytes):
            self.take()
        elif now_ms - self._cleaned_ms >= CLEAN_EVERY_MS:
            self._start_snapshot(self._clean)

    def take(self) -> None:
        """Take a snapshot if none is under way and the image contains all of the log."""
        if self._log.can_be_replaced:
            self._start_snapshot(self._take)

    def _start_snapshot(self, work: Callable[[], Handler[None]]) -> None:
        if not self._stopped and self._store.offline is None:
            self._work.start(work)

    def stop(self) -> None:
        """Stop writing. A `.part` file stays until the next snapshot."""
        self._stopped = True
        self._work.discard()
        self._let_go()

    def _let_go(self) -> None:
        self._image.thaw()
        file, self._file = self._file, None
        if file is not None:
            file.close()

    async def _take(self) -> None:
        metadata = self._log
        snapshot = SnapshotId(metadata.end_offset, metadata.partition.log.epochs.latest_epoch)
        self._timestamps_ms[snapshot] = metadata.last_timestamp_ms
        self._last_ms, written_bytes = self._clock.monotonic_ms(), metadata.bytes_since_snapshot
        place = metadata.partition.name
        for left in [name for name in self._store.side_files.names(place) if name.endswith(PART)]:
            self._store.side_files.remove(f"{place}/{left}")
        path = f"{place}/{snapshot_name(snapshot)}"
        self._file = self._store.side_files.create(path + PART)
        await self._write(self._file, snapshot)
        self._let_go()
        await self._durable([path + PART])
        self._store.side_files.rename(path + PART, path)
        await self._durable([place])
        metadata.bytes_since_snapshot -= written_bytes
        metadata.newest_snapshot = snapshot
        log.info("Took the snapshot %s of the metadata", snapshot_name(snapshot))
        await self._clean()

    async def _write(self, file: File, snapshot: SnapshotId) -> None:
        now_ms = self._clock.now_ms()
        frozen = self._image.freeze()
        quorum = self._image.quorum
        controls = [snapshot_header(self._log.last_timestamp_ms), *(quorum[kind] for kind in sorted(quorum))]
        head = build_batch(controls, timestamp_ms=now_ms, control=True, partition_leader_epoch=snapshot.epoch)
        file.append((head,))
        offset = len(controls)
        batch = ValuesBatch()
        batch.add(map(encode_metadata_record, cluster_records(self._image, self._log.node_id)))
        security = map(encode_metadata_record, security_records(self._image))
        for some in chain(_some_at_once(self._image.passed_over), _some_at_once(security), _topics_of(frozen)):
            batch.add(some)
            self._turns.charge(len(some) * RECORD_US * 8)
            if batch.size_bytes >= BATCH_BYTES:
                offset = _put(file, batch, offset, snapshot.epoch, now_ms)
                batch = ValuesBatch()
            await self._turns.yield_if_due()
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
        ended: Wait[OSError | None] = Wait(self._turns)
        self._store.side_files.start_sync(names, ended.wake)
        if (error := await ended) is not None:
            raise error

    async def _clean(self) -> None:
        """Remove the oldest snapshots, and the part of the log before the next ones."""
        partition = self._log.partition
        self._cleaned_ms = self._clock.monotonic_ms()
        # A snapshot newer than the newest complete one is damaged, and cannot replace the files before it.
        newest = self._log.newest_snapshot
        found = [each for each in snapshots_of(self._store.side_files.names(partition.name)) if each <= newest]
        synced = False
        for oldest, following in pairwise(found):
            if partition.offline is not None or not self._may_go(oldest, found):
                return
            if not synced:  # names of files found at the start may not be durable yet
                await self._durable([*map(self._path, found[1:]), partition.name])
                synced = True
            partition.raise_log_start(following.end_offset)
            await self._delete_segments(partition)
            if partition.offline is None:
                self._store.side_files.delete_later(self._path(oldest))
                log.info("Deleting the snapshot %s of the metadata", snapshot_name(oldest))

    def _may_go(self, snapshot: SnapshotId, found: Sequence[SnapshotId]) -> bool:
        """Return whether to remove a snapshot, the oldest left of `found`, for size, its age, or the log's start."""
        config, partition = self._config, self._log.partition
        if snapshot.end_offset < partition.log_start_offset:
            return True
        left = found[found.index(snapshot) :]
        total = partition.log.size_bytes + sum(self._store.side_files.size_bytes(self._path(each)) for each in left)
        if 0 <= config.metadata_max_retention_bytes < total:
            return True
        timestamp_ms = self._timestamp_ms(snapshot) if config.metadata_max_retention_ms >= 0 else None
        return timestamp_ms is not None and self._clock.now_ms() - timestamp_ms > config.metadata_max_retention_ms

    def _timestamp_ms(self, snapshot: SnapshotId) -> int | None:
        """Return the timestamp of the last record in a snapshot; None if the snapshot has none."""
        if snapshot not in self._timestamps_ms:
            try:
                found = snapshot_timestamp_ms(self._store.side_files.read(self._path(snapshot)))
            except ProtocolError as damage:
                log.warning(
                    "%s: %s; only metadata.max.retention.bytes deletes this snapshot", self._path(snapshot), damage
                )
                found = None
            self._timestamps_ms[snapshot] = found
        return self._timestamps_ms[snapshot]

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self._log.partition.name}/{snapshot_name(snapshot)}"

    def _broke(self, error: Exception) -> None:
        self._let_go()
        if isinstance(error, OSError):
            self._store.fail_unless_short(error)
        else:
            log.error("Writing a snapshot of the metadata failed", exc_info=error)


def _some_at_once(values: Iterable[bytes]) -> Iterator[Sequence[bytes]]:
    left = iter(values)
    while some := [*islice(left, _AT_ONCE)]:
        yield some


def _topics_of(frozen: dict[bytes, TopicImage]) -> Iterator[Sequence[bytes]]:
    """Yield the records of all topics, and remove each topic from `frozen` before."""
    while frozen:
        yield from _values_of(frozen.popitem()[1])


def _values_of(topic: TopicImage) -> Iterator[Sequence[bytes]]:
    """Yield the encoded records of a topic, a few at a time. Changes after the first do not affect them."""
    epochs, registrations = [*topic.leader_epochs], [*topic.registrations]
    yield [encode_metadata_record(record) for record in topic_and_configs(topic)]
    for start in range(0, len(epochs), _AT_ONCE):
        some = range(start, min(start + _AT_ONCE, len(epochs)))
        yield [
            encode_metadata_record(partition_record(topic.topic_id, index, epochs[index], registrations[index]))
            for index in some
        ]


def _put(file: File, batch: ValuesBatch, offset: int, epoch: int, now_ms: int) -> int:
    """Append a batch if it is not empty, and return the next offset."""
    if batch.count:
        file.append((batch.build(timestamp_ms=now_ms, base_offset=offset, partition_leader_epoch=epoch),))
    return offset + batch.count
