"""Record scan: reads ranges of segments into Arrow record batches of the records that a consumer sees. shell"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ottla.protocol.batch_header import COMPRESSION_MASK, HEADER_SIZE
from ottla.protocol.compression import READ_LIMIT_BYTES, TooLarge, decompress_into, first_size, larger_size
from ottla.protocol.errors import ProtocolError
from ottla.scan import frames, headers
from ottla.scan.chunks import ROWS_PER_CHUNK, Chunk, SegmentPiece
from ottla.scan.columns import BATCH_BYTES, ColumnBuilder
from ottla.scan.compiled.kernels import Bytes, Longs, expect
from ottla.scan.damage_log import Damage, DamageLog
from ottla.scan.fates import PartitionFates
from ottla.scan.legacy import convert_message
from ottla.scan.listing import PartitionLog
from ottla.scan.pieces import Piece, PieceReader
from ottla.scan.ranges import LogRange

# A log is expected to have no smaller records until they are read.
_USUAL_RECORD_BYTES = 256
_SCRATCH_BYTES = 8 * 1024 * 1024
# A scratch buffer that grew beyond this for one batch is not kept.
_KEPT_BYTES = 32 * 1024 * 1024


class Visibility(NamedTuple):
    """Visible part of a partition: offsets in [log_start, limit) without batches in `aborted` ranges.

    Batches that the walk could not read (`unread`) are not visible, because their fate is unknown. A read that starts
    at another range may still be able to decode them.
    """

    committed_only: bool
    log_start: int
    limit: int
    aborted: Longs
    unread: tuple[Damage, ...] = ()


def visibility(fates: PartitionFates, *, committed_only: bool) -> Visibility:
    """Return the visible part: read_committed ends at the last stable offset, read_uncommitted at the log end."""
    if committed_only:
        return Visibility(True, fates.log_start, fates.last_stable_offset, fates.aborted_ranges, fates.damage)
    return Visibility(False, fates.log_start, fates.log_end, fates.aborted_ranges[:0])


def uncommitted_visibility(log_start: int) -> Visibility:
    """Return a visibility of all data batches up to the end of the log, whatever their fate."""
    return Visibility(False, log_start, 2**63 - 1, np.empty((0, 3), dtype=np.int64))


def visible_in(visible: Visibility, part: LogRange, log: PartitionLog) -> Visibility:
    """Return `visible` with only the aborted ranges and the damage that can concern `part`."""
    first = part.pieces[0].base_offset
    last_base = part.pieces[-1].base_offset
    next_base = min((one.base_offset for one in log.segments if one.base_offset > last_base), default=visible.limit)
    aborted = visible.aborted
    paths = {piece.path for piece in part.pieces}
    unread = tuple(damage for damage in visible.unread if damage.path in paths)
    return visible._replace(aborted=aborted[(aborted[:, 2] >= first) & (aborted[:, 1] < next_base)], unread=unread)


class ReadFilter(NamedTuple):
    """Filter of visible records: offsets in [first_offset, end_offset), these producers (None: all).

    Batches whose largest timestamp is below `since_ms` are not decoded. Older records of other batches are returned.
    """

    first_offset: int = 0
    end_offset: int = 2**63 - 1
    since_ms: int = -(2**63)
    producer_ids: tuple[int, ...] | None = None

    @property
    def takes_all(self) -> bool:
        """Whether the filter is by offsets only."""
        return self.producer_ids is None and self.since_ms == EVERYTHING.since_ms

    def rows(self, rows: Longs) -> Longs:
        """Return the header rows of batches that may have matching records."""
        keep = (rows[:, headers.BASE_OFFSET] < self.end_offset) & (rows[:, headers.LAST_OFFSET] >= self.first_offset)
        keep &= rows[:, headers.MAX_TIMESTAMP] >= self.since_ms
        if self.producer_ids is not None:
            keep &= np.isin(rows[:, headers.PRODUCER_ID], self.producer_ids)
        return rows if keep.all() else rows[keep]


EVERYTHING = ReadFilter()


def read_by_the_walk(piece: Piece, chunk: Chunk, rows: Longs, unread: tuple[Damage, ...], log: DamageLog) -> Longs:
    """Return the rows whose fates are known, and report the damage that hides the others."""
    for damage in unread:
        positions = chunk.file_position + rows[:, headers.POSITION]
        if damage.of_offsets:
            positions = rows[:, headers.BASE_OFFSET]
        within = (positions >= damage.position) & (positions < damage.end_position)
        if damage.path == piece.path and within.any():
            rows = rows[~within]
            if damage not in log.found:
                log.add(damage)
    return rows


class RecordScan:
    """Reads ranges one after the other, with the same buffers."""

    def __init__(self, schema: pa.Schema, log: DamageLog) -> None:
        self._log = log
        self._reader = PieceReader(log, check_crc=True)
        self._columns = ColumnBuilder(schema)
        self._selected = headers.header_rows(ROWS_PER_CHUNK)
        self._sections: Longs = np.empty((ROWS_PER_CHUNK, 2), dtype=np.int64)
        self._scratch = _Scratch()

    def read(
        self, part: LogRange, visible: Visibility, read_filter: ReadFilter = EVERYTHING
    ) -> Iterator[pa.RecordBatch]:
        """Yield the visible records of `part`, in offset order. Raises DamagedSegment in mode `fail`, OSError."""
        first, limit = max(visible.log_start, read_filter.first_offset), min(visible.limit, read_filter.end_offset)
        visible = visible._replace(log_start=first, limit=limit)
        next_offset = 0
        self._reader.expect(part.pieces)
        for piece in part.pieces:
            if limit <= piece.base_offset:
                break
            expect(piece.size_bytes // _USUAL_RECORD_BYTES)
            self._columns.start(part.topic, part.number, piece.segment)
            for chunk in self._reader.chunks(piece, next_offset):
                next_offset = int(chunk.rows[-1, headers.LAST_OFFSET]) + 1
                yield from self._decode(piece, chunk, visible, read_filter)
            yield from self._columns.take()

    def _decode(
        self, piece: Piece, chunk: Chunk, visible: Visibility, read_filter: ReadFilter
    ) -> Iterator[pa.RecordBatch]:
        """Decode the matching batches of a chunk. Consecutive batches without compression are decoded together."""
        rows = chunk.rows if read_filter.takes_all else read_filter.rows(chunk.rows)
        if chunk.aborted is not None:
            visible = visible._replace(aborted=chunk.aborted)
        if visible.unread:
            rows = read_by_the_walk(piece, chunk, rows, visible.unread, self._log)
        count = frames.select_visible(rows, *visible[:4], self._selected, self._sections)
        rows, sections = self._selected[:count], self._sections[:count]
        if chunk.is_legacy:
            yield from self._decode_old_messages(piece, chunk, rows, visible)
            return
        is_packed = (rows[:, headers.ATTRIBUTES] & COMPRESSION_MASK) != 0
        edges = (np.flatnonzero(is_packed[1:] != is_packed[:-1]) + 1).tolist() if is_packed.any() else []
        for start, end in pairwise([0, *edges, count]):
            batches = rows[start:end], sections[start:end]
            if start < end and is_packed[start]:
                yield from self._decompress(piece, chunk, *batches, visible)
            else:
                yield from self._gather(piece, chunk, chunk.buffer, *batches, visible)

    def _decompress(
        self, piece: Piece, chunk: Chunk, rows: Longs, sections: Longs, visible: Visibility
    ) -> Iterator[pa.RecordBatch]:
        """Decompress batch by batch into the scratch buffer. Decode its content once it fills a record batch."""
        view = chunk.buffer.data
        columns = np.column_stack([sections, rows[:, headers.ATTRIBUTES] & COMPRESSION_MASK]).tolist()
        sound: list[int] = []
        places: list[tuple[int, int]] = []
        self._scratch.clear()
        for index, (start, end, codec) in enumerate(columns):
            kept = self._scratch.filled
            try:
                places.append(self._scratch.add(codec, view[start:end]))
                sound.append(index)
            except ProtocolError as error:
                self._scratch.filled = kept
                self._report(piece, chunk, rows[index], error)
            if places and (self._scratch.filled >= BATCH_BYTES or index == len(columns) - 1):
                yield from self._gather(piece, chunk, self._scratch.buffer, rows[sound], np.array(places), visible)
                sound, places = [], []
                self._scratch.clear()

    def _decode_old_messages(
        self, piece: Piece, chunk: Chunk, rows: Longs, visible: Visibility
    ) -> Iterator[pa.RecordBatch]:
        """Decode messages of magic 0 and 1 as the batches that they are converted to."""
        for row in rows:
            start = int(row[headers.POSITION])
            try:
                batch, new = convert_message(bytes(chunk.buffer[start : start + int(row[headers.SIZE])]), row)
            except ProtocolError as error:
                self._report(piece, chunk, row, error)
                continue
            section = np.array([[HEADER_SIZE, len(batch)]], dtype=np.int64)
            payload = np.frombuffer(batch, dtype=np.uint8)
            yield from self._gather(piece, chunk, payload, new.reshape(1, -1), section, visible)

    def _gather(
        self, piece: Piece, chunk: Chunk, payload: Bytes, rows: Longs, sections: Longs, visible: Visibility
    ) -> Iterator[pa.RecordBatch]:
        """Decode batches into the columns. A malformed batch is damage, and decoding continues after it."""
        done = 0
        expect(int(rows[:, headers.RECORD_COUNT].sum()))
        while done < len(rows):
            decoded, why = self._columns.add(payload, rows[done:], sections[done:], visible.log_start, visible.limit)
            done += decoded
            if why == frames.COLUMNS_FULL:
                yield from self._columns.take()
            elif why == frames.MALFORMED:
                self._report(piece, chunk, rows[done], ProtocolError("the records do not parse"))
                done += 1

    def _report(self, piece: Piece, chunk: Chunk, row: Longs, error: ProtocolError) -> None:
        """Log a batch that cannot be read, as too large for TooLarge, else as damage."""
        offset = int(row[headers.BASE_OFFSET])
        of_offsets = not isinstance(piece, SegmentPiece)
        start, end = offset, int(row[headers.LAST_OFFSET]) + 1
        if not of_offsets:
            start = chunk.file_position + int(row[headers.POSITION])
            end = start + int(row[headers.SIZE])
        reason = f"{error} (batch at offset {offset})"
        self._log.add(Damage(piece.path, start, end, reason, isinstance(error, TooLarge), of_offsets))


class _Scratch:
    """Decompressed record sections, one after the other."""

    def __init__(self) -> None:
        self.buffer: Bytes = np.empty(_SCRATCH_BYTES, dtype=np.uint8)
        self.filled = 0

    def clear(self) -> None:
        """Remove the content."""
        self.filled = 0
        if len(self.buffer) > _KEPT_BYTES:
            self.buffer = np.empty(_SCRATCH_BYTES, dtype=np.uint8)

    def add(self, compression: int, payload: memoryview) -> tuple[int, int]:
        """Decompress `payload` after the content so far and return (start, end). Raises ProtocolError, TooLarge."""
        start = self.filled
        size = first_size(payload, compression, READ_LIMIT_BYTES)
        while True:
            self._make_room(size)
            room = min(len(self.buffer) - start, READ_LIMIT_BYTES)
            written = decompress_into(payload, compression, self.buffer[start : start + room].data)
            if written is not None:
                self.filled += written
                return start, self.filled
            size = larger_size(payload, compression, room, READ_LIMIT_BYTES)

    def _make_room(self, size: int) -> None:
        if self.filled + size > len(self.buffer):
            grown = np.empty(self.filled + size, dtype=np.uint8)
            grown[: self.filled] = self.buffer[: self.filled]
            self.buffer = grown
