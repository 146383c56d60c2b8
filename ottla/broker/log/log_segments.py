"""The segments of one log in order: appending at the end, reading anywhere. shell

Source: Kafka's `LogSegments`, and the part of `LocalLog` that appends, rolls and reads.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Sequence
from operator import attrgetter
from typing import Final

from ottla.broker.log.batches import BadBatch, iter_file
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_segment import LogSegment
from ottla.broker.ports.disk import Buffer, Disk
from ottla.broker.ports.slices import FileSlice
from ottla.protocol.batch_header import HEADER_SIZE, BatchHeader, read_header
from ottla.protocol.steps import Steps

EVERYTHING: Final = 1 << 62
READ_INSTEAD_BYTES: Final = 65_536
"""What is read, unless the first batch is larger, when too many files are held for slices."""

_HINTS_MAX = 256
_BASE_OFFSET = attrgetter("base_offset")


class Moved(Exception):
    """The log has changed where it is looked at in steps."""


class LogSegments:
    """The segments of one log, at least one; the last one is active: only it is appended to.

    `end_offset` is the log end offset. `replaced` counts how often segments were replaced or removed.
    """

    __slots__ = (
        "_aborting",
        "_aborting_at",
        "_bases",
        "_directory",
        "_disk",
        "_hints",
        "_segments",
        "active",
        "end_offset",
        "replaced",
    )

    def __init__(self, disk: Disk, directory: str, segments: list[LogSegment], end_offset: int) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.end_offset = end_offset
        # Offset -> where its batch stands. Readers go on where they stopped, so most reads need no search.
        self._hints: dict[int, tuple[LogSegment, int]] = {}
        # How often segments were replaced or removed: who walks over them has to look anew.
        self.replaced = 0
        # The sealed segments that have aborted transactions, as of this number of replacements and of segments.
        self._aborting: list[LogSegment] = []
        self._aborting_at = (-1, -1)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment."""
        return self._bases[0]

    # --- writing --------------------------------------------------------------------------------------------------

    def append(self, batch: Buffer, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Write a batch whose offsets are assigned; the caller has rolled if it is due."""
        self.active.append(batch, size_bytes, last_offset, max_timestamp_ms)
        self.end_offset = last_offset + 1

    def roll(self, now_ms: int, settings: LogConfig) -> LogSegment:
        """Seal the active segment and begin a new one at the end; the sealed one."""
        sealed = self.active
        sealed.seal()
        self.active = LogSegment(
            self._disk, self._directory, self.end_offset, settings.index_interval_bytes, created_ms=now_ms
        )
        self._segments.append(self.active)
        self._bases.append(self.end_offset)
        return sealed

    def sync(self) -> None:
        """Put the active segment, and the names that lead to it, on the device."""
        self.active.file.sync()
        self._disk.sync_dir(self._directory)
        self._disk.sync_dir(self._directory.rpartition("/")[0])

    # --- reading --------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, upper: int, max_bytes: int, min_one_batch: bool, most_read: int = EVERYTHING
    ) -> tuple[bytes | FileSlice, LogSegment, int]:
        """Whole batches from the one that holds `offset`, below offset `upper`, within one segment and `max_bytes`;
        that segment, and at which byte of it they begin.

        With `min_one_batch` the first batch comes even if it is larger. `offset` is below `upper`. More than
        `most_read` bytes are not read, but come as a slice of the file.
        """
        segment, position = self._locate(offset)
        end = self._position_in(segment, upper)
        if position >= end:
            return b"", segment, position
        if end - position <= max_bytes:
            self._remember(min(upper, self._next_base(segment)), segment, end)
        else:
            end, next_offset = segment.boundary(position, position + max_bytes)
            if end == position:
                if not min_one_batch:
                    return b"", segment, position
                end = position + segment.batch_size(position)
            else:
                self._remember(next_offset, segment, end)
        size_bytes, file = end - position, segment.file
        if size_bytes > most_read:
            part = file.slice(position, size_bytes)
            if part is not None:
                return part, segment, position
            if size_bytes > READ_INSTEAD_BYTES:
                return self.read(offset, upper, min(max_bytes, READ_INSTEAD_BYTES), min_one_batch)
        return file.pread(size_bytes, position), segment, position

    def header_at(self, offset: int) -> BatchHeader:
        """The header of the batch that holds `offset`, or of the next one. Raises ProtocolError, OSError."""
        return read_header(self.part_of_batch(offset, 0, HEADER_SIZE))

    def part_of_batch(self, offset: int, at: int, size_bytes: int) -> bytes:
        """So many bytes of the file from byte `at` of that batch on. Raises ProtocolError if they are not there."""
        segment, position = self._locate(offset)
        part = segment.file.pread(size_bytes, position + at)
        if len(part) < size_bytes:
            raise BadBatch(position, f"batch cut short: {at + len(part)} bytes")
        return part

    def bytes_between(self, offset: int, upper: int, enough: int) -> int:
        """Bytes that a read from `offset` to `upper` finds; at least `enough` if they lie in a sealed segment."""
        segment, position = self._locate(offset)
        if segment is not self.active:
            return max(enough, 1)
        return self._position_in(segment, upper) - position

    def collect_aborted_transactions(self, offset: int, segment: LogSegment, end: int) -> Steps[list[tuple[int, int]]]:
        """(producer id, first offset) of aborted transactions that touch what was read: from `offset` to byte `end` of
        `segment`, in the order of their markers.

        Raises Moved if segments are replaced meanwhile: what the new ones tell may lack what was read.
        May hold more than is needed, as Kafka's does (`LocalLog.collectAbortedTransactions`).
        """
        upper = segment.index.offset_after(end)
        if upper is None:
            upper = self._next_base(segment)
        found: list[tuple[int, int]] = []
        replaced = self.replaced
        for segment in self._with_aborted(offset):
            more, complete = yield from segment.collect_aborted_txns(offset, upper)
            if self.replaced != replaced:
                raise Moved
            found += more
            if complete:
                break
        return found

    def none_aborted(self, offset: int) -> bool:
        """Whether it is known at once that no marker from `offset` on ends an aborted transaction."""
        active = self.active
        return active.none_aborted(offset) and (offset >= active.base_offset or len(self._with_aborted(offset)) == 1)

    def _with_aborted(self, offset: int) -> list[LogSegment]:
        """Those from `offset` on that may have aborted transactions: the active one, and few or many of the others."""
        state = self.replaced, len(self._segments)
        if state != self._aborting_at:
            self._aborting = [segment for segment in self._segments[:-1] if segment.has_txn_index]
            self._aborting_at = state
        first = self._bases[max(0, bisect_right(self._bases, offset) - 1)]
        return [*self._aborting[bisect_left(self._aborting, first, key=_BASE_OFFSET) :], self.active]

    def scan(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch from the one that holds `from_offset` up to the end as it is now.

        The CRC is checked: what is scanned decides transactions, positions and topics.
        """
        end_offset = self.end_offset
        offset = from_offset
        while offset < end_offset:
            segment, position = self._locate(offset)
            replaced = self.replaced
            for _, header, batch in iter_file(segment.file, position, segment.size_bytes, check_crc=True):
                if header.base_offset >= end_offset:
                    return
                yield header, batch
                offset = header.next_offset
                if replaced != self.replaced:
                    break
            else:
                if segment is self.active:
                    return
                offset = max(offset, self._next_base(segment))

    def ending_behind(self, offset: int) -> list[LogSegment]:
        """The segments that hold something at or behind `offset`; always the active one."""
        return self._segments[min(bisect_right(self._bases, offset), len(self._bases)) - 1 :]

    def _locate(self, offset: int) -> tuple[LogSegment, int]:
        """LogSegment and position of the batch that holds `offset`, or of the next one: compaction leaves gaps."""
        hint = self._hints.get(offset)
        if hint is not None and hint[1] < hint[0].size_bytes:
            return hint
        at = max(0, bisect_right(self._bases, offset) - 1)
        segment = self._segments[at]
        position = segment.find(offset)
        while position >= segment.size_bytes and segment is not self.active:
            at += 1
            segment = self._segments[at]
            position = segment.find(offset)
        self._remember(offset, segment, position)
        return segment, position

    def _position_in(self, segment: LogSegment, upper: int) -> int:
        """Where offset `upper` begins in `segment`; its size if it lies behind."""
        if upper >= self._next_base(segment):
            return segment.size_bytes
        hint = self._hints.get(upper)
        if hint is not None and hint[0] is segment:
            return hint[1]
        position = segment.find(upper)
        self._remember(upper, segment, position)
        return position

    def _next_base(self, segment: LogSegment) -> int:
        if segment is self.active:
            return self.end_offset
        return self._bases[bisect_right(self._bases, segment.base_offset)]

    def _remember(self, offset: int, segment: LogSegment, position: int) -> None:
        hints = self._hints
        if len(hints) >= _HINTS_MAX:
            hints.clear()
        hints[offset] = (segment, position)

    # --- compaction -----------------------------------------------------------------------------------------------

    def sealed(self) -> list[LogSegment]:
        """All but the active one."""
        return self._segments[:-1]

    def holds(self, group: Sequence[LogSegment]) -> bool:
        """Whether these sealed segments stand here, one behind the other."""
        at = bisect_left(self._bases, group[0].base_offset)
        there = self._segments[at : min(at + len(group), len(self._segments) - 1)]
        return len(there) == len(group) and all(a is b for a, b in zip(there, group, strict=True))

    def replace(self, group: Sequence[LogSegment], segment: LogSegment) -> None:
        """Put one segment in the place of a `group` that this log `holds`."""
        at = self._segments.index(group[0])
        self._segments[at : at + len(group)] = [segment]
        self._bases[at : at + len(group)] = [segment.base_offset]
        self._hints.clear()
        self.replaced += 1

    # --- retention ------------------------------------------------------------------------------------------------

    def remove_first(self, count: int) -> list[LogSegment]:
        """Take the oldest segments out of the log; the active one stays. Their files are the caller's."""
        removed = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        self._hints.clear()
        self.replaced += 1
        return removed

    # --- life -----------------------------------------------------------------------------------------------------

    def rest(self, unsynced: Container[str]) -> int:
        """Let idle sealed segments give back descriptors and memory, unless the sync of their path is to come.

        How many were looked at.
        """
        sealed = self._segments[:-1]
        for segment in sealed:
            segment.rest(unsynced=segment.log_path in unsynced)
        return len(sealed)

    def close(self) -> None:
        """Close the files of all segments; who looks next opens them again."""
        for segment in self._segments:
            segment.close()
