"""The offset index and the time index of one segment in memory, and the content of their files. pure

Source: Kafka's `OffsetIndex`, `TimeIndex`, `LogSegment.append`. An entry is due when more than `interval_bytes` were
written since the last one. Offsets are relative to the segment's base offset.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from ottla.protocol.batch_header import LOG_OVERHEAD, BatchHeader
from ottla.protocol.indexes import OFFSET_ENTRY, TIME_ENTRY, iter_time_entries
from ottla.protocol.values import NO_TIMESTAMP

_INT32: Final = 4


def time_of(header: BatchHeader) -> int:
    """Return the timestamp of a batch for the time index; -1 for an empty batch.

    Compaction leaves empty batches with the timestamp of a removed record. A look-up by it would find no record, and
    `kafka-dump-log` reports an error.
    """
    return header.max_timestamp if header.record_count else NO_TIMESTAMP


class SegmentIndex:
    """Positions of offsets and timestamps of a segment, in bytes from the start of its `.log` file."""

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
        # Entries as in the file: look-ups are too rare for another representation.
        self._times = bytearray()
        self._last_entry_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset

    def account(self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Count a batch of `size_bytes` at `position`; add its index entries if they are due."""
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
        """Do `account` for consecutive batches from `position` on, given the fields of `BatchHeader`."""
        for base_offset, length, _, _, _, _, delta, _, max_timestamp_ms, _, _, _, record_count in headers:
            size_bytes = LOG_OVERHEAD + length
            if self._since_entry_bytes > self._interval_bytes or max_timestamp_ms > self.max_timestamp_ms:
                timestamp_ms = max_timestamp_ms if record_count else NO_TIMESTAMP
                self.account(position, size_bytes, base_offset + delta, timestamp_ms)
            else:
                self._since_entry_bytes += size_bytes
            position += size_bytes

    def add_time_entry(self) -> None:
        """Add an entry of the largest timestamp, unless the last entry has it. Sealing a segment calls it too."""
        if self.max_timestamp_ms > self._last_entry_timestamp_ms:
            self._times += TIME_ENTRY.pack(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
            self._last_entry_timestamp_ms = self.max_timestamp_ms

    def is_full(self, index_bytes: int) -> bool:
        """Return whether a segment must be rolled because an index has reached `segment.index.bytes`."""
        return (
            len(self.offsets) >= index_bytes // OFFSET_ENTRY.size
            or len(self._times) // TIME_ENTRY.size >= index_bytes // TIME_ENTRY.size - 1
        )

    def position_before(self, offset: int) -> int:
        """Return a position at or before the batch that holds `offset`."""
        at = bisect_right(self.offsets, offset - self.base_offset)
        return self.positions[at - 1] if at else 0

    def boundary_before(self, position: int) -> int:
        """Return the last indexed start of a batch at or before `position`."""
        at = bisect_right(self.positions, position)
        return self.positions[at - 1] if at else 0

    def offset_after(self, position: int) -> int | None:
        """Return the last offset of the first indexed batch at or after `position`; None if there is none."""
        at = bisect_left(self.positions, position)
        return self.base_offset + self.offsets[at] if at < len(self.offsets) else None

    def offset_for_timestamp(self, timestamp_ms: int) -> int:
        """Return an offset at or before the first record with a timestamp of at least `timestamp_ms`."""
        starts = range(0, len(self._times), TIME_ENTRY.size)
        at = bisect_right(starts, timestamp_ms, key=lambda start: TIME_ENTRY.unpack_from(self._times, start)[0])
        relative: int = TIME_ENTRY.unpack_from(self._times, starts[at - 1])[1] if at else 0
        return self.base_offset + relative

    def offset_file(self) -> bytes:
        """Return the content of the `.index` file."""
        both = array("i", bytes(2 * _INT32 * len(self.offsets)))
        both[0::2] = self.offsets
        both[1::2] = self.positions
        if sys.byteorder == "little":
            both.byteswap()
        return both.tobytes()

    def time_file(self) -> bytes:
        """Return the content of the `.timeindex` file."""
        return bytes(self._times)

    def load(self, offset_file: bytes, time_file: bytes, log_size_bytes: int) -> bool:
        """Load both files; False if they do not match a `.log` of this size and must be rebuilt.

        Zeros at the end (a file that Kafka preallocated and did not trim) are ignored.
        """
        if len(offset_file) % OFFSET_ENTRY.size or len(time_file) % TIME_ENTRY.size:
            return False
        both = array("i")
        entries = offset_file.rstrip(b"\0")
        both.frombytes(entries + bytes(-len(entries) % OFFSET_ENTRY.size))
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
