"""The offset checkpoints of a log directory: read at the start, written every few seconds. shell

Source: Kafka's `LogManager.checkpointLogRecoveryOffsets`, `checkpointLogStartOffsets`,
`ReplicaManager.checkpointHighWatermarks`, `LogCleanerManager`; the files' format is in `checkpoints.py`.
"""

from collections.abc import Callable, Mapping
from logging import getLogger
from typing import Final, NamedTuple

from ottla.broker.costs import COPY_BYTE_US, LOOKUP_US, ROW_US, SYNC_PARTITION_US
from ottla.broker.log.checkpoint_files import CheckpointFiles
from ottla.broker.log.partition import Partition
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk, SyncJob
from ottla.broker.turns import Activity, Turns
from ottla.protocol import checkpoints
from ottla.protocol.checkpoints import OffsetCheckpointFile
from ottla.protocol.errors import ProtocolError
from ottla.protocol.values import TopicPartition

_log = getLogger(__name__)


SYNCED_AT_ONCE: Final = 500
"""Limit of partitions whose sealed files one sync covers."""


class _Sync(NamedTuple):
    """A running sync of sealed files: their paths, and the recovery point that each partition gets after it."""

    job: SyncJob
    paths: list[str]
    covered: list[tuple[Partition, int]]


class Checkpointer:
    """The checkpoints of one log directory.

    `partitions` is the live mapping of open partitions. `failed` is called with the error of failed IO.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        turns: Turns,
        directory: str,
        partitions: Mapping[TopicPartition, Partition],
        failed: Callable[[OSError], None],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._turns = turns
        self._directory = directory
        self._partitions = partitions
        self._failed = failed
        # Entries of partitions that are not open are written back as they were read.
        self._recovery_points = OffsetCheckpointFile()
        self._log_starts = OffsetCheckpointFile()
        self._high_watermarks = OffsetCheckpointFile()
        self._first_dirty = OffsetCheckpointFile()
        # Deleted partitions that the files still name.
        self._forgotten: set[TopicPartition] = set()
        self._files = CheckpointFiles(disk, clock, directory, failed)
        self._sync: _Sync | None = None
        # The round in progress: whether one is running, and the partitions found with sealed segments to sync.
        self._busy = False
        self._round: Activity[None] | None = None
        self._sealed: list[Partition] = []

    # --- entries --------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the files. Raises ProtocolError if one that recovery needs is damaged."""
        self._recovery_points = self._read(checkpoints.RECOVERY_POINTS)
        self._log_starts = self._read(checkpoints.LOG_STARTS)
        self._high_watermarks = self._read_optional(checkpoints.HIGH_WATERMARKS)
        self._first_dirty = self._read_optional(checkpoints.CLEANER_OFFSETS)

    def recovery_point(self, key: TopicPartition) -> int:
        return self._recovery_points.get(key, 0)

    def log_start(self, key: TopicPartition) -> int:
        return self._log_starts.get(key, 0)

    def first_dirty(self, key: TopicPartition, default: int) -> int:
        """Return the offset up to which compaction has cleaned the partition."""
        return self._first_dirty.get(key, default)

    def done_cleaning(self, key: TopicPartition, end_offset: int) -> None:
        """Record that compaction has cleaned up to `end_offset`.

        The file is not synced. After a power loss compaction begins at an earlier offset, and finds less to do.
        """
        self._first_dirty[key] = end_offset
        self._files.write(checkpoints.CLEANER_OFFSETS, self._first_dirty.content(), sync=False)

    def forget(self, key: TopicPartition) -> None:
        """Remove a deleted partition. The files name it until they are written next."""
        for offsets in (self._recovery_points, self._log_starts, self._high_watermarks, self._first_dirty):
            if offsets.forget(key):
                self._forgotten.add(key)

    def forget_on_disk(self, key: TopicPartition) -> None:
        """Remove a deleted partition from the files now, before it is created again.

        Without this, a crash could leave the new partition with the checkpoints of the deleted one.
        """
        self.forget(key)
        if key in self._forgotten:
            self.write()

    def _read(self, name: str) -> OffsetCheckpointFile:
        path = f"{self._directory}/{name}"
        try:
            return OffsetCheckpointFile(checkpoints.decode_offsets(self._disk.read(path)))
        except FileNotFoundError:
            return OffsetCheckpointFile()
        except ProtocolError as broken:
            raise ProtocolError(f"{path}: {broken}") from None

    def _read_optional(self, name: str) -> OffsetCheckpointFile:
        """Read a checkpoint that recovery does not need; empty if it is damaged.

        It is written without a sync, so a power loss may have cut it short.
        """
        try:
            return self._read(name)
        except ProtocolError as broken:
            _log.warning("%s; it will be written again", broken)
            return OffsetCheckpointFile()

    # --- every few seconds ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Start a round: write the checkpoints, and start to sync the segments that were sealed since the last one.

        The round visits the partitions over several turns. A call during a round has no effect.
        """
        if self._busy:
            return
        try:
            self._end_sync()
        except OSError as error:
            self._failed(error)
            return
        self._busy = True
        self._round = self._turns.start(self._run_round(), self._end_round, self._handle_error)

    def stop(self) -> None:
        """End a round in progress without further writes."""
        activity, self._round = self._round, None
        if activity is not None:
            activity.discard()
        self._sealed = []
        self._end_round(None)
        self._files.discard_background_write()

    async def _run_round(self) -> None:
        self._sealed = []
        turns = self._turns
        for key, partition in list(self._partitions.items()):
            if partition.offline is None:
                turns.charge(ROW_US)
                if not self._is_current(key, partition):
                    turns.charge(ROW_US)
                    self._note(key, partition)
                if partition.log.unsynced and self._sync is None:
                    self._sealed.append(partition)
                await turns.spend(partition.log.release_idle_segments() * LOOKUP_US)
        self._round = None  # the rest runs in this step, so `stop` has no activity to discard
        self._start_sync()
        self._write_in_background()

    def _end_round(self, result: None) -> None:
        self._busy = False
        self._round = None

    def _handle_error(self, error: Exception) -> None:
        self._end_round(None)
        if isinstance(error, OSError):
            self._failed(error)
        else:
            _log.error("Writing the checkpoints failed; the next round tries again", exc_info=error)

    def _end_sync(self) -> None:
        """If the sync of sealed files has ended, move the recovery points that it covers."""
        sync = self._sync
        if sync is None or not sync.job.done:
            return
        self.raise_sync_error()
        self._sync = None
        for partition, offset in sync.covered:
            log = partition.log
            log.recovery_point = max(log.recovery_point, offset)

    def _start_sync(self) -> None:
        """Start to sync the sealed files that were found, those of at most `SYNCED_AT_ONCE` partitions at a time."""
        sealed, self._sealed = self._sealed[:SYNCED_AT_ONCE], self._sealed[SYNCED_AT_ONCE:]
        self._turns.charge(len(sealed) * SYNC_PARTITION_US)
        sealed = [partition for partition in sealed if partition.offline is None]
        if sealed:
            paths = [path for partition in sealed for path in (*partition.log.unsynced, partition.log.directory)]
            covered = [(partition, partition.log.begin_unsynced_list()) for partition in sealed]
            job = self._disk.start_sync(paths, lambda: self._clock.from_thread(self._handle_sync_end))
            self._sync = _Sync(job, paths, covered)

    def _handle_sync_end(self) -> None:
        """Handle the end of a sync. Report its error at once, because no append may be acknowledged after it.

        The recovery points move in the next round, or now if there are more files to sync.
        """
        sync = self._sync
        if sync is None or not sync.job.done:
            return
        if sync.job.error is not None:
            self._failed(sync.job.error)
        elif self._sealed and not self._busy:
            try:
                self._end_sync()
                self._start_sync()
            except OSError as error:
                self._failed(error)

    def raise_sync_error(self) -> None:
        """Raise the OSError of the sync of sealed files, if it has failed."""
        # The kernel may have dropped the pages and marked them clean: a second sync would prove nothing.
        if self._sync is not None and self._sync.job.error is not None:
            raise self._sync.job.error

    def unsynced_paths(self) -> list[str]:
        """Return the existing files of a sync that may still run. Raises OSError if the sync has failed."""
        self.raise_sync_error()
        paths = [] if self._sync is None else self._sync.paths
        return [path for path in paths if self._disk.exists(path)]

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the files with the current offsets of the partitions, and wait for the device."""
        self._turns.charge(len(self._partitions) * ROW_US)
        for key, partition in self._partitions.items():
            if partition.offline is None:
                self._note(key, partition)
        self._files.discard_background_write()
        for name, content in self._encode_required_files().items():
            self._files.write(name, content, sync=True)
        self._write_optional()
        self._forgotten.clear()

    def _is_current(self, key: TopicPartition, partition: Partition) -> bool:
        """Return whether the entries of a partition are up to date, and its log starts at 0 and so has no start
        entry."""
        log = partition.log
        return (
            self._high_watermarks.get(key, -1) == partition.high_watermark
            and self._recovery_points.get(key, -1) == log.recovery_point
            and log.log_start_offset == 0
        )

    def _note(self, key: TopicPartition, partition: Partition) -> None:
        log = partition.log
        self._recovery_points[key] = log.recovery_point
        self._high_watermarks[key] = partition.high_watermark
        if log.log_start_offset > log.segments.first_offset:
            self._log_starts[key] = log.log_start_offset
        else:
            self._log_starts.forget(key)

    def _write_in_background(self) -> None:
        """Write the files with the noted offsets, without waiting for the device."""
        self._write_optional()
        without = set(self._forgotten)
        on_durable = (lambda: self._forgotten.difference_update(without)) if without else None
        needed = self._encode_required_files()
        self._turns.charge(len(self._partitions) * LOOKUP_US + sum(map(len, needed.values())) * COPY_BYTE_US)
        self._files.write_in_background(needed, on_durable)

    def _encode_required_files(self) -> dict[str, bytes]:
        """Return {name: content} of the files that recovery needs."""
        return {
            checkpoints.RECOVERY_POINTS: self._recovery_points.content(),
            checkpoints.LOG_STARTS: self._log_starts.content(),
        }

    def _write_optional(self) -> None:
        """Write the files that recovery does not need, without a sync."""
        self._files.write(checkpoints.HIGH_WATERMARKS, self._high_watermarks.content(), sync=False)
        if self._first_dirty or checkpoints.CLEANER_OFFSETS in self._files:
            self._files.write(checkpoints.CLEANER_OFFSETS, self._first_dirty.content(), sync=False)
