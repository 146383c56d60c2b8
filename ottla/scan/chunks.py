"""Reader of segment files in chunks of whole batches, with one reused buffer. shell

mmap is slower here because of page faults, and dies (SIGBUS) when a broker truncates the file. Bytes that do not parse
are torn (at the end of the active segment, no sound batch after them) or damage (anywhere else). Reading continues at
the next sound batch.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ottla.checksum import crc32c
from ottla.protocol.batch_header import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    LEGACY_SMALLEST,
    BatchHeader,
    crc_is_valid,
    least_size,
    read_header,
    read_legacy_header,
)
from ottla.protocol.checkpoints import LAST_BASE_OFFSET
from ottla.scan import headers, storage
from ottla.scan.compiled.kernels import Bytes, Forecast, Longs, expect
from ottla.scan.damage_log import Damage, DamageLog
from ottla.scan.legacy import walk_messages

# A chunk and its decoded rows should fit into the CPU cache.
CHUNK_BYTES = 2 * 1024 * 1024
ROWS_PER_CHUNK = 16_384
# At most PIECES_AHEAD remote pieces are opened in advance, and none while BYTES_AHEAD bytes are left to read.
PIECES_AHEAD = 8
BYTES_AHEAD = 16 * 1024 * 1024
# The bytes in which the search for a batch header takes as long as the walk over a batch.
_SEARCHED_BYTES = 32


class SegmentPiece(NamedTuple):
    """The batches of one segment file that start in [start, end); `file_bytes` is its size when it was listed.

    Offsets below `recovery_point` were flushed, so a crash cannot have cut them off.
    """

    path: str
    base_offset: int
    start: int
    end: int
    file_bytes: int
    is_last: bool
    recovery_point: int

    @property
    def segment(self) -> int:
        return self.base_offset

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def offset_limit(self) -> int:
        """An offset that no batch begins at: a segment spans 2^31, because its indexes hold int32 offsets.

        The sum of a smaller offset and of an offset delta fits 64 bits.
        """
        return min(self.base_offset + 2**31, LAST_BASE_OFFSET + 1)


class Chunk(NamedTuple):
    """Whole batches. `rows` are their headers, with positions in `buffer`, which starts at `file_position`.

    All batches have magic 2, or all are messages of magic 0 and 1 (`is_legacy`). `aborted`: the aborted transactions
    among them as a broker names them, rows (producer id, first offset, marker offset), sorted; None for files.
    """

    buffer: Bytes
    rows: Longs
    file_position: int
    is_legacy: bool = False
    aborted: Longs | None = None


def first_bad_crc(view: memoryview, rows: Longs) -> int:
    """Return the index of the first batch whose CRC is wrong, or the number of batches."""
    columns = rows[:, [headers.POSITION, headers.SIZE, headers.CRC]].tolist()
    for index, (position, size, crc) in enumerate(columns):
        if crc32c(view[position + ATTRIBUTES_OFFSET : position + size]) != crc:
            return index
    return len(columns)


class SegmentReader:
    """Reads pieces one after the other. A chunk is valid until the next one is read."""

    def __init__(self, log: DamageLog, *, check_crc: bool) -> None:
        self._log = log
        self._check_crc = check_crc
        self._buffer: Bytes = np.empty(CHUNK_BYTES, dtype=np.uint8)
        self._rows = headers.header_rows(ROWS_PER_CHUNK)
        self._file: storage.File
        self._forecast: Forecast
        self._base = 0  # file position of buffer[0]
        self._filled = 0
        self._expected: deque[SegmentPiece] = deque()
        self._opened: deque[tuple[SegmentPiece, storage.File]] = deque()

    def expect(self, pieces: Iterable[SegmentPiece]) -> None:
        """Announce the next pieces, in order: remote ones are opened and read ahead."""
        self._forget()
        self._expected = deque(piece for piece in pieces if storage.is_remote(piece.path) and piece.start < piece.end)

    def chunks(self, piece: SegmentPiece, next_offset: int = 0) -> Iterator[Chunk]:
        """Yield the batches of `piece`. A base offset below `next_offset` is damage. Raises OSError, DamagedSegment."""
        next_offset = max(next_offset, piece.base_offset)
        if piece.start >= piece.end:
            return
        self._forecast = Forecast(piece.size_bytes, piece.size_bytes)
        self._file = self._open(piece)
        try:
            self._look_ahead(piece.end - piece.start)
            actual = self._file.size_bytes
            if actual < piece.file_bytes:
                piece = self._cut_to_file(piece, actual)
            yield from self._walk(piece, next_offset)
        except BaseException:
            self._forget()
            raise
        finally:
            self._file.close()

    def _open(self, piece: SegmentPiece) -> storage.File:
        while self._opened:
            expected, file = self._opened.popleft()
            if expected == piece:
                return file
            file.close()
        if piece in self._expected:
            while self._expected.popleft() != piece:
                pass
        return storage.open_range(piece.path, piece.start, piece.end)

    def _look_ahead(self, unread: int) -> None:
        """Open expected pieces while the open ones have few bytes left to read."""
        unread += sum(piece.end - piece.start for piece, _ in self._opened)
        while self._expected and unread < BYTES_AHEAD and len(self._opened) < PIECES_AHEAD:
            piece = self._expected.popleft()
            self._opened.append((piece, storage.open_range(piece.path, piece.start, piece.end)))
            unread += piece.end - piece.start

    def _forget(self) -> None:
        """Drop the expected pieces and close those that are open in advance."""
        self._expected.clear()
        while self._opened:
            self._opened.popleft()[1].close()

    def _cut_to_file(self, piece: SegmentPiece, actual: int) -> SegmentPiece:
        """Cut `piece` to a file that lost bytes after it was listed: torn in the active segment, else damage."""
        lost = Damage(piece.path, actual, piece.file_bytes, "the file is shorter than when it was listed")
        if piece.is_last:
            self._log.add_torn(lost)
        else:
            self._log.add(lost)
        return piece._replace(end=min(piece.end, actual), file_bytes=actual)

    def _walk(self, piece: SegmentPiece, next_offset: int) -> Iterator[Chunk]:
        self._base, self._filled, at = piece.start, 0, 0
        while self._base + at < piece.end:
            count, stopped, why, after = headers.walk_headers(*self._arguments(piece, at, next_offset))
            self._forecast.add(count, self._base + stopped - piece.start)
            rows = self._rows[:count]
            broken = first_bad_crc(self._buffer.data, rows) if self._check_crc else count
            if broken:
                yield Chunk(self._buffer, rows[:broken], self._base)
                next_offset = int(rows[broken - 1, headers.LAST_OFFSET]) + 1
            if broken < count:
                row = rows[broken]
                at = self._skip(
                    piece,
                    int(row[headers.POSITION]),
                    next_offset,
                    f"CRC mismatch in the batch at offset {row[headers.BASE_OFFSET]}",
                    own_end=int(row[headers.POSITION] + row[headers.SIZE]),
                )
                continue
            at, next_offset = stopped, after
            is_short = piece.file_bytes - self._base - at < HEADER_SIZE
            if why == headers.MAGIC_OLD or (why == headers.CUT and is_short and self._is_legacy(at)):
                at, next_offset = yield from self._walk_legacy(piece, at, next_offset)
            elif why == headers.CUT and self._base + at < piece.end:
                if is_short and self._base + self._filled == piece.file_bytes:
                    at = self._skip(piece, at, next_offset, "the batch header is cut short")
                else:
                    at = self._refill(piece, at)
            elif why not in (headers.CUT, headers.FULL):
                at = self._skip(piece, at, next_offset, headers.REASONS[why])

    def _arguments(
        self, piece: SegmentPiece, at: int, next_offset: int
    ) -> tuple[Bytes, int, int, int, int, int, int, Longs]:
        """Return the arguments of both walks."""
        to_file_end, stop = piece.file_bytes - self._base, piece.end - self._base
        return self._buffer, at, self._filled, to_file_end, stop, next_offset, piece.offset_limit, self._rows

    def _is_legacy(self, at: int) -> bool:
        return read_legacy_header(self._buffer.data[: self._filled], at) is not None

    def _walk_legacy(self, piece: SegmentPiece, at: int, next_offset: int) -> Generator[Chunk, None, tuple[int, int]]:
        """Yield the messages of magic 0 and 1 from `at` on. Return the position to continue at and the next offset."""
        walked = walk_messages(*self._arguments(piece, at, next_offset), self._check_crc)
        if walked.read:
            yield Chunk(self._buffer, self._rows[: walked.read], self._base, is_legacy=True)
        at, next_offset = walked.at, walked.next_offset
        if walked.cut:
            at = self._refill(piece, at)
        elif walked.wrong is not None:
            at = self._skip(piece, at, next_offset, walked.wrong, own_end=walked.end)
        return at, next_offset

    def _refill(self, piece: SegmentPiece, at: int) -> int:
        """Move the unread bytes to the front and fill the buffer, a larger one if the batch at `at` needs it."""
        left = self._filled - at
        needed = 0
        if left >= HEADER_SIZE:
            needed = read_header(self._buffer.data, at).size_bytes
        buffer = self._buffer
        if needed > len(buffer):
            self._buffer = np.empty(needed, dtype=np.uint8)
        self._buffer[:left] = buffer[at : self._filled]
        self._base += at
        # Not beyond the piece: another reader, maybe on another machine, reads the rest.
        least = max(piece.end - self._base, needed, HEADER_SIZE)
        size = min(len(self._buffer), piece.file_bytes - self._base, least)
        view = self._buffer.data
        filled = left
        while filled < size:
            got = self._file.read_into(view[filled:size], self._base + filled)
            if got == 0:
                raise OSError(f"{piece.path}: truncated below position {self._base + size} while it was read")
            filled += got
        self._filled = filled
        self._look_ahead(piece.end - self._base - filled)
        return 0

    def _skip(self, piece: SegmentPiece, at: int, next_offset: int, reason: str, *, own_end: int | None = None) -> int:
        """Log the damage at `at`, empty the buffer and return the buffer position to continue at.

        `own_end`: end of the broken batch by its own length. If a sound batch starts there, only this batch is lost.
        """
        broken = self._base + at
        sound = -1
        if own_end is not None and self._is_sound(piece, self._base + own_end, next_offset):
            sound = self._base + own_end
        if sound < 0:
            sound = self._find_sound(piece, broken + 1, next_offset)
        if sound >= 0:
            self._log.add(Damage(piece.path, broken, sound, reason))
        elif (
            piece.is_last
            and piece.end == piece.file_bytes
            and next_offset >= piece.recovery_point
            and self._find_sound(piece, broken, 0) < 0
        ):
            self._log.add_torn(Damage(piece.path, broken, piece.end, reason))
        else:
            self._log.add(Damage(piece.path, broken, piece.end, reason))
        self._base, self._filled = (piece.end if sound < 0 else sound), 0
        return 0

    def _find_sound(self, piece: SegmentPiece, position: int, next_offset: int) -> int:
        """Return the file position of the first sound batch that starts in [position, piece.end), or -1."""
        while position < piece.end:
            position = max(position, storage.next_data(self._file, position) - HEADER_SIZE + 1)
            window = np.frombuffer(self._file.read(CHUNK_BYTES, position), dtype=np.uint8)
            if len(window) < LEGACY_SMALLEST:
                return -1
            expect(len(window) // _SEARCHED_BYTES)
            found = headers.find_header(
                window, 0, len(window), piece.file_bytes - position, next_offset, piece.offset_limit, self._rows[0]
            )
            if found < 0:
                position += max(len(window) - HEADER_SIZE, 0) + 1
                continue
            if position + found >= piece.end:
                return -1
            if self._is_sound(piece, position + found, next_offset):
                return int(position + found)
            position += found + 1
        return -1

    def _is_sound(self, piece: SegmentPiece, position: int, next_offset: int) -> bool:
        """Return whether a whole batch with a right CRC is at `position`."""
        room = piece.file_bytes - position
        if room < LEGACY_SMALLEST or position >= piece.end:
            return False
        head = np.frombuffer(self._file.read(min(HEADER_SIZE, room), position), dtype=np.uint8)
        if len(head) < min(HEADER_SIZE, room):
            return False
        legacy = read_legacy_header(head.data)
        if legacy is None:
            if room < HEADER_SIZE:
                return False
            if headers.check_header(head, 0, room, next_offset, piece.offset_limit, self._rows[0]) != headers.CUT:
                return False
            return self._crc_is_right(position, read_header(head.data))
        elif not (least_size(legacy.magic) <= legacy.size_bytes <= room and legacy.base_offset >= next_offset):
            return False
        batch = self._file.read(legacy.size_bytes, position)
        return len(batch) == legacy.size_bytes and crc_is_valid(batch, legacy)

    def _crc_is_right(self, position: int, header: BatchHeader) -> bool:
        """Return whether a batch's CRC matches. Reads the batch in parts, because garbage may claim two GiB."""
        at, end, crc = position + ATTRIBUTES_OFFSET, position + header.size_bytes, 0
        while at < end and (part := self._file.read(min(CHUNK_BYTES, end - at), at)):
            crc, at = crc32c(part, crc), at + len(part)
        return at == end and crc == header.crc
