"""The record scan: ranges of segments to Arrow record batches of what a consumer would be given. shell"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ottla.protocol.batch_header import COMPRESSION_MASK, HEADER_SIZE
from ottla.protocol.errors import ProtocolError
from ottla.spark_jobs.scan import frames, headers
from ottla.spark_jobs.scan.chunks import ROWS_PER_CHUNK, Chunk, Piece, SegmentReader
from ottla.spark_jobs.scan.codecs import Scratch
from ottla.spark_jobs.scan.columns import BATCH_BYTES, ColumnBuilder, Records
from ottla.spark_jobs.scan.damage import Damage, DamageLog
from ottla.spark_jobs.scan.fates import PartitionFates
from ottla.spark_jobs.scan.kernels import Bytes, Longs
from ottla.spark_jobs.scan.listing import PartitionLog
from ottla.spark_jobs.scan.plan import Range


class Visibility(NamedTuple):
    """What of a partition is visible: offsets in [log_start, limit), but not batches in `aborted` ranges."""

    committed_only: bool
    log_start: int
    limit: int
    aborted: Longs


def visibility(fates: PartitionFates, *, committed_only: bool) -> Visibility:
    """read_committed ends at the last stable offset, read_uncommitted at the high watermark."""
    if committed_only:
        return Visibility(True, fates.log_start, fates.last_stable_offset, fates.aborted_ranges)
    return Visibility(False, fates.log_start, fates.high_watermark, fates.aborted_ranges[:0])


def uncommitted(log_start: int) -> Visibility:
    """All data batches up to the end of the log, whatever their fate."""
    return Visibility(False, log_start, 2**63 - 1, np.empty((0, 3), dtype=np.int64))


def visible_in(visible: Visibility, part: Range, log: PartitionLog) -> Visibility:
    """`visible` with the aborted ranges that can concern `part` alone."""
    first = part.pieces[0].base_offset
    last_base = part.pieces[-1].base_offset
    behind = min((one.base_offset for one in log.segments if one.base_offset > last_base), default=visible.limit)
    aborted = visible.aborted
    return visible._replace(aborted=aborted[(aborted[:, 2] >= first) & (aborted[:, 1] < behind)])


class Wanted(NamedTuple):
    """What of the visible is asked for: offsets in [first_offset, end_offset), these producers (None: all).

    `since_ms` only spares decoding batches whose largest timestamp is below it: older records of others are returned.
    """

    first_offset: int = 0
    end_offset: int = 2**63 - 1
    since_ms: int = -(2**63)
    producer_ids: tuple[int, ...] | None = None

    def rows(self, rows: Longs) -> Longs:
        """The header rows of batches that can hold what is asked for."""
        keep = (rows[:, headers.BASE_OFFSET] < self.end_offset) & (rows[:, headers.LAST_OFFSET] >= self.first_offset)
        keep &= rows[:, headers.MAX_TIMESTAMP] >= self.since_ms
        if self.producer_ids is not None:
            keep &= np.isin(rows[:, headers.PRODUCER_ID], self.producer_ids)
        return rows if keep.all() else rows[keep]


EVERYTHING = Wanted()


class RecordScan:
    """Reads ranges one after the other, with the same buffers."""

    def __init__(self, schema: pa.Schema, log: DamageLog) -> None:
        self._schema = schema
        self._log = log
        self._reader = SegmentReader(log, check_crc=True)
        self._selected: Longs = np.empty(ROWS_PER_CHUNK, dtype=np.int64)
        self._scratch = Scratch()

    def read(self, part: Range, visible: Visibility, wanted: Wanted = EVERYTHING) -> Iterator[pa.RecordBatch]:
        """The visible records of `part`, in offset order. Raises DamagedSegment in mode `fail`, OSError."""
        builder = ColumnBuilder(self._schema, part.topic, part.number)
        visible = visible._replace(log_start=max(visible.log_start, wanted.first_offset))
        limit = min(visible.limit, wanted.end_offset)
        next_offset = 0
        self._reader.expect(part.pieces)
        for piece in part.pieces:
            if limit <= piece.base_offset:
                break
            for chunk in self._reader.chunks(piece, next_offset):
                next_offset = int(chunk.rows[-1, headers.LAST_OFFSET]) + 1
                for records in self._decode(piece, chunk, visible, wanted):
                    below = int(np.searchsorted(records.longs[frames.OFFSET], limit))
                    yield from builder.batches(records.part(0, below), piece.base_offset)

    def _decode(self, piece: Piece, chunk: Chunk, visible: Visibility, wanted: Wanted) -> Iterator[Records]:
        count = frames.select_visible(
            chunk.rows, visible.committed_only, visible.log_start, visible.limit, visible.aborted, self._selected
        )
        rows = wanted.rows(chunk.rows[self._selected[:count]])
        codec = rows[:, headers.ATTRIBUTES] & COMPRESSION_MASK
        edges = np.flatnonzero(np.diff(codec != 0)) + 1
        for run in np.split(np.arange(len(rows)), edges):
            if len(run) == 0:
                continue
            batches = rows[run[0] : run[-1] + 1]
            if codec[run[0]]:
                yield from self._decompressed(piece, chunk, batches, visible.log_start)
            else:
                sections = np.empty((len(batches), 2), dtype=np.int64)
                sections[:, 0] = batches[:, headers.POSITION] + HEADER_SIZE
                sections[:, 1] = batches[:, headers.POSITION] + batches[:, headers.SIZE]
                yield from self._frames(piece, chunk, chunk.buffer, batches, sections, visible.log_start)

    def _decompressed(self, piece: Piece, chunk: Chunk, batches: Longs, log_start: int) -> Iterator[Records]:
        """Decompress batch by batch into the scratch, and decode it whenever it holds a record batch's worth."""
        view = chunk.buffer.data
        columns = batches[:, [headers.POSITION, headers.SIZE, headers.ATTRIBUTES]].tolist()
        sound: list[int] = []
        sections: list[tuple[int, int]] = []
        self._scratch.clear()
        for index, (position, size, attributes) in enumerate(columns):
            payload = view[position + HEADER_SIZE : position + size]
            kept = self._scratch.filled
            try:
                sections.append(self._scratch.add(attributes & COMPRESSION_MASK, payload))
                sound.append(index)
            except ProtocolError as error:
                self._scratch.filled = kept
                self._damaged(piece, chunk, batches[index], str(error))
            if sections and (self._scratch.filled >= BATCH_BYTES or index == len(columns) - 1):
                buffer = self._scratch.buffer
                yield from self._frames(piece, chunk, buffer, batches[sound], np.array(sections), log_start)
                sound, sections = [], []
                self._scratch.clear()

    def _frames(
        self, piece: Piece, chunk: Chunk, payload: Bytes, batches: Longs, sections: Longs, log_start: int
    ) -> Iterator[Records]:
        """Decode `batches`; a malformed one is damage, and decoding goes on behind it."""
        done = 0
        while done < len(batches):
            rows, parts = batches[done:], sections[done:]
            # A record takes seven bytes at least, so a count that lies allocates nothing.
            most = np.minimum(rows[:, headers.RECORD_COUNT], (parts[:, 1] - parts[:, 0]) // headers.SMALLEST_RECORD)
            capacity = int(most.sum()) + 1
            longs = np.empty((frames.LONG_COLUMNS, capacity), dtype=np.int64)
            ints = np.empty((frames.INT_COLUMNS, capacity), dtype=np.int32)
            count, decoded = frames.read_frames(payload, rows, parts, log_start, longs, ints)
            if count:
                yield Records(payload, rows, longs[:, :count], ints[:, :count])
            done += decoded
            if done < len(batches):
                self._damaged(piece, chunk, batches[done], "the records do not parse")
                done += 1

    def _damaged(self, piece: Piece, chunk: Chunk, row: Longs, reason: str) -> None:
        position = chunk.file_position + int(row[headers.POSITION])
        offset = row[headers.BASE_OFFSET]
        end = position + int(row[headers.SIZE])
        self._log.add(Damage(piece.path, position, end, f"{reason} (batch at offset {offset})"))
