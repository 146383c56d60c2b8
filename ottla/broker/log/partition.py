"""One partition: what may be appended, and when it is durable. shell

Every append is one step: checks, assigned offsets, one write, producer state, high watermark, woken readers. Nothing in
it grows with the number of producers, open transactions or segments.

What is written is in the operating system's hands and counts at once; or, after `flush.messages` records, once it is on
the device: the high watermark then follows the flushes, and who must know waits in `when_durable`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ottla.broker.log import checkpoints
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_segment import LogSegment
from ottla.broker.log.log_validator import ValidationFailure, ValidationResult, validate, validate_at_once
from ottla.broker.log.producer_state_entry import AppendDecision, ProducerStateEntry
from ottla.broker.log.producer_state_manager import AppendOrigin
from ottla.broker.log.readable import ReadableLog
from ottla.broker.log.results import AppendResult
from ottla.broker.log.settings import MAX_INT64, PartitionSettings
from ottla.broker.log.snapshot_writer import SnapshotWriter
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.ports.disk import Disk
from ottla.broker.turns import Turns
from ottla.protocol.batch import build_marker
from ottla.protocol.batch_header import (
    TIMESTAMP_TYPE,
    BatchHeader,
    assign_offsets,
    read_header,
    seal,
    set_append_time,
    set_max_timestamp,
    write_header,
)
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.produced import BatchCheck, Checked
from ottla.protocol.steps import Steps, to_the_end

OnDurable = Callable[[ErrorCode], None]
"""Told NONE when the log is durable up to where it was asked, or why it never will be."""

_CLIENT: Final = AppendOrigin.CLIENT
_COORDINATOR: Final = AppendOrigin.COORDINATOR
_WITHOUT_LOG_START: Final = frozenset(
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)
)


class Partition(ReadableLog):
    """The leader of a partition. `offline` is None, or why nothing can be read or appended."""

    __slots__ = (
        "_clock",
        "_disk",
        "_flush",
        "_pending",
        "_producers",
        "_snapshots",
        "flushed_offset",
        "leader_epoch",
        "recovery_point",
        "settings",
        "topic_id",
        "unsynced",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        leader_epoch: int,
        settings: PartitionSettings,
        *,
        loaded: LoadedLog,
        disk: Disk,
        clock: Clock,
        turns: Turns | None = None,
        on_failure: Callable[[OSError], None] | None = None,
        flush: Callable[["Partition"], None] | None = None,
    ) -> None:
        super().__init__(topic, index, loaded, on_failure)
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.settings = settings
        # Everything below is on the device with its indexes; `unsynced` are the sealed segments' files that a sync
        # must cover next.
        self.recovery_point = loaded.recovery_point
        self.unsynced = list(loaded.unsynced)
        # Every batch below is on the device: loading has synced what it found.
        self.flushed_offset = self.log_end_offset
        self._disk = disk
        self._clock = clock
        self._producers = loaded.producers
        self._snapshots = SnapshotWriter(
            disk, turns, loaded.directory, loaded.producers, loaded.snapshot_offset, self._hold_snapshot, self._fail
        )
        self._flush = flush
        self._pending: deque[tuple[int, OnDurable]] = deque()
        self.lead(leader_epoch)
        self._move_stable_offset()

    @property
    def latest_epoch(self) -> int:
        """The leader epoch that the log was last written or led in; -1 if it never was."""
        return self._epochs.latest_epoch

    def lead(self, leader_epoch: int) -> None:
        """Write in this epoch from now on. It begins where the log ends, whether or not anything is ever appended."""
        self.leader_epoch = leader_epoch
        self._epochs.assign(leader_epoch, self.log_end_offset)

    # --- append ---------------------------------------------------------------------------------------------------

    def validate(self, checked: Checked, batch: memoryview) -> Steps[ValidationResult]:
        """Do in steps what the topic's settings demand of a batch, so that its append is short."""
        return validate(checked, batch, self.settings, self._clock.now_ms())

    def validate_at_once(self, check: BatchCheck, batch: memoryview) -> ValidationResult | None:
        """What `validate` comes to where that is short, as mostly; else None."""
        return validate_at_once(check, batch, self.settings, self._clock.now_ms())

    def append_produced(
        self, check: BatchCheck, batch: memoryview, validated: ValidationResult | None = None
    ) -> AppendResult:
        """Append what a client sent: `check` is that of `batch`, whose bytes are writable and are changed in place.

        What was not validated, or for other settings, is validated here and now, however long that takes.
        """
        if self.offline is not None:
            return self._storage_error()
        if validated is None or validated.settings is not self.settings:
            validated = to_the_end(self.validate(Checked(check, None), batch))
        header = check.header
        if validated.failure is not None or header is None:
            return self._refused(*(validated.failure or (check.error, check.message)))
        batch = batch[: header.size_bytes]
        now_ms = self._clock.now_ms()
        if header.producer_id >= 0:
            decision = self._producers.check_batch(header, _CLIENT, self.settings.refuse_sequence_reuse)
            if decision.error is not NO_ERROR:
                return self._refused(decision.error, decision.message)
            if decision.duplicate is not None:
                return self._duplicate(decision)
        recompressed = validated.recompressed
        if recompressed is not None:
            if isinstance(recompressed, ValidationFailure):
                return self._refused(*recompressed)
            batch, header = memoryview(recompressed), read_header(recompressed)
        append_time_ms = -1
        max_timestamp_ms = check.max_timestamp
        if self.settings.log_append_time:
            append_time_ms = max_timestamp_ms = now_ms
            set_append_time(batch, now_ms)
        elif header.is_log_append_time:
            _clear_append_time(batch, header)
        elif header.max_timestamp != max_timestamp_ms:
            set_max_timestamp(batch, max_timestamp_ms)
        base_offset = self.log_end_offset
        if not self._write(batch, header, max_timestamp_ms, now_ms):
            return self._storage_error()
        if header.producer_id >= 0:
            self._producers.apply_batch(header, base_offset, max_timestamp_ms)
        self._written()
        return AppendResult(NO_ERROR, base_offset, self.log_end_offset - 1, append_time_ms, self.log_start_offset)

    def append_own(self, batch: bytearray) -> AppendResult:
        """Append one batch that a coordinator or the cluster built; producer epochs count, sequences do not."""
        if self.offline is not None:
            return self._storage_error()
        header = read_header(batch)
        if len(batch) > self.settings.max_message_bytes:
            return self._refused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {len(batch)} bytes, the topic allows {self.settings.max_message_bytes}",
            )
        if len(batch) > self.settings.segment_bytes:
            return self._refused(ErrorCode.RECORD_LIST_TOO_LARGE, f"batch of {len(batch)} bytes for a segment")
        if header.producer_id >= 0:
            decision = self._producers.check_batch(header, _COORDINATOR)
            if decision.error is not NO_ERROR:
                return self._refused(decision.error, decision.message)
        base_offset = self.log_end_offset
        if not self._write(batch, header, header.max_timestamp, self._clock.now_ms()):
            return self._storage_error()
        if header.producer_id >= 0:
            self._producers.apply_batch(header, base_offset, header.max_timestamp)
        self._written()
        return AppendResult(NO_ERROR, base_offset, self.log_end_offset - 1, -1, self.log_start_offset)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> AppendResult:
        """Append the end of a transaction. Without an open one the marker is written all the same, as Kafka does."""
        if self.offline is not None:
            return self._storage_error()
        decision = self._producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        if decision.error is not NO_ERROR:
            return self._refused(decision.error, decision.message)
        now_ms = self._clock.now_ms()
        marker = build_marker(producer_id, producer_epoch, coordinator_epoch, commit, now_ms)
        offset = self.log_end_offset
        if not self._write(marker, read_header(marker), now_ms, now_ms):
            return self._storage_error()
        completed = self._producers.apply_marker(producer_id, producer_epoch, coordinator_epoch, commit, offset, now_ms)
        if completed is not None and completed.aborted:
            self._segments.active.add_aborted(completed.index_entry)
        self._written()
        return AppendResult(NO_ERROR, offset, offset, -1, self.log_start_offset)

    def _write(self, batch: bytearray | memoryview, header: BatchHeader, max_timestamp_ms: int, now_ms: int) -> bool:
        """Assign offsets, roll if due, write. False: the write failed and the log is offline."""
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        size_bytes = len(batch)
        assign_offsets(batch, base_offset, self.leader_epoch)
        segments = self._segments
        try:
            if self._epochs.changed:
                self._save_epochs()
            if segments.active.should_roll(size_bytes, last_offset, max_timestamp_ms, now_ms, self.settings):
                self._roll(now_ms)
            segments.append(batch, size_bytes, last_offset, max_timestamp_ms)
        except OSError as error:
            self._fail(error)
            return False
        self.log_end_offset = last_offset + 1
        return True

    def _written(self) -> None:
        """What was appended is in the operating system's hands; that is enough, or a flush has to come."""
        end_offset = self.log_end_offset
        if end_offset - self.flushed_offset >= self.settings.flush_messages and self._flush is not None:
            self._flush(self)
        else:
            self._advance(end_offset)

    def _advance(self, end_offset: int) -> None:
        """What was appended below `end_offset` is as durable as it was promised: readers may see it."""
        self.high_watermark = end_offset
        self._move_stable_offset()
        pending = self._pending
        while pending and pending[0][0] < self.high_watermark:
            pending.popleft()[1](NO_ERROR)
        if self._parked:
            self._wake_parked()

    def _move_stable_offset(self) -> None:
        self._producers.on_high_watermark_updated(self.high_watermark)
        unstable = self._producers.first_unstable_offset()
        if unstable is None:
            self.last_stable_offset = self.high_watermark
        else:
            self.last_stable_offset = min(max(unstable, self.log_start_offset), self.high_watermark)

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

    def _refused(
        self, error: ErrorCode, message: str | None, record_errors: tuple[tuple[int, str], ...] = ()
    ) -> AppendResult:
        # Kafka's answer says where the log starts unless the error is one of a few (ReplicaManager.appendToLocalLog).
        start = -1 if error in _WITHOUT_LOG_START else self.log_start_offset
        return AppendResult(error, log_start_offset=start, message=message, record_errors=record_errors)

    def _storage_error(self) -> AppendResult:
        return AppendResult(self._offline_error, message=self.offline)

    # --- producers ------------------------------------------------------------------------------------------------

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self._producers.has_ongoing_transaction(producer_id, producer_epoch)

    def maybe_start_transaction_verification(
        self, producer_id: int, producer_epoch: int, first_sequence: int, *, supports_epoch_bump: bool
    ) -> None:
        """The coordinator is asked whether a batch that may begin a transaction here belongs to one.

        `supports_epoch_bump`: the client speaks transactions V2.
        """
        now_ms = self._clock.now_ms()
        self._producers.maybe_create_verification_state_entry(
            producer_id, producer_epoch, first_sequence, now_ms, supports_epoch_bump
        )

    def producer_epoch_of(self, producer_id: int) -> int | None:
        producer = self._producers.get(producer_id)
        return None if producer is None else producer.epoch

    def producer_of(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def producers(self) -> Iterator[ProducerStateEntry]:
        """Every producer that the partition knows (DescribeProducers); a walk may take many turns."""
        return iter(self._producers)

    @property
    def producer_count(self) -> int:
        """How many producers the partition knows."""
        return len(self._producers)

    def expire_producers(self, now_ms: int) -> Iterator[int]:
        """Forget producers that were quiet for `producer.id.expiration.ms`: how many, slice by slice."""
        return self._producers.remove_expired_producers(now_ms, self.settings.producer_id_expiration_ms)

    # --- durability -----------------------------------------------------------------------------------------------

    def when_durable(self, offset: int, callback: OnDurable) -> None:
        """Run `callback` when `offset` is below the high watermark: at once, if it is."""
        if offset < self.high_watermark:
            callback(NO_ERROR)
        elif self.offline is not None:
            callback(self._offline_error)
        else:
            self._pending.append((offset, callback))

    def files_to_flush(self) -> list[str]:
        """What must reach the device for the log to be there up to its end: files of batches, and new names."""
        segments = self._segments.ending_behind(max(self.flushed_offset, self.recovery_point))
        paths = [segment.log_path for segment in segments]
        if segments[0].base_offset >= self.flushed_offset or len(segments) > 1:
            metadata = f"{self._directory}/{checkpoints.PARTITION_METADATA}"
            paths += [metadata, self._directory, self._directory.rpartition("/")[0]]
        return paths

    def flushed(self, end_offset: int) -> None:
        """A flush that began when the log ended at `end_offset` has ended."""
        end_offset = self.flushed_offset = max(end_offset, self.flushed_offset)
        if self.offline is not None:
            return
        if self.log_end_offset - end_offset < self.settings.flush_messages:
            self._advance(self.log_end_offset)
            return
        self._advance(end_offset)
        if self._flush is not None:
            self._flush(self)

    # --- life -----------------------------------------------------------------------------------------------------

    def save(self) -> list[str]:
        """Write index files, epochs and the producer snapshot for a clean stop; the files that must be synced now."""
        self._snapshots.stop()
        active = self._segments.active
        if self._epochs.changed:
            self._save_epochs()
        paths = list(self.unsynced)
        if active.has_empty_files():
            active.indexes_saved = True
        elif active.size_bytes == 0 and not self._disk.exists(active.log_path):
            self._disk.write(active.log_path, b"")
        for segment in self._segments:
            if not segment.indexes_saved:
                segment.save_indexes(final=True)
                paths += segment.paths
        if self._snapshots.save(self.log_end_offset):
            paths.append(self._snapshots.path(self.log_end_offset))
        if paths:
            paths.append(self._directory)
        return paths

    def sync(self) -> None:
        """Put the active segment, and the names that lead to it, on the device. Raises OSError."""
        self._segments.sync()

    def take_unsynced(self) -> int:
        """Begin a new list of `unsynced`; the offset up to which the files of the old one hold the log."""
        self.unsynced = []
        return self._segments.active.base_offset

    def replace_segments(self, group: Sequence[LogSegment], segment: LogSegment) -> None:
        """Compaction has put `segment`, which is on the device, in the place of a group of sealed ones."""
        self._segments.replace(group, segment)
        gone = {path for old in group for path in (*old.paths, self._snapshots.path(old.base_offset))}
        gone.discard(self._snapshots.path(segment.base_offset))
        self.unsynced = [path for path in self.unsynced if path not in gone]

    def raise_log_start(self, offset: int) -> None:
        """Let the log begin at `offset`, which is not above the high watermark; nothing if it begins there or behind.

        Transactions that are open stay so, wherever they began: only their marker ends them.
        """
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        self._producers.on_log_start_offset_updated(offset)
        self._move_stable_offset()
        self._wake_parked()

    def drop_oldest(self, count: int) -> list[LogSegment]:
        """Take the oldest segments out of the log, the active one too if it is rolled for that; none if IO fails."""
        segments = self._segments
        try:
            if count == len(segments):
                self._roll(self._clock.now_ms())
            if segments.active.size_bytes == 0:
                # Without a file of the new segment, a start after a crash would begin again at offset 0.
                segments.sync()
        except OSError as error:
            self._fail(error)
            return []
        removed = segments.remove_first(count)
        self.raise_log_start(segments.first_offset)
        self.recovery_point = max(self.recovery_point, segments.first_offset)
        gone = {path for segment in removed for path in (*segment.paths, self._snapshots.path(segment.base_offset))}
        self.unsynced = [path for path in self.unsynced if path not in gone]
        return removed

    def rest(self) -> int:
        """Give back what sealed segments hold and nobody uses; how many of them were looked at."""
        return self._segments.rest(frozenset(self.unsynced))

    def close(self) -> None:
        """Close the files for good; `save` comes before if the partition is to be found as it is."""
        self.take_offline("the log is closed")
        self._segments.close()

    def take_offline(self, reason: str, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """Answer `error` from now on, also to those who wait for what they have appended."""
        super().take_offline(reason, error)
        self._snapshots.stop()
        pending, self._pending = self._pending, deque()
        for _, callback in pending:
            callback(self._offline_error)

    def _roll(self, now_ms: int) -> None:
        """Seal the active segment and begin the next. Raises OSError; after a Shortage the log is as it was."""
        if self.settings.flush_messages != MAX_INT64:
            # Batches of the next segment may reach the device first; without the end of this one, or without its name,
            # that is damage. What is not flushed yet is little.
            self._segments.active.file.sync()
            if self._segments.active.base_offset >= self.flushed_offset:
                self._disk.sync_dir(self._directory)
        self.unsynced += self._segments.roll(now_ms, self.settings).paths
        try:
            self._snapshots.take(self.log_end_offset)
        except Shortage as short:  # an older one, and the batches behind it, say the same
            self._fail(short)

    def _hold_snapshot(self, path: str) -> None:
        """A snapshot was written: a sync must cover it."""
        self.unsynced.append(path)

    def _save_epochs(self) -> None:
        content = checkpoints.encode_epochs(self._epochs.entries)
        path = f"{self._directory}/{checkpoints.LEADER_EPOCHS}"
        self._disk.write_atomically(path, content, sync=False)
        if path not in self.unsynced:
            self.unsynced.append(path)
        self._epochs.saved()


def _clear_append_time(batch: memoryview, header: BatchHeader) -> None:
    """A CreateTime topic takes over the timestamps of a batch that claims LogAppendTime, but not the claim."""
    write_header(batch, header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE))
    seal(batch)
