"""One partition: what may be appended, what can be read, and how far. shell

Every append is one step: checks, assigned offsets, one write, producer state, high watermark, woken readers. Nothing in
it grows with the number of producers, open transactions or segments.
"""

from collections import deque
from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Final

from ottla.broker.log import checkpoints
from ottla.broker.log.acceptance import recompress, refuse
from ottla.broker.log.batches import BadBatch
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.producers import Origin, Producer, Verdict
from ottla.broker.log.results import AppendResult, Limit, Slice
from ottla.broker.log.settings import PartitionSettings
from ottla.broker.log.timestamps import TimestampOffset, find_largest_timestamp, find_timestamp
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk
from ottla.broker.turns import Wait
from ottla.protocol.batch import (
    TIMESTAMP_TYPE,
    BatchHeader,
    assign_offsets,
    build_marker,
    read_header,
    seal,
    set_append_time,
    set_max_timestamp,
    write_header,
)
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.produced import BatchCheck
from ottla.protocol.snapshot import encode_snapshot

__all__ = ["AppendResult", "Limit", "Partition", "Slice"]

_log = getLogger(__name__)


_OUT_OF_RANGE = Slice(ErrorCode.OFFSET_OUT_OF_RANGE)
_NOTHING = Slice(ErrorCode.NONE)
_NOTHING_STABLE = Slice(ErrorCode.NONE, b"", [])


_WITHOUT_LOG_START: Final = frozenset(
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)
)


class Partition:
    """The leader of a partition. `offline` is None, or why nothing can be read or appended."""

    __slots__ = (
        "_clock",
        "_directory",
        "_disk",
        "_epochs",
        "_expiration_ms",
        "_offline_error",
        "_on_failure",
        "_parked",
        "_pending",
        "_producers",
        "_segments",
        "_snapshot_offset",
        "high_watermark",
        "index",
        "last_stable_offset",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "offline",
        "recovery_point",
        "settings",
        "topic",
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
        producer_id_expiration_ms: int = 86_400_000,
        on_failure: Callable[[OSError], None] | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.settings = settings
        segments = loaded.segments
        self.offline = loaded.damage
        self._offline_error = ErrorCode.KAFKA_STORAGE_ERROR
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = segments.end_offset
        self.high_watermark = segments.end_offset
        self.last_stable_offset = segments.end_offset
        # Everything below is on the device; `unsynced` are the sealed segments' files that a sync must cover next.
        self.recovery_point = loaded.recovery_point
        self.unsynced = list(loaded.unsynced)
        self._disk = disk
        self._clock = clock
        self._directory = loaded.directory
        self._segments = segments
        self._producers = loaded.producers
        self._epochs = loaded.epochs
        self._snapshot_offset = loaded.snapshot_offset
        self._expiration_ms = producer_id_expiration_ms
        self._on_failure = on_failure
        self._parked: dict[Wait[None], None] = {}
        self._pending: deque[tuple[int, Callable[[], None]]] = deque()
        # A leader's epoch begins where its log ends, whether or not it ever appends.
        loaded.epochs.assign(leader_epoch, segments.end_offset)
        self._move_stable_offset()

    @property
    def name(self) -> str:
        """`<topic>-<index>`."""
        return f"{self.topic}-{self.index}"

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment; the log may start later."""
        return self._segments.first_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return self._segments.size_bytes

    # --- append ---------------------------------------------------------------------------------------------------

    def append_produced(self, check: BatchCheck, batch: memoryview) -> AppendResult:
        """Append what a client sent: `check` is that of `batch`, whose bytes are writable and are changed in place."""
        if self.offline is not None:
            return self._storage_error()
        header = check.header
        if header is not None and len(batch) > header.size_bytes:
            batch = batch[: header.size_bytes]
        now_ms = self._clock.now_ms()
        refusal = refuse(check, batch, self.settings, now_ms)
        if refusal is not None or header is None:
            return self._refused(check.error, check.message) if refusal is None else self._refused(*refusal)
        if header.producer_id >= 0:
            verdict = self._producers.check_batch(header, Origin.CLIENT)
            if verdict.error is not ErrorCode.NONE:
                return self._refused(verdict.error, verdict.message)
            if verdict.duplicate is not None:
                return self._duplicate(verdict)
        rebuilt = recompress(header, batch, self.settings)
        if rebuilt is not None:
            if len(rebuilt) > self.settings.max_message_bytes:
                message = f"{len(rebuilt)} bytes as {self.settings.compression_type}"
                return self._refused(ErrorCode.MESSAGE_TOO_LARGE, message)
            batch, header = memoryview(rebuilt), read_header(rebuilt)
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
        self._advance(self.log_end_offset)
        return AppendResult(ErrorCode.NONE, base_offset, self.log_end_offset - 1, append_time_ms, self.log_start_offset)

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
            verdict = self._producers.check_batch(header, Origin.COORDINATOR)
            if verdict.error is not ErrorCode.NONE:
                return self._refused(verdict.error, verdict.message)
        base_offset = self.log_end_offset
        if not self._write(batch, header, header.max_timestamp, self._clock.now_ms()):
            return self._storage_error()
        if header.producer_id >= 0:
            self._producers.apply_batch(header, base_offset, header.max_timestamp)
        self._advance(self.log_end_offset)
        return AppendResult(ErrorCode.NONE, base_offset, self.log_end_offset - 1, -1, self.log_start_offset)

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
        verdict = self._producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        if verdict.error is not ErrorCode.NONE:
            return self._refused(verdict.error, verdict.message)
        now_ms = self._clock.now_ms()
        marker = build_marker(producer_id, producer_epoch, coordinator_epoch, commit, now_ms)
        offset = self.log_end_offset
        if not self._write(marker, read_header(marker), now_ms, now_ms):
            return self._storage_error()
        completed = self._producers.apply_marker(producer_id, producer_epoch, coordinator_epoch, commit, offset, now_ms)
        if completed is not None and completed.aborted:
            self._segments.active.add_aborted(completed.index_entry)
        self._advance(self.log_end_offset)
        return AppendResult(ErrorCode.NONE, offset, offset, -1, self.log_start_offset)

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
            if segments.active.roll_is_due(size_bytes, last_offset, max_timestamp_ms, now_ms, self.settings):
                self._roll(now_ms)
            segments.append(batch, size_bytes, last_offset, max_timestamp_ms)
        except OSError as error:
            self._fail(error)
            return False
        self.log_end_offset = last_offset + 1
        return True

    def _advance(self, end_offset: int) -> None:
        """What was appended below `end_offset` is in the operating system's hands: durable, and readers may see it."""
        self.high_watermark = end_offset
        self._move_stable_offset()
        pending = self._pending
        while pending and pending[0][0] < self.high_watermark:
            pending.popleft()[1]()
        if self._parked:
            self._wake_parked()

    def _move_stable_offset(self) -> None:
        self._producers.high_watermark_moved(self.high_watermark)
        unstable = self._producers.first_unstable_offset()
        if unstable is None:
            self.last_stable_offset = self.high_watermark
        else:
            self.last_stable_offset = min(max(unstable, self.log_start_offset), self.high_watermark)

    def _duplicate(self, verdict: Verdict) -> AppendResult:
        batch = verdict.duplicate
        assert batch is not None
        # Kafka answers with the batch's timestamp here, on CreateTime topics too.
        return AppendResult(
            ErrorCode.NONE,
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

    def transaction_is_open(self, producer_id: int, producer_epoch: int) -> bool:
        return self._producers.transaction_is_open(producer_id, producer_epoch)

    def verification_began(
        self, producer_id: int, producer_epoch: int, first_sequence: int, *, moves_epochs: bool
    ) -> None:
        """The coordinator is asked whether a batch that may begin a transaction here belongs to one.

        `moves_epochs`: the client speaks transactions V2.
        """
        now_ms = self._clock.now_ms()
        self._producers.verification_began(producer_id, producer_epoch, first_sequence, now_ms, moves_epochs)

    def producer_epoch_of(self, producer_id: int) -> int | None:
        producer = self._producers.get(producer_id)
        return None if producer is None else producer.epoch

    def producers(self) -> Iterator[Producer]:
        """Every producer that the partition knows (DescribeProducers)."""
        return iter(self._producers)

    def expire_producers(self, now_ms: int) -> Iterator[int]:
        """Forget producers that were quiet for `producer.id.expiration.ms`: how many, slice by slice."""
        return self._producers.expire(now_ms, self._expiration_ms)

    # --- read -----------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, limit: Limit = Limit.HIGH_WATERMARK, min_one_batch: bool = True
    ) -> Slice:
        """Whole batches from `offset` below the limit, of one segment. Empty at the limit."""
        if self.offline is not None:
            return Slice(self._offline_error)
        stable = limit is Limit.STABLE
        upper = self._upper(limit)
        if offset >= upper:
            if offset > self.log_end_offset:
                return _OUT_OF_RANGE
            return _NOTHING_STABLE if stable else _NOTHING
        if offset < self.log_start_offset:
            return _OUT_OF_RANGE
        try:
            chunk = self._segments.read(offset, upper, max_bytes, min_one_batch)
            aborted = self._segments.aborted(offset, chunk) if stable else None
        except ProtocolError as bad:
            self._damaged(bad)
            return Slice(self._offline_error)
        except OSError as error:
            self._fail(error)
            return Slice(self._offline_error)
        return Slice(ErrorCode.NONE, chunk.data, aborted)

    def bytes_available(self, offset: int, limit: Limit, enough: int) -> int:
        """Bytes that a read from `offset` would find; exact below `enough` only."""
        upper = self._upper(limit)
        if self.offline is not None or not self.log_start_offset <= offset < upper:
            return 0
        if enough <= 1:
            return 1
        try:
            return self._segments.bytes_between(offset, upper, enough)
        except BadBatch as bad:
            self._damaged(bad)
        except OSError as error:
            self._fail(error)
        return 0

    def scan(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """(header, bytes) of every batch from the one that holds `from_offset` up to the end as it is now."""
        return self._segments.scan(max(from_offset, self.log_start_offset))

    def offset_for_timestamp(self, timestamp_ms: int, limit: Limit) -> TimestampOffset:
        """(offset, timestamp, leader epoch) of the first record of at least `timestamp_ms`; -1 each if none."""
        return self._located(lambda: find_timestamp(self._segments, timestamp_ms, self.log_start_offset), limit)

    def max_timestamp_offset(self, limit: Limit) -> TimestampOffset:
        """(offset, timestamp, leader epoch) of the record with the largest timestamp; -1 each if there is none."""
        return self._located(lambda: find_largest_timestamp(self._segments), limit)

    def _located(self, find: Callable[[], tuple[int, int] | None], limit: Limit) -> TimestampOffset:
        """What `find` finds; nothing if it meets damage, which takes the partition offline."""
        found = None
        try:
            found = find() if self.offline is None else None
        except ProtocolError as bad:
            self._damaged(bad)
        except OSError as error:
            self._fail(error)
        if found is None or found[0] >= self._upper(limit):
            return TimestampOffset(-1, -1, -1)
        return TimestampOffset(found[0], found[1], self._epochs.epoch_of(found[0]))

    def epoch_of(self, offset: int) -> int:
        """Leader epoch of the record at `offset`, -1 if unknown."""
        return self._epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset), (-1, -1) if undefined."""
        return self._epochs.end_offset_of(epoch, self.log_end_offset)

    def _upper(self, limit: Limit) -> int:
        if limit is Limit.STABLE:
            return self.last_stable_offset
        return self.high_watermark if limit is Limit.HIGH_WATERMARK else self.log_end_offset

    # --- waiting --------------------------------------------------------------------------------------------------

    def park(self, wait: Wait[None]) -> None:
        """Wake `wait` when there is more to read, or when the partition goes offline."""
        self._parked[wait] = None

    def unpark(self, wait: Wait[None]) -> None:
        self._parked.pop(wait, None)

    def when_durable(self, offset: int, callback: Callable[[], None]) -> None:
        """Run `callback` when `offset` is below the high watermark: at once, if it is."""
        if offset < self.high_watermark:
            callback()
        else:
            self._pending.append((offset, callback))

    def _wake_parked(self) -> None:
        parked, self._parked = self._parked, {}
        for wait in parked:
            wait.wake(None)

    # --- life -----------------------------------------------------------------------------------------------------

    def save(self) -> list[str]:
        """Write index files, epochs and the producer snapshot for a clean stop; the files that must be synced now."""
        active = self._segments.active
        paths = list(self.unsynced)
        if self._epochs.changed:
            self._save_epochs()
        if active.size_bytes == 0 and not self._disk.exists(active.log_path):
            self._disk.write(active.log_path, b"")
        for segment in self._segments:
            if not segment.indexes_saved:
                segment.save_indexes(final=True)
                paths += segment.paths
        if self._save_snapshot():
            paths.append(self._snapshot_path(self.log_end_offset))
        return paths

    def sync(self) -> None:
        """Put the active segment, and the names that lead to it, on the device. Raises OSError."""
        self._segments.sync()

    def take_unsynced(self) -> int:
        """Begin a new list of `unsynced`; the offset up to which the files of the old one hold the log."""
        self.unsynced = []
        return self._segments.active.base_offset

    def rest(self) -> None:
        """Give back what sealed segments hold and nobody uses."""
        self._segments.rest()

    def close(self) -> None:
        """Close the files for good; `save` comes before if the partition is to be found as it is."""
        self.take_offline("the log is closed")
        self._segments.close()

    def take_offline(self, reason: str, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """Answer `error` from now on."""
        if self.offline is None:
            self.offline = reason
            self._offline_error = error
            self._wake_parked()

    def _roll(self, now_ms: int) -> None:
        sealed = self._segments.roll(now_ms, self.settings)
        self._save_snapshot()
        self.unsynced += [*sealed.paths, self._snapshot_path(self.log_end_offset)]

    def _save_snapshot(self) -> bool:
        """As in Kafka, none is written without progress since the last one; an empty log has none."""
        if self.log_end_offset <= max(self._snapshot_offset, 0):
            return False
        self._disk.write(self._snapshot_path(self.log_end_offset), encode_snapshot(self._producers.snapshot()))
        self._snapshot_offset = self.log_end_offset
        return True

    def _snapshot_path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}.snapshot"

    def _save_epochs(self) -> None:
        content = checkpoints.encode_epochs(self._epochs.entries)
        self._disk.write_atomically(f"{self._directory}/{checkpoints.LEADER_EPOCHS}", content, sync=False)
        self._epochs.changed = False

    def _damaged(self, bad: ProtocolError) -> None:
        self.take_offline(f"{self._directory} is damaged: {bad}")
        _log.error("%s: %s; --truncate-damaged %s gives up what follows", self.name, self.offline, self.name)

    def _fail(self, error: OSError) -> None:
        self.take_offline(f"storage failed: {error}")
        _log.error("%s: %s", self.name, self.offline)
        if self._on_failure is not None:
            self._on_failure(error)


def _clear_append_time(batch: memoryview, header: BatchHeader) -> None:
    """A CreateTime topic takes over the timestamps of a batch that claims LogAppendTime, but not the claim."""
    write_header(batch, header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE))
    seal(batch)
