"""What can be read of one partition, and how far; who waits for more. shell"""

from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Final

from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_segments import EVERYTHING, LogSegments, Moved
from ottla.broker.log.results import FetchDataInfo, FetchIsolation
from ottla.broker.log.timestamps import TimestampOffset, find_largest_timestamp, find_timestamp
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.turns import Wait
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.errors import NO_ERROR, ErrorCode, ProtocolError
from ottla.protocol.steps import BYTE_US, Steps, to_the_end

_log = getLogger(__name__)

_NOWHERE = TimestampOffset(-1, -1, -1)
_OUT_OF_RANGE = FetchDataInfo(ErrorCode.OFFSET_OUT_OF_RANGE)
_PIECE_BYTES: Final = 1 << 20
_TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
_HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
_NOTHING = FetchDataInfo(NO_ERROR)
_NOTHING_COMMITTED = FetchDataInfo(NO_ERROR, b"", [])


class ReadableLog:
    """The log of a partition as its readers see it. `offline` is None, or why nothing can be read or appended."""

    __slots__ = (
        "_directory",
        "_epochs",
        "_offline_error",
        "_on_failure",
        "_parked",
        "_segments",
        "high_watermark",
        "index",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
        "offline",
        "topic",
    )

    def __init__(self, topic: str, index: int, loaded: LoadedLog, on_failure: Callable[[OSError], None] | None) -> None:
        segments = loaded.segments
        self.topic = topic
        self.index = index
        self.offline = loaded.damage
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = segments.end_offset
        self.high_watermark = segments.end_offset
        self.last_stable_offset = segments.end_offset
        self._offline_error = ErrorCode.KAFKA_STORAGE_ERROR
        self._directory = loaded.directory
        self._segments = segments
        self._epochs = loaded.epochs
        self._on_failure = on_failure
        self._parked: dict[Wait[None], None] = {}

    @property
    def name(self) -> str:
        """`<topic>-<index>`."""
        return f"{self.topic}-{self.index}"

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def segments(self) -> LogSegments:
        """The segments, for who looks after the files."""
        return self._segments

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment; the log may start later."""
        return self._segments.first_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return self._segments.size_bytes

    # --- read -----------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        min_one_batch: bool = True,
    ) -> FetchDataInfo:
        """Whole batches of one segment from `offset` on, as bytes. None where `isolation` lets nothing be seen."""
        return to_the_end(self.fetch(offset, max_bytes, EVERYTHING, isolation=isolation, min_one_batch=min_one_batch))

    def fetch(
        self, offset: int, max_bytes: int, most_read: int, *, isolation: FetchIsolation, min_one_batch: bool
    ) -> Steps[FetchDataInfo]:
        """`read`, but what is more than `most_read` bytes comes as a slice of its file."""
        while True:
            found = self.fetch_at_once(offset, max_bytes, most_read, isolation, min_one_batch)
            if found is not None:
                return found
            upper = self.last_fetchable_offset(isolation)
            try:
                records, segment, position = self._segments.read(offset, upper, max_bytes, min_one_batch, most_read)
                end = position + len(records)
                aborted = yield from self._segments.collect_aborted_transactions(offset, segment, end)
            except Moved:
                continue
            except (ProtocolError, OSError) as error:
                self._met(error)
            else:
                return FetchDataInfo(NO_ERROR, records, aborted)
            return FetchDataInfo(self._offline_error)

    def fetch_at_once(
        self, offset: int, max_bytes: int, most_read: int, isolation: FetchIsolation, min_one_batch: bool
    ) -> FetchDataInfo | None:
        """What `fetch` comes to where no aborted transactions need be looked through, as mostly; else None."""
        if self.offline is not None:
            return FetchDataInfo(self._offline_error)
        committed = isolation is _TXN_COMMITTED
        upper = self.last_fetchable_offset(isolation)
        if offset >= upper:
            if offset > self.log_end_offset:
                return _OUT_OF_RANGE
            return _NOTHING_COMMITTED if committed else _NOTHING
        if offset < self.log_start_offset:
            return _OUT_OF_RANGE
        if committed and not self._segments.none_aborted(offset):
            return None
        try:
            records, _, _ = self._segments.read(offset, upper, max_bytes, min_one_batch, most_read)
        except (ProtocolError, OSError) as error:
            self._met(error)
        else:
            return FetchDataInfo(NO_ERROR, records, [] if committed else None)
        return FetchDataInfo(self._offline_error)

    def bytes_available(self, offset: int, isolation: FetchIsolation, enough: int) -> int:
        """Bytes that a read from `offset` would find; exact below `enough` only."""
        upper = self.last_fetchable_offset(isolation)
        if self.offline is not None or not self.log_start_offset <= offset < upper:
            return 0
        if enough <= 1:
            return 1
        try:
            return self._segments.bytes_between(offset, upper, enough)
        except (ProtocolError, OSError) as error:
            self._met(error)
        return 0

    def scan(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """(header, bytes) of every batch from the one that holds `from_offset` up to the end as it is now.

        Raises ProtocolError and OSError; the partition is offline then, as after any other read.
        """
        try:
            yield from self._segments.scan(max(from_offset, self.log_start_offset))
        except (ProtocolError, OSError) as error:
            self._met(error)
            raise

    def batch_header(self, base_offset: int) -> BatchHeader | None:
        """The header of the batch that begins at `base_offset`; None if it is gone, or cannot be read."""
        if self.offline is not None or not self.log_start_offset <= base_offset < self.log_end_offset:
            return None
        try:
            header = self._segments.header_at(base_offset)
        except (ProtocolError, OSError) as error:
            self._met(error)
            return None
        return header if header.base_offset == base_offset else None

    def batch_bytes(self, header: BatchHeader) -> Steps[bytearray | None]:
        """The batch with this `batch_header`; None if it is gone meanwhile, or cannot be read."""
        batch = bytearray()
        replaced = self._segments.replaced
        while len(batch) < header.size_bytes:
            if self.offline is not None or self._segments.replaced != replaced:
                return None
            size_bytes = min(_PIECE_BYTES, header.size_bytes - len(batch))
            try:
                batch += self._segments.part_of_batch(header.base_offset, len(batch), size_bytes)
            except (ProtocolError, OSError) as error:
                self._met(error)
                return None
            yield 2 * size_bytes * BYTE_US
        return batch

    def offset_for_timestamp(self, timestamp_ms: int, isolation: FetchIsolation) -> Steps[TimestampOffset | None]:
        """(offset, timestamp, leader epoch) of the first record of at least `timestamp_ms`; -1 each if none has.

        None if that cannot be told, because files cannot be read.
        """
        return self._located(
            lambda moved: find_timestamp(self._segments, timestamp_ms, self.log_start_offset, moved), isolation
        )

    def max_timestamp_offset(self, isolation: FetchIsolation) -> Steps[TimestampOffset | None]:
        """The same of the first record that has the largest timestamp."""
        return self._located(lambda moved: find_largest_timestamp(self._segments, moved), isolation)

    def _located(
        self, find: Callable[[Callable[[], bool]], Steps[TimestampOffset | None]], isolation: FetchIsolation
    ) -> Steps[TimestampOffset | None]:
        """What `find` finds, in the log as it stands then; None if it cannot read, or meets damage."""
        while self.offline is None:
            replaced = self._segments.replaced

            def moved(replaced: int = replaced) -> bool:
                return self.offline is not None or self._segments.replaced != replaced

            try:
                found = yield from find(moved)
            except Moved:
                continue
            except (ProtocolError, OSError) as error:
                self._met(error)
            else:
                return found if found is not None and found.offset < self.last_fetchable_offset(isolation) else _NOWHERE
            break
        return None

    def epoch_of(self, offset: int) -> int:
        """Leader epoch of the record at `offset`, -1 if unknown."""
        return self._epochs.epoch_for_offset(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset), (-1, -1) if undefined."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def last_fetchable_offset(self, isolation: FetchIsolation) -> int:
        """The offset behind the last record that may be seen."""
        if isolation is _TXN_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark if isolation is _HIGH_WATERMARK else self.log_end_offset

    # --- waiting --------------------------------------------------------------------------------------------------

    def park(self, wait: Wait[None]) -> None:
        """Wake `wait` when there is more to read, or when the partition goes offline."""
        self._parked[wait] = None

    def unpark(self, wait: Wait[None]) -> None:
        self._parked.pop(wait, None)

    def _wake_parked(self) -> None:
        parked, self._parked = self._parked, {}
        for wait in parked:
            wait.wake(None)

    # --- going offline --------------------------------------------------------------------------------------------

    def take_offline(self, reason: str, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """Answer `error` from now on."""
        if self.offline is None:
            self.offline = reason
            self._offline_error = error
            self._wake_parked()

    def _met(self, error: ProtocolError | OSError) -> None:
        """What stands in the log, or in the way of reading it."""
        if isinstance(error, OSError):
            self._fail(error)
            return
        self.take_offline(f"{self._directory} is damaged: {error}")
        _log.error("%s: %s; --truncate-damaged %s gives up what follows", self.name, self.offline, self.name)

    def _fail(self, error: OSError) -> None:
        """IO failed: this partition is not trusted any more; after a mere shortage it is, and the next try may do."""
        if not isinstance(error, Shortage):
            self.take_offline(f"storage failed: {error}")
            _log.error("%s: %s", self.name, self.offline)
        if self._on_failure is not None:
            self._on_failure(error)
