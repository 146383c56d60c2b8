"""The offset and time index of one segment in memory, and their files' content. pure

Source: Kafka's `OffsetIndex`, `TimeIndex`, `LogSegment.append`. An entry is due when more than `interval_bytes` were
written since the last one. Offsets are relative to the segment's base offset.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from ottla.protocol.batch_header import LOG_OVERHEAD, BatchHeader
from ottla.protocol.indexes import OFFSET_ENTRY, TIME_ENTRY, iter_time_entries
from ottla.protocol.values import NO_TIMESTAMP

_INT32 = 4


def time_of(header: BatchHeader) -> int:
    """The timestamp that a time index may hold of a batch.

    An empty one, which compaction leaves, keeps a time that no record has any more: who looks it up would find
    nothing there, and `kafka-dump-log` complains.
    """
    return header.max_timestamp if header.record_count else NO_TIMESTAMP


class SegmentIndex:
    """Where offsets and timestamps of a segment are. Positions are bytes from the start of its `.log` file."""

    __slots__ = (
        "_interval_bytes",
        "_last_entry_timestamp_ms",
        "_since_entry_bytes",
        "_times",
        "base_offset",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offsets",
        "positions",
    )

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._since_entry_bytes = 0
        # The last offset of the batch at each position, relative to the base.
        self.offsets = array("i")
        self.positions = array("i")
        # Entries as they stand in the file: looked up seldom, so not worth a second form.
        self._times = bytearray()
        self._last_entry_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset

    def account(self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """A batch of `size_bytes` stands at `position`; add its entries if they are due."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self._since_entry_bytes > self._interval_bytes:
            self.offsets.append(last_offset - self.base_offset)
            self.positions.append(position)
            self.add_time_entry()
            self._since_entry_bytes = 0
        self._since_entry_bytes += size_bytes

    def account_run(self, position: int, headers: Iterable[tuple[int, ...]]) -> None:
        """`account` of batches that stand one behind the other from `position` on; the fields of `BatchHeader`."""
        for base_offset, length, _, _, _, _, delta, _, max_timestamp_ms, _, _, _, record_count in headers:
            size_bytes = LOG_OVERHEAD + length
            if self._since_entry_bytes > self._interval_bytes or max_timestamp_ms > self.max_timestamp_ms:
                timestamp_ms = max_timestamp_ms if record_count else NO_TIMESTAMP
                self.account(position, size_bytes, base_offset + delta, timestamp_ms)
            else:
                self._since_entry_bytes += size_bytes
            position += size_bytes

    def add_time_entry(self) -> None:
        """Record the largest timestamp so far, unless the last entry has it (forced when a segment is sealed)."""
        if self.max_timestamp_ms > self._last_entry_timestamp_ms:
            self._times += TIME_ENTRY.pack(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
            self._last_entry_timestamp_ms = self.max_timestamp_ms

    def is_full(self, index_bytes: int) -> bool:
        """Whether a segment must be rolled because an index has reached `segment.index.bytes`."""
        return (
            len(self.offsets) >= index_bytes // OFFSET_ENTRY.size
            or len(self._times) // TIME_ENTRY.size >= index_bytes // TIME_ENTRY.size - 1
        )

    def position_before(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        at = bisect_right(self.offsets, offset - self.base_offset)
        return self.positions[at - 1] if at else 0

    def boundary_before(self, position: int) -> int:
        """The last known start of a batch at or before `position`."""
        at = bisect_right(self.positions, position)
        return self.positions[at - 1] if at else 0

    def offset_after(self, position: int) -> int | None:
        """Last offset of the first indexed batch at or after `position`; None if there is none."""
        at = bisect_left(self.positions, position)
        return self.base_offset + self.offsets[at] if at < len(self.offsets) else None

    def offset_for_timestamp(self, timestamp_ms: int) -> int:
        """An offset at or before the first record of at least `timestamp_ms`."""
        low, high = 0, len(self._times) // TIME_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if TIME_ENTRY.unpack_from(self._times, middle * TIME_ENTRY.size)[0] <= timestamp_ms:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return self.base_offset
        relative: int = TIME_ENTRY.unpack_from(self._times, (low - 1) * TIME_ENTRY.size)[1]
        return self.base_offset + relative

    def offset_file(self) -> bytes:
        """The content of the `.index` file."""
        both = array("i", bytes(2 * _INT32 * len(self.offsets)))
        both[0::2] = self.offsets
        both[1::2] = self.positions
        if sys.byteorder == "little":
            both.byteswap()
        return both.tobytes()

    def time_file(self) -> bytes:
        """The content of the `.timeindex` file."""
        return bytes(self._times)

    def load(self, offset_file: bytes, time_file: bytes, log_size_bytes: int) -> bool:
        """Take over both files; False if they cannot belong to a `.log` of this size and must be rebuilt.

        Zeros at the end (a file that Kafka preallocated and did not trim) are left out.
        """
        if len(offset_file) % OFFSET_ENTRY.size or len(time_file) % TIME_ENTRY.size:
            return False
        both = array("i")
        both.frombytes(offset_file.rstrip(b"\0") + bytes(_pad(len(offset_file.rstrip(b"\0")))))
        if sys.byteorder == "little":
            both.byteswap()
        self.offsets, self.positions = both[0::2], both[1::2]
        if self.positions and not (0 < self.positions[-1] < log_size_bytes and self.offsets[-1] >= 0):
            return False
        self._load_times(time_file)
        return True

    def _load_times(self, time_file: bytes) -> None:
        if time_file and TIME_ENTRY.unpack_from(time_file, len(time_file) - TIME_ENTRY.size) == (0, 0):
            entries = sum(1 for _ in iter_time_entries(time_file))
            time_file = time_file[: entries * TIME_ENTRY.size]
        self._times = bytearray(time_file)
        if time_file:
            timestamp_ms, relative = TIME_ENTRY.unpack_from(time_file, len(time_file) - TIME_ENTRY.size)
            self._last_entry_timestamp_ms = self.max_timestamp_ms = timestamp_ms
            self.max_timestamp_offset = self.base_offset + relative


def _pad(size_bytes: int) -> int:
    """Bytes up to the next whole entry."""
    return -size_bytes % OFFSET_ENTRY.size
