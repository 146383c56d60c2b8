"""Look-ups in the index files of a sealed segment, without loading them. shell

A segment of 1 GiB has 5 MB of index files. Reading them whole costs milliseconds, and keeping them costs memory for
each segment that a client has read. A look-up needs about ten entries, which are in the page cache.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from ottla.broker.ports.disk import Disk, File
from ottla.protocol.indexes import OFFSET_ENTRY, TIME_ENTRY
from ottla.protocol.values import NO_TIMESTAMP

_BLOCK: Final = 256
# Fields of the entries.
_OFFSET: Final = 0
_POSITION: Final = 1
_TIME: Final = 0
_TIME_OFFSET: Final = 1


class Unsound(Exception):
    """The files do not match the segment and must be rebuilt."""


class _Entries:
    """The ascending entries of one file. Zeros at the end (preallocated by Kafka, or left by a crash) are ignored."""

    __slots__ = ("_entry", "_file", "count")

    def __init__(self, disk: Disk, path: str, entry: Struct) -> None:
        """Check the entries of `file`. Raises Unsound, FileNotFoundError."""
        self._file: File = disk.open(path)
        self._entry = entry
        if self._file.size_bytes % entry.size:
            self._file.close()
            raise Unsound
        self.count = self._file.size_bytes // entry.size
        if self.count and not any(self[self.count - 1]):
            self.count = self.search(any)

    def __getitem__(self, at: int) -> tuple[int, ...]:
        size = self._entry.size
        return self._entry.unpack(self._file.pread(size, at * size))

    def search(self, holds: Callable[[tuple[int, ...]], bool]) -> int:
        """Return the number of first entries for which `holds` is true; it is false for all others."""
        low, high = 0, self.count
        size = self._entry.size
        block, first = b"", 0
        while low < high:
            if not block and high - low <= _BLOCK:
                first, block = low, self._file.pread((high - low) * size, low * size)
            middle = (low + high) // 2
            if holds(self._entry.unpack_from(block, (middle - first) * size) if block else self[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    def close(self) -> None:
        self._file.close()


class StoredIndex:
    """The look-ups of `SegmentIndex`, by the same names, in the files of a sealed segment."""

    __slots__ = ("_disk", "_largest", "_offsets", "_path", "_times", "base_offset")

    def __init__(self, disk: Disk, path: str, base_offset: int, log_size_bytes: int) -> None:
        """Open the index files. `path` is the path of the segment without a suffix. Raises Unsound,
        FileNotFoundError."""
        self._disk = disk
        self._path = path
        self.base_offset = base_offset
        self._times: _Entries | None = None
        self._largest: tuple[int, int] | None = None
        if disk.size_bytes(f"{path}.timeindex") % TIME_ENTRY.size:
            raise Unsound
        self._offsets = _Entries(disk, f"{path}.index", OFFSET_ENTRY)
        if self._offsets.count:
            offset, position = self._offsets[self._offsets.count - 1]
            if not (0 < position < log_size_bytes and offset >= 0):
                self.close()
                raise Unsound

    @property
    def max_timestamp_ms(self) -> int:
        return self._last_time()[0]

    @property
    def max_timestamp_offset(self) -> int:
        return self.base_offset + self._last_time()[1]

    def is_full(self, index_bytes: int) -> bool:
        return (
            self._offsets.count >= index_bytes // OFFSET_ENTRY.size
            or self._open_times().count >= index_bytes // TIME_ENTRY.size - 1
        )

    def position_before(self, offset: int) -> int:
        relative = offset - self.base_offset
        at = self._offsets.search(lambda entry: entry[_OFFSET] <= relative)
        return self._offsets[at - 1][_POSITION] if at else 0

    def boundary_before(self, position: int) -> int:
        at = self._offsets.search(lambda entry: entry[_POSITION] <= position)
        return self._offsets[at - 1][_POSITION] if at else 0

    def offset_after(self, position: int) -> int | None:
        at = self._offsets.search(lambda entry: entry[_POSITION] < position)
        return self.base_offset + self._offsets[at][_OFFSET] if at < self._offsets.count else None

    def offset_for_timestamp(self, timestamp_ms: int) -> int:
        times = self._open_times()
        at = times.search(lambda entry: entry[_TIME] <= timestamp_ms)
        return self.base_offset + (times[at - 1][_TIME_OFFSET] if at else 0)

    def close(self) -> None:
        """Close the files."""
        self._offsets.close()
        if self._times is not None:
            self._times.close()

    def _open_times(self) -> _Entries:
        if self._times is None:
            self._times = _Entries(self._disk, f"{self._path}.timeindex", TIME_ENTRY)
        return self._times

    def _last_time(self) -> tuple[int, int]:
        """Return the largest timestamp and its relative offset."""
        if self._largest is None:
            times = self._open_times()
            timestamp_ms, offset = times[times.count - 1] if times.count else (NO_TIMESTAMP, 0)
            self._largest = timestamp_ms, offset
        return self._largest
