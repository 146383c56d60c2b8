"""The leader of a partition: its high watermark and last stable offset, and the requests that wait for them. shell

Readers see the log below the high watermark, or below the last stable offset. An append counts as durable once the
operating system has it. With `flush.messages` it counts once it is on the device: then the high watermark follows the
flushes, and callers of `when_durable` wait. A log whose files cannot be read or written, or are damaged, takes its
partition offline.

Source: Kafka's `Partition`, and `UnifiedLog` for the high watermark and the last stable offset.
"""

from collections import deque
from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Final

from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_validator import ValidationResult
from ottla.broker.log.producer_state_entry import ProducerStateEntry
from ottla.broker.log.results import AppendResult, FetchDataInfo, FetchIsolation
from ottla.broker.log.segments.log_segment import LogSegment
from ottla.broker.log.segments.log_segments import EVERYTHING, Moved
from ottla.broker.log.unified_log import UnifiedLog
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.ports.disk import Disk
from ottla.broker.turns import Turns, Wait
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.errors import NO_ERROR, ErrorCode, ProtocolError
from ottla.protocol.requests.produced import BatchCheck
from ottla.protocol.steps import BYTE_US, Steps, to_the_end
from ottla.protocol.values import TransactionMarker

_log = getLogger(__name__)

OnDurable = Callable[[ErrorCode], None]
"""Callback with NONE when an offset is durable, or with the error that prevents it."""

_PIECE_BYTES: Final = 1 << 20
_TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
_HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK


class Partition:
    """The leader of a partition and its `log`. `offline` is None, or the reason why all reads and appends fail."""

    __slots__ = (
        "_clock",
        "_flush",
        "_offline_error",
        "_on_failure",
        "_pending",
        "_waiting_fetches",
        "bytes_in",
        "bytes_out",
        "fetch_requests",
        "high_watermark",
        "in_sync",
        "index",
        "last_stable_offset",
        "leader_epoch",
        "log",
        "offline",
        "produce_requests",
        "records_in",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        leader_epoch: int,
        settings: LogConfig,
        *,
        loaded: LoadedLog,
        disk: Disk,
        clock: Clock,
        turns: Turns | None = None,
        on_failure: Callable[[OSError], None] | None = None,
        flush: Callable[["Partition"], None] | None = None,
    ) -> None:
        """Create an open partition. `on_failure` is called with the error of failed IO. `flush` syncs the log and
        then calls `complete_flush`."""
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = UnifiedLog(loaded, settings, disk, clock, turns, self._fail)
        self.offline = loaded.damage
        self.high_watermark = self.log.log_end_offset
        self.last_stable_offset = self.log.log_end_offset
        self._offline_error = ErrorCode.KAFKA_STORAGE_ERROR
        self.replicas = self.in_sync = 1
        self.bytes_in = self.bytes_out = self.records_in = self.produce_requests = self.fetch_requests = 0
        self._clock = clock
        self._on_failure = on_failure
        self._flush = flush
        # Waiting fetches, and whether each reads committed.
        self._waiting_fetches: dict[Wait[None], bool] = {}
        self._pending: deque[tuple[int, OnDurable]] = deque()
        self.lead(leader_epoch)
        self._move_last_stable_offset()

    @property
    def name(self) -> str:
        """`<topic>-<index>`."""
        return f"{self.topic}-{self.index}"

    @property
    def about(self) -> dict[str, object]:
        """Fields of a log line about the partition."""
        return {"topic": self.topic, "partition": self.index}

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.log_end_offset

    def lead(self, leader_epoch: int) -> None:
        """Append in this epoch from now on. It begins at the end of the log, even if no record is appended in it.

        Waiting fetches are woken, because their epoch is an old one now.
        """
        self.leader_epoch = leader_epoch
        self.log.epochs.assign(leader_epoch, self.log.log_end_offset)
        self._wake_fetches()

    @property
    def lacks_replicas(self) -> bool:
        """Whether fewer replicas are in sync than `min.insync.replicas` demands. More than there are count as all."""
        return self.in_sync < self.replicas and self.in_sync < self.log.config.min_insync_replicas

    # --- append ---------------------------------------------------------------------------------------------------

    def append_from_client(
        self, check: BatchCheck, batch: memoryview, validated: ValidationResult | None = None
    ) -> AppendResult:
        """Append a batch of a client (`UnifiedLog.append_as_leader`)."""
        if self.offline is not None:
            return self._storage_error()
        try:
            result = self.log.append_as_leader(check, batch, self.leader_epoch, validated)
        except OSError as error:
            return self._fail_append(error)
        if result.error is NO_ERROR and not result.duplicate:
            self._after_append()
        return result

    def append_own(self, batch: bytearray) -> AppendResult:
        """Append one batch that a coordinator or the cluster built (`UnifiedLog.append_of_coordinator`)."""
        if self.offline is not None:
            return self._storage_error()
        if self.in_sync < self.replicas and self.lacks_replicas:
            return AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            result = self.log.append_of_coordinator(batch, self.leader_epoch)
        except OSError as error:
            return self._fail_append(error)
        if result.error is NO_ERROR:
            self._after_append()
        return result

    def append_marker(self, marker: TransactionMarker) -> AppendResult:
        """Append the marker that ends a transaction (`UnifiedLog.append_end_txn_marker`)."""
        if self.offline is not None:
            return self._storage_error()
        if self.in_sync < self.replicas and self.lacks_replicas:
            return AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            result = self.log.append_end_txn_marker(marker, self.leader_epoch)
        except OSError as error:
            return self._fail_append(error)
        if result.error is NO_ERROR:
            self._after_append()
        return result

    def _fail_append(self, error: OSError) -> AppendResult:
        self._fail(error)
        return self._storage_error()

    def _storage_error(self) -> AppendResult:
        return AppendResult(self._offline_error, message=self.offline)

    # --- the high watermark and the last stable offset ------------------------------------------------------------

    def _after_append(self) -> None:
        """Request a flush if `flush.messages` records are unflushed, else advance the high watermark."""
        log = self.log
        end_offset = log.log_end_offset
        if end_offset - log.flushed_offset >= log.config.flush_messages and self._flush is not None:
            self._flush(self)
        else:
            self._advance(end_offset)

    def complete_flush(self, end_offset: int) -> None:
        """Advance the high watermark after a flush of the log up to `end_offset`."""
        log = self.log
        end_offset = log.flushed_offset = max(end_offset, log.flushed_offset)
        if self.offline is not None:
            return
        if log.log_end_offset - end_offset < log.config.flush_messages:
            self._advance(log.log_end_offset)
            return
        self._advance(end_offset)
        if self._flush is not None:
            self._flush(self)

    def _advance(self, end_offset: int) -> None:
        """Advance the high watermark to `end_offset`; below it the log is as durable as `flush.messages` demands."""
        self.high_watermark = end_offset
        producers = self.log.producer_state
        if producers.ongoing_txns or producers.unreplicated_txns:
            self._move_last_stable_offset()
        else:
            self.last_stable_offset = end_offset
        pending = self._pending
        while pending and pending[0][0] < self.high_watermark:
            pending.popleft()[1](NO_ERROR)
        if self._waiting_fetches:
            self._wake_fetches()

    def _move_last_stable_offset(self) -> None:
        """Update the last stable offset.

        It is the first offset of the earliest transaction that is open, or whose marker is not yet below the high
        watermark. Without such a transaction it is the high watermark.
        """
        log = self.log
        log.producer_state.forget_ended_txns(self.high_watermark)
        unstable = log.producer_state.first_unstable_offset()
        if unstable is None:
            self.last_stable_offset = self.high_watermark
        else:
            self.last_stable_offset = min(max(unstable, log.log_start_offset), self.high_watermark)

    def raise_log_start(self, offset: int) -> None:
        """Raise the log start offset to `offset`, which is not above the high watermark; never lower it."""
        if self.log.maybe_increment_log_start_offset(offset):
            self._update_after_log_start_change()

    def drop_oldest(self, count: int) -> list[LogSegment]:
        """Remove the oldest segments (`UnifiedLog.drop_oldest`); return none if IO fails."""
        log_start_offset = self.log.log_start_offset
        try:
            removed = self.log.drop_oldest(count)
        except OSError as error:
            self._fail(error)
            return []
        if self.log.log_start_offset != log_start_offset:
            self._update_after_log_start_change()
        return removed

    def _update_after_log_start_change(self) -> None:
        self._move_last_stable_offset()
        self._wake_fetches()

    # --- waiting requests -----------------------------------------------------------------------------------------

    def when_durable(self, offset: int, callback: OnDurable) -> None:
        """Call `callback` when `offset` is below the high watermark, at once if it is already."""
        if offset < self.high_watermark:
            callback(NO_ERROR)
        elif self.offline is not None:
            callback(self._offline_error)
        else:
            self._pending.append((offset, callback))

    def add_waiting_fetch(self, wait: Wait[None], committed: bool = False) -> None:
        """Wake `wait` when there is more to read, or when the partition goes offline.

        `committed`: the fetch reads committed (reported by `waiting_committed`).
        """
        self._waiting_fetches[wait] = committed

    def remove_waiting_fetch(self, wait: Wait[None]) -> None:
        """Remove a wait; no effect if it was woken."""
        self._waiting_fetches.pop(wait, None)

    @property
    def waiting(self) -> int:
        """Number of fetches that wait for more."""
        return len(self._waiting_fetches)

    @property
    def waiting_committed(self) -> int:
        """Number of waiting fetches that read committed."""
        return sum(self._waiting_fetches.values())

    def _wake_fetches(self) -> None:
        fetches, self._waiting_fetches = self._waiting_fetches, {}
        for wait in fetches:
            wait.wake(None)

    # --- read -----------------------------------------------------------------------------------------------------

    def last_fetchable_offset(self, isolation: FetchIsolation) -> int:
        """Return the offset after the last record that a reader may see."""
        if isolation is _TXN_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark if isolation is _HIGH_WATERMARK else self.log.log_end_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        min_one_batch: bool = True,
    ) -> FetchDataInfo:
        """Return whole batches of one segment from `offset` on, as bytes; no bytes if `isolation` hides all of them."""
        return to_the_end(self.fetch(offset, max_bytes, EVERYTHING, isolation=isolation, min_one_batch=min_one_batch))

    def fetch(
        self, offset: int, max_bytes: int, most_read: int, *, isolation: FetchIsolation, min_one_batch: bool
    ) -> Steps[FetchDataInfo]:
        """Do `read` in steps. More than `most_read` bytes are returned as a slice of the file."""
        while True:
            found = self.fetch_at_once(offset, max_bytes, most_read, isolation, min_one_batch)
            if found is not None:
                return found
            upper = self.last_fetchable_offset(isolation)
            try:
                return (yield from self.log.read_with_aborted_txns(offset, upper, max_bytes, min_one_batch, most_read))
            except Moved:
                continue
            except (ProtocolError, OSError) as error:
                self.fail_read(error)
            return FetchDataInfo(self._offline_error)

    def fetch_at_once(
        self, offset: int, max_bytes: int, most_read: int, isolation: FetchIsolation, min_one_batch: bool
    ) -> FetchDataInfo | None:
        """Return the result of `fetch` in the common case without a search for aborted transactions; else None."""
        if self.offline is None:
            committed = isolation is _TXN_COMMITTED
            upper = self.last_fetchable_offset(isolation)
            try:
                return self.log.read_at_once(offset, upper, max_bytes, min_one_batch, most_read, committed)
            except (ProtocolError, OSError) as error:
                self.fail_read(error)
        return FetchDataInfo(self._offline_error)

    def bytes_available(self, offset: int, isolation: FetchIsolation, enough: int) -> int:
        """Return the bytes that a read from `offset` would find; exact only below `enough`."""
        upper = self.last_fetchable_offset(isolation)
        if self.offline is not None or not self.log.log_start_offset <= offset < upper:
            return 0
        if enough <= 1:
            return 1
        try:
            return self.log.segments.bytes_between(offset, upper, enough)
        except (ProtocolError, OSError) as error:
            self.fail_read(error)
        return 0

    def scan(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield (header, bytes) of every batch from the one that holds `from_offset` up to the current end.

        Raises ProtocolError and OSError, and takes the partition offline then, as any failed read does.
        """
        try:
            yield from self.log.scan(from_offset)
        except (ProtocolError, OSError) as error:
            self.fail_read(error)
            raise

    def batch_header(self, base_offset: int) -> BatchHeader | None:
        """Return the header of the batch that begins at `base_offset`; None if it is deleted or unreadable."""
        if self.offline is None:
            try:
                return self.log.batch_header(base_offset)
            except (ProtocolError, OSError) as error:
                self.fail_read(error)
        return None

    def batch_bytes(self, header: BatchHeader) -> Steps[bytearray | None]:
        """Return the batch with this `batch_header`; None if it is deleted meanwhile, or unreadable."""
        batch = bytearray()
        segments = self.log.segments
        replaced = segments.replaced
        while len(batch) < header.size_bytes:
            if self.offline is not None or segments.replaced != replaced:
                return None
            size_bytes = min(_PIECE_BYTES, header.size_bytes - len(batch))
            try:
                batch += segments.part_of_batch(header.base_offset, len(batch), size_bytes)
            except (ProtocolError, OSError) as error:
                self.fail_read(error)
                return None
            yield 2 * size_bytes * BYTE_US
        return batch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest known epoch <= `epoch`, its end offset), (-1, -1) if undefined."""
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    # --- producers ------------------------------------------------------------------------------------------------

    def maybe_start_transaction_verification(
        self, producer_id: int, producer_epoch: int, first_sequence: int, *, supports_epoch_bump: bool
    ) -> None:
        """Record that the coordinator is verifying a batch that may begin a transaction in this partition.

        `supports_epoch_bump`: the client uses transactions V2.
        """
        self.log.producer_state.maybe_create_verification_state_entry(
            producer_id, producer_epoch, first_sequence, self._clock.now_ms(), supports_epoch_bump
        )

    def producer_of(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the state of the producer; None if the partition does not know it."""
        return self.log.producer_state.get(producer_id)

    def producers(self) -> Iterator[ProducerStateEntry]:
        """Iterate over the known producers (DescribeProducers); the iteration may take many turns."""
        return iter(self.log.producer_state)

    # --- going offline --------------------------------------------------------------------------------------------

    def take_offline(self, reason: str, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """Answer all requests with `error` from now on, also waiting fetches and waits for durable appends."""
        if self.offline is None:
            self.offline = reason
            self._offline_error = error
            self._wake_fetches()
        self.log.stop()
        pending, self._pending = self._pending, deque()
        for _, callback in pending:
            callback(self._offline_error)

    def close(self) -> None:
        """Take the partition offline and close its files. A clean stop calls `UnifiedLog.save` before."""
        self.take_offline("the log is closed")
        self.log.close()

    def fail_read(self, error: ProtocolError | OSError) -> None:
        """Take the partition offline after a failed read, because of IO or damage."""
        if isinstance(error, OSError):
            self._fail(error)
            return
        self.take_offline(f"{self.log.directory} is damaged: {error}")
        _log.error(
            "%(topic)s-%(partition)d: %(why)s; --truncate-damaged %(topic)s-%(partition)d cuts the log there",
            self.about | {"why": self.offline},
        )

    def _fail(self, error: OSError) -> None:
        """Take the partition offline after failed IO, but not after a Shortage, which leaves the log intact."""
        if not isinstance(error, Shortage):
            self.take_offline(f"storage failed: {error}")
            _log.error("%(topic)s-%(partition)d: %(why)s", self.about | {"why": self.offline})
        if self._on_failure is not None:
            self._on_failure(error)
