"""The segments of one log in order: appends at the end, reads anywhere. shell

Source: Kafka's `LogSegments`, and the part of `LocalLog` that appends, rolls and reads.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Sequence
from operator import attrgetter
from typing import Final

from ottla.broker.log.batches import BadBatch, batch_size, iter_file
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.segments.log_segment import LogSegment
from ottla.broker.ports.disk import Buffer, Disk
from ottla.broker.ports.slices import FileSlice
from ottla.protocol.batch_header import HEADER_SIZE, BatchHeader, read_header
from ottla.protocol.steps import Steps

EVERYTHING: Final = 1 << 62
READ_INSTEAD_BYTES: Final = 65_536
"""Limit of a read, unless the first batch is larger, when slices hold too many files already."""

_HINTS_MAX: Final = 256
_BASE_OFFSET: Final = attrgetter("base_offset")


class Moved(Exception):
    """Segments were replaced or removed while the log was read in steps."""


class LogSegments:
    """The segments of one log, at least one. Batches are appended to the last one, the active segment.

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
        # Offset -> segment and position of its batch. Readers continue where they stopped: most reads need no search.
        self._hints: dict[int, tuple[LogSegment, int]] = {}
        # How often segments were replaced or removed: a walk over them has to start again after that.
        self.replaced = 0
        # The sealed segments that have aborted transactions, at this count of replacements and of segments.
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
        """Write a batch with assigned offsets. The caller has rolled the log if necessary."""
        self.active.append(batch, size_bytes, last_offset, max_timestamp_ms)
        self.end_offset = last_offset + 1

    def roll(self, now_ms: int, settings: LogConfig) -> LogSegment:
        """Seal the active segment and begin a new one at the log end; return the sealed one."""
        sealed = self.active
        sealed.seal()
        self.active = LogSegment(
            self._disk, self._directory, self.end_offset, settings.index_interval_bytes, created_ms=now_ms
        )
        self._segments.append(self.active)
        self._bases.append(self.end_offset)
        return sealed

    def sync(self) -> None:
        """Put the active segment and its directory entries on the device."""
        self.active.file.sync()
        self._disk.sync_dir(self._directory)
        self._disk.sync_dir(self._directory.rpartition("/")[0])

    # --- reading --------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, upper: int, max_bytes: int, min_one_batch: bool, most_read: int = EVERYTHING
    ) -> tuple[bytes | FileSlice, LogSegment, int]:
        """Return whole batches from the one that holds `offset`, their segment, and their position in it.

        The batches are below offset `upper`, within one segment and within `max_bytes`; with `min_one_batch` the first
        batch is returned even if it is larger. `offset` is below `upper`. More than `most_read` bytes are returned as a
        slice of the file.
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
                end = position + batch_size(segment.file, position)
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
        """Return the header of the batch that holds `offset`, or of the next one. Raises ProtocolError, OSError."""
        return read_header(self.part_of_batch(offset, 0, HEADER_SIZE))

    def part_of_batch(self, offset: int, at: int, size_bytes: int) -> bytes:
        """Return `size_bytes` bytes of that batch from its byte `at` on. Raises ProtocolError if they are missing."""
        segment, position = self._locate(offset)
        part = segment.file.pread(size_bytes, position + at)
        if len(part) < size_bytes:
            raise BadBatch(position, f"batch cut short: {at + len(part)} bytes")
        return part

    def offset_back(self, offset: int, size_bytes: int) -> int:
        """Return the base offset of a batch in the segment of the batch before `offset`, at least one batch back.

        From there to `offset`, where a batch begins, are at most `size_bytes`, or one larger batch.
        """
        at = max(0, bisect_left(self._bases, offset) - 1)
        while at and not self._position_in(self._segments[at], offset):
            at -= 1
        segment = self._segments[at]
        end = self._position_in(segment, offset)
        cut = end - size_bytes
        if cut <= 0:
            return segment.base_offset
        position, base_offset = segment.boundary(0, cut)
        after = position + batch_size(segment.file, position)
        if position == cut or after >= end:
            return base_offset
        return segment.boundary(position, after)[1]

    def bytes_between(self, offset: int, upper: int, enough: int) -> int:
        """Return the bytes that a read from `offset` to `upper` finds; at least `enough` in a sealed segment."""
        segment, position = self._locate(offset)
        if segment is not self.active:
            return max(enough, 1)
        return self._position_in(segment, upper) - position

    def collect_aborted_transactions(self, offset: int, segment: LogSegment, end: int) -> Steps[list[tuple[int, int]]]:
        """Return (producer id, first offset) of aborted transactions from `offset` to byte `end` of `segment`.

        They are in the order of their markers. The list may have more than necessary, as Kafka's does
        (`LocalLog.collectAbortedTransactions`).
        Raises Moved if segments are replaced meanwhile: the indexes of new ones may lack transactions of the batches
        that were read.
        """
        upper = segment.index.offset_after(end)
        if upper is None:
            upper = self._next_base(segment)
        found: list[tuple[int, int]] = []
        replaced = self.replaced
        for segment in self._segments_with_aborted_txns(offset):
            more, complete = yield from segment.collect_aborted_txns(offset, upper)
            if self.replaced != replaced:
                raise Moved
            found += more
            if complete:
                break
        return found

    def has_no_aborted_txns(self, offset: int) -> bool:
        """Return whether the indexes in memory show that no marker from `offset` on ends an aborted transaction."""
        active = self.active
        return active.has_no_aborted_txns(offset) and (
            offset >= active.base_offset or len(self._segments_with_aborted_txns(offset)) == 1
        )

    def _segments_with_aborted_txns(self, offset: int) -> list[LogSegment]:
        """Return the segments from `offset` on that may have aborted transactions; the last is the active one."""
        state = self.replaced, len(self._segments)
        if state != self._aborting_at:
            self._aborting = [segment for segment in self._segments[:-1] if segment.has_txn_index]
            self._aborting_at = state
        first = self._bases[max(0, bisect_right(self._bases, offset) - 1)]
        return [*self._aborting[bisect_left(self._aborting, first, key=_BASE_OFFSET) :], self.active]

    def scan(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield (header, bytes) of every batch from the one that holds `from_offset` up to the current end.

        The CRC is checked, because scanned records decide on transactions, committed offsets and topics.
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

    def segments_from(self, offset: int) -> list[LogSegment]:
        """Return the segments that end after `offset`; always the active one."""
        return self._segments[min(bisect_right(self._bases, offset), len(self._bases)) - 1 :]

    def _locate(self, offset: int) -> tuple[LogSegment, int]:
        """Return segment and position of the batch that holds `offset`, or of the next one: compaction leaves gaps."""
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
        """Return the position of offset `upper` in `segment`; its size if the offset is after the segment."""
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

    def sealed_segments(self) -> list[LogSegment]:
        """Return all segments except the active one."""
        return self._segments[:-1]

    def holds(self, group: Sequence[LogSegment]) -> bool:
        """Return whether these are consecutive sealed segments of this log."""
        at = bisect_left(self._bases, group[0].base_offset)
        there = self._segments[at : min(at + len(group), len(self._segments) - 1)]
        return len(there) == len(group) and all(a is b for a, b in zip(there, group, strict=True))

    def replace(self, group: Sequence[LogSegment], segment: LogSegment) -> None:
        """Replace a `group` of segments that this log `holds` by one segment."""
        at = self._segments.index(group[0])
        self._segments[at : at + len(group)] = [segment]
        self._bases[at : at + len(group)] = [segment.base_offset]
        self._hints.clear()
        self.replaced += 1

    # --- retention ------------------------------------------------------------------------------------------------

    def remove_first(self, count: int) -> list[LogSegment]:
        """Remove the oldest segments, not the active one, from the log; return them. The caller deletes their files."""
        removed = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        self._hints.clear()
        self.replaced += 1
        return removed

    # --- life -----------------------------------------------------------------------------------------------------

    def release_idle_segments(self, unsynced: Container[str]) -> int:
        """Release descriptors and memory of idle sealed segments; return the number of segments examined.

        Segments whose path is in `unsynced` keep their descriptor.
        """
        sealed = self._segments[:-1]
        for segment in sealed:
            segment.release_if_idle(unsynced=segment.log_path in unsynced)
        return len(sealed)

    def close(self) -> None:
        """Close the files of all segments; the next use opens them again."""
        for segment in self._segments:
            segment.close()
