"""The log of one partition: its segments, offsets, leader epochs and producers. shell

Every append is one step: validation, the producer's state, assigned offsets, one write, producer state. Nothing in it
grows with the number of producers, open transactions or segments. The leader (`partition.py`) decides which records
readers may see, and when.

Source: Kafka's `UnifiedLog`, `LocalLog`. The high watermark and the last stable offset, which Kafka keeps in it, are in
`Partition`, together with the requests that wait for them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ottla.broker.config.option import INT64_MAX
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_validator import (
    ValidationFailure,
    ValidationResult,
    too_large_for_segment,
    too_large_for_topic,
    validate,
    validate_at_once,
)
from ottla.broker.log.producer_state_entry import AppendDecision
from ottla.broker.log.producer_state_manager import AppendOrigin
from ottla.broker.log.results import AppendResult, FetchDataInfo
from ottla.broker.log.segments.log_segment import LogSegment
from ottla.broker.log.snapshot_writer import SnapshotWriter, ignore
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.ports.disk import Disk
from ottla.broker.turns import Turns
from ottla.protocol import checkpoints
from ottla.protocol.batch import build_marker
from ottla.protocol.batch_header import (
    LOG_OVERHEAD,
    PLACE,
    TIMESTAMP_TYPE,
    BatchHeader,
    read_append_fields,
    read_header,
    seal,
    set_append_time,
    set_max_timestamp,
    write_header,
)
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.requests.produced import BatchCheck, Checked
from ottla.protocol.steps import Steps, to_the_end
from ottla.protocol.values import NO_TIMESTAMP, TransactionMarker

_CLIENT: Final = AppendOrigin.CLIENT
_COORDINATOR: Final = AppendOrigin.COORDINATOR
_WITHOUT_LOG_START: Final = frozenset(
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)
)
_OUT_OF_RANGE: Final = FetchDataInfo(ErrorCode.OFFSET_OUT_OF_RANGE)
_NOTHING: Final = FetchDataInfo(NO_ERROR)
_NOTHING_COMMITTED: Final = FetchDataInfo(NO_ERROR, b"", [])


class UnifiedLog:
    """The log of one partition, in `directory`. Failed IO raises OSError, damage raises ProtocolError.

    `log_end_offset` is the offset of the next record, `log_start_offset` the first that can be read. Below
    `recovery_point` the log is on the device with its indexes, below `flushed_offset` its batches are; `unsynced` are
    the files of sealed segments that a sync must cover next.
    """

    __slots__ = (
        "_clock",
        "_disk",
        "_failed",
        "_snapshots",
        "config",
        "directory",
        "epochs",
        "flushed_offset",
        "log_end_offset",
        "log_start_offset",
        "producer_state",
        "recovery_point",
        "segments",
        "unsynced",
    )

    def __init__(
        self,
        loaded: LoadedLog,
        settings: LogConfig,
        disk: Disk,
        clock: Clock,
        turns: Turns | None,
        failed: Callable[[OSError], None],
    ) -> None:
        """Create the log. `failed` is called with the error of IO in the background, for which no caller waits."""
        self.directory = loaded.directory
        self.config = settings
        self.segments = loaded.segments
        self.epochs = loaded.epochs
        self.producer_state = loaded.producer_state
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.segments.end_offset
        self.recovery_point = loaded.recovery_point
        self.unsynced = list(loaded.unsynced)
        # Loading has synced the files that it found.
        self.flushed_offset = loaded.segments.end_offset
        self._disk = disk
        self._clock = clock
        self._failed = failed
        self._snapshots = SnapshotWriter(
            disk,
            turns,
            loaded.directory,
            loaded.producer_state,
            loaded.snapshot_offset,
            self._add_unsynced_snapshot,
            failed,
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return self.segments.size_bytes

    # --- append ---------------------------------------------------------------------------------------------------

    def validate(self, checked: Checked, batch: memoryview) -> Steps[ValidationResult]:
        """Validate a batch by the topic's settings in steps, so that its append is short."""
        return validate(checked, batch, self.config, self._clock.now_ms())

    def validate_at_once(self, check: BatchCheck, batch: memoryview) -> ValidationResult | None:
        """Return the result of `validate` in the common case where it is short; else None."""
        return validate_at_once(check, batch, self.config, self._clock.now_ms())

    def append_as_leader(
        self, check: BatchCheck, batch: memoryview, leader_epoch: int, validated: ValidationResult | None
    ) -> AppendResult:
        """Append a batch of a client. `check` is the check of `batch`, whose bytes are changed in place.

        A batch that was not validated, or with other settings, is validated now, however long that takes.
        """
        settings = self.config
        if validated is None or validated.settings is not settings:
            validated = to_the_end(self.validate(Checked(check, None), batch))
        header = check.header
        if validated.failure is not None or header is None:
            return self._refuse_append(*(validated.failure or (check.error, check.message)))
        batch = batch[: LOG_OVERHEAD + header.batch_length]
        if header.producer_id >= 0:
            decision = self.producer_state.check_batch(header, _CLIENT, settings.transaction_sequence_reuse_refuse)
            if decision.error is not NO_ERROR:
                return self._refuse_append(decision.error, decision.message)
            if decision.duplicate is not None:
                return self._duplicate(decision)
        recompressed = validated.recompressed
        if recompressed is not None:
            if isinstance(recompressed, ValidationFailure):
                return self._refuse_append(*recompressed)
            batch, header = memoryview(recompressed), read_header(recompressed)
        append_time_ms = NO_TIMESTAMP
        max_timestamp_ms = check.max_timestamp
        if settings.log_append_time:
            append_time_ms = max_timestamp_ms = self._clock.now_ms()
            set_append_time(batch, append_time_ms)
        elif header.attributes & TIMESTAMP_TYPE:
            _clear_append_time(batch, header)
        elif header.max_timestamp != max_timestamp_ms:
            set_max_timestamp(batch, max_timestamp_ms)
        base_offset = self._write(batch, header.last_offset_delta, leader_epoch, max_timestamp_ms)
        if header.producer_id >= 0:
            self.producer_state.apply_batch(header, base_offset, max_timestamp_ms)
        return AppendResult(NO_ERROR, base_offset, self.log_end_offset - 1, append_time_ms, self.log_start_offset)

    def append_of_coordinator(self, batch: bytearray, leader_epoch: int) -> AppendResult:
        """Append one batch that a coordinator or the cluster built; check its producer epoch, not its sequences."""
        size_bytes, settings = len(batch), self.config
        if size_bytes > settings.max_message_bytes:
            return self._refuse_append(*too_large_for_topic(size_bytes, settings))
        if size_bytes > settings.segment_bytes:
            return self._refuse_append(*too_large_for_segment(size_bytes, settings))
        last_offset_delta, max_timestamp_ms, producer_id = read_append_fields(batch)
        header = read_header(batch) if producer_id >= 0 else None
        if header is not None:
            decision = self.producer_state.check_batch(header, _COORDINATOR)
            if decision.error is not NO_ERROR:
                return self._refuse_append(decision.error, decision.message)
        base_offset = self._write(batch, last_offset_delta, leader_epoch, max_timestamp_ms)
        if header is not None:
            self.producer_state.apply_batch(header, base_offset, max_timestamp_ms)
        return AppendResult(NO_ERROR, base_offset, base_offset + last_offset_delta, -1, self.log_start_offset)

    def append_end_txn_marker(self, marker: TransactionMarker, leader_epoch: int) -> AppendResult:
        """Append the marker that ends a transaction. It is written without an open transaction too, as in Kafka."""
        producers = self.producer_state
        producer_id, producer_epoch, coordinator_epoch, commit, transaction_version = marker
        decision = producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        if decision.error is not NO_ERROR:
            return self._refuse_append(decision.error, decision.message)
        now_ms = self._clock.now_ms()
        batch = build_marker(producer_id, producer_epoch, coordinator_epoch, commit, now_ms)
        offset = self._write(batch, 0, leader_epoch, now_ms)
        completed = producers.apply_marker(producer_id, producer_epoch, coordinator_epoch, commit, offset, now_ms)
        if completed is not None and completed.aborted:
            self.segments.active.add_aborted_txn(completed.index_entry)
        return AppendResult(NO_ERROR, offset, offset, -1, self.log_start_offset)

    def _write(
        self,
        batch: bytearray | memoryview,
        last_offset_delta: int,
        leader_epoch: int,
        max_timestamp_ms: int,
    ) -> int:
        """Assign offsets, roll if necessary, write the batch; return its base offset. Raises OSError."""
        base_offset = self.log_end_offset
        last_offset = base_offset + last_offset_delta
        size_bytes = len(batch)
        PLACE.pack_into(batch, 0, base_offset, size_bytes - LOG_OVERHEAD, leader_epoch)
        segments = self.segments
        if self.epochs.changed:
            self._save_epochs()
        if segments.active.should_roll(size_bytes, last_offset, max_timestamp_ms, self._clock, self.config):
            self._roll()
        segments.append(batch, size_bytes, last_offset, max_timestamp_ms)
        self.log_end_offset = last_offset + 1
        return base_offset

    def _duplicate(self, decision: AppendDecision) -> AppendResult:
        batch = decision.duplicate
        assert batch is not None
        # Kafka answers with the batch's timestamp here, on CreateTime topics too.
        return AppendResult(
            NO_ERROR,
            batch.first_offset,
            batch.last_offset,
            batch.timestamp_ms,
            self.log_start_offset,
            duplicate=True,
        )

    def _refuse_append(
        self, error: ErrorCode, message: str | None, record_errors: tuple[tuple[int, str], ...] = ()
    ) -> AppendResult:
        # Kafka's answer has the log start offset, except with these errors (ReplicaManager.appendToLocalLog).
        start = -1 if error in _WITHOUT_LOG_START else self.log_start_offset
        return AppendResult(error, log_start_offset=start, message=message, record_errors=record_errors)

    # --- read -----------------------------------------------------------------------------------------------------

    def read_at_once(
        self, offset: int, upper: int, max_bytes: int, min_one_batch: bool, most_read: int, committed: bool
    ) -> FetchDataInfo | None:
        """Return whole batches from `offset` on, below offset `upper`, within one segment and `max_bytes`.

        More than `most_read` bytes are returned as a slice of the file. With `committed` the result has the aborted
        transactions; it is None if they must be searched for, as `read_with_aborted_txns` does.
        """
        if offset >= upper:
            if offset > self.log_end_offset:
                return _OUT_OF_RANGE
            return _NOTHING_COMMITTED if committed else _NOTHING
        if offset < self.log_start_offset:
            return _OUT_OF_RANGE
        if committed and not self.segments.has_no_aborted_txns(offset):
            return None
        records, _, _ = self.segments.read(offset, upper, max_bytes, min_one_batch, most_read)
        return FetchDataInfo(NO_ERROR, records, [] if committed else None)

    def read_with_aborted_txns(
        self, offset: int, upper: int, max_bytes: int, min_one_batch: bool, most_read: int
    ) -> Steps[FetchDataInfo]:
        """Return the same batches with their aborted transactions, for an `offset` below `upper`.

        Raises Moved if segments were replaced or removed meanwhile: the caller tries again.
        """
        records, segment, position = self.segments.read(offset, upper, max_bytes, min_one_batch, most_read)
        end = position + len(records)
        aborted = yield from self.segments.collect_aborted_transactions(offset, segment, end)
        return FetchDataInfo(NO_ERROR, records, aborted)

    def batch_header(self, base_offset: int) -> BatchHeader | None:
        """Return the header of the batch that begins at `base_offset`; None if it is deleted."""
        if not self.log_start_offset <= base_offset < self.log_end_offset:
            return None
        header = self.segments.header_at(base_offset)
        return header if header.base_offset == base_offset else None

    def scan(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield (header, bytes) of every batch from the one that holds `from_offset` up to the current end."""
        return self.segments.scan(max(from_offset, self.log_start_offset))

    # --- durability -----------------------------------------------------------------------------------------------

    def files_to_flush(self) -> list[str]:
        """Return the paths to sync so that the log is durable up to its end: `.log` files, and new names."""
        segments = self.segments.segments_from(max(self.flushed_offset, self.recovery_point))
        paths = [segment.log_path for segment in segments]
        if segments[0].base_offset >= self.flushed_offset or len(segments) > 1:
            metadata = f"{self.directory}/{checkpoints.PARTITION_METADATA}"
            paths += [metadata, self.directory, self.directory.rpartition("/")[0]]
        return paths

    def begin_unsynced_list(self) -> int:
        """Begin a new list of `unsynced`; return the offset up to which the files of the old list have the log."""
        self.unsynced = []
        return self.segments.active.base_offset

    def save(self) -> list[str]:
        """Write index files, epochs and the producer snapshot for a clean stop; return the paths to sync."""
        self._snapshots.stop()
        active = self.segments.active
        if self.epochs.changed:
            self._save_epochs()
        paths = list(self.unsynced)
        if active.has_empty_files():
            active.indexes_saved = True
        elif active.size_bytes == 0 and not self._disk.exists(active.log_path):
            self._disk.write(active.log_path, b"")
        for segment in self.segments:
            if not segment.indexes_saved:
                segment.save_indexes(final=True)
                paths += segment.paths
        if self._snapshots.save(self.log_end_offset):
            paths.append(self._snapshots.path(self.log_end_offset))
        if paths:
            paths.append(self.directory)
        return paths

    def _save_epochs(self) -> None:
        content = checkpoints.encode_epochs(self.epochs.entries)
        path = f"{self.directory}/{checkpoints.LEADER_EPOCHS}"
        self._disk.write_atomically(path, content, sync=False)
        if path not in self.unsynced:
            self.unsynced.append(path)
        self.epochs.mark_clean()

    def _add_unsynced_snapshot(self, path: str) -> None:
        """Add a written snapshot to the files of the next sync."""
        self.unsynced.append(path)

    # --- segments come and go -------------------------------------------------------------------------------------

    def _roll(self) -> None:
        """Seal the active segment and begin the next one. Raises OSError; after a Shortage the log is unchanged."""
        if self.config.flush_messages != INT64_MAX:
            # Batches of the next segment may reach the device first; without the end of this one, or without its name,
            # recovery finds damage. Only few bytes are not flushed yet.
            self.segments.active.file.sync()
            if self.segments.active.base_offset >= self.flushed_offset:
                self._disk.sync_dir(self.directory)
        self.unsynced += self.segments.roll(self._clock.now_ms(), self.config).paths
        try:
            self._snapshots.take(self.log_end_offset)
        except Shortage as short:  # an older snapshot and the batches after it give the same state
            self._failed(short)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start offset to `offset`; False if it is there or above already.

        Open transactions stay open even if they began below it: only a marker ends them.
        """
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.producer_state.forget_ended_txns(offset)
        return True

    def drop_oldest(self, count: int) -> list[LogSegment]:
        """Remove the oldest segments and return them; their files stay. If the active one is among them, roll first."""
        segments = self.segments
        if count == len(segments):
            self._roll()
        if segments.active.size_bytes == 0:
            # Without a file of the new segment, a start after a crash would begin again at offset 0.
            segments.sync()
        removed = segments.remove_first(count)
        self.maybe_increment_log_start_offset(segments.first_offset)
        self.recovery_point = max(self.recovery_point, segments.first_offset)
        self._drop_unsynced_paths(removed)
        return removed

    def replace_segments(self, group: Sequence[LogSegment], segment: LogSegment) -> None:
        """Replace a group of sealed segments by the compacted `segment`, which is on the device."""
        self.segments.replace(group, segment)
        self._drop_unsynced_paths(group, kept=self._snapshots.path(segment.base_offset))

    def _drop_unsynced_paths(self, segments: Sequence[LogSegment], kept: str = "") -> None:
        """Remove the files of removed segments from `unsynced`, except the snapshot `kept`."""
        paths = {path for old in segments for path in (*old.paths, self._snapshots.path(old.base_offset))}
        self.unsynced = [path for path in self.unsynced if path not in paths or path == kept]

    def remove_expired_producers(self, now_ms: int) -> Iterator[int]:
        """Forget producers that were idle for `producer.id.expiration.ms`; yield the numbers of removed ones."""
        return self.producer_state.remove_expired_producers(now_ms, self.config.producer_id_expiration_ms)

    def release_idle_segments(self) -> int:
        """Release descriptors and memory of idle sealed segments; return the number of segments examined."""
        return self.segments.release_idle_segments(frozenset(self.unsynced))

    def stop(self) -> None:
        """Abort a running snapshot."""
        self._snapshots.stop()

    def close(self) -> None:
        """Close the files, and drop the reference to the callback `failed`.

        The partition refers to its log, and the callback to the partition. Without this, a deleted partition would
        stay in memory until a garbage collection, and for ever if one has frozen it (`collector`).
        """
        self.segments.close()
        self._snapshots.close()
        self._failed = ignore


def _clear_append_time(batch: memoryview, header: BatchHeader) -> None:
    """Clear the LogAppendTime bit of a batch for a CreateTime topic; its timestamps stay."""
    write_header(batch, header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE))
    seal(batch)
