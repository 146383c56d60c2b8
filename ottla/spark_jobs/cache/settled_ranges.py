"""Ranges of a segment, which the headers of their batches identify. shell

A header has the CRC of its batch, its offsets, its position and its producer. So two ranges with the same headers have
the same records. The aborted transactions that overlap with the range determine which records are visible.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ottla.scan import headers
from ottla.scan.chunks import SegmentPiece, SegmentReader
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import REPORT, DamageLog
from ottla.scan.listing import PartitionLog, SegmentFile
from ottla.spark_jobs.cache.names import Piece

# A longer run of batches is cut into ranges of about this size: a task writes one.
TARGET_BYTES = 128 * 1024 * 1024
_DIGEST_BYTES = 16


class SettledRange(NamedTuple):
    """Whole batches of a segment at positions [start, end), with offsets in [first_offset, end_offset)."""

    base_offset: int
    start: int
    end: int
    first_offset: int
    end_offset: int
    digest: str


class Layout(NamedTuple):
    """The settled part of a segment, in consecutive `settled_ranges`; none if a part is damaged."""

    settled_ranges: tuple[SettledRange, ...]
    is_sound: bool


def aborted_in(settled_range: SettledRange, aborted: Longs) -> Longs:
    """Return the aborted ranges, sorted and cut to the settled range."""
    some = aborted[(aborted[:, 2] >= settled_range.first_offset) & (aborted[:, 1] < settled_range.end_offset)].copy()
    some[:, 1] = np.maximum(some[:, 1], settled_range.first_offset)
    some[:, 2] = np.minimum(some[:, 2], settled_range.end_offset)
    return some


def identity(settled_range: SettledRange, aborted: Longs) -> str:
    """Return the hash in the name of a piece: of the headers, and of the aborted ranges among them."""
    found = hashlib.blake2b(bytes.fromhex(settled_range.digest), digest_size=_DIGEST_BYTES)
    found.update(np.ascontiguousarray(aborted_in(settled_range, aborted), dtype="<i8").tobytes())
    return found.hexdigest()


def lay_out(log: PartitionLog, segment: SegmentFile, limit: int, aborted: Longs, candidates: Sequence[Piece]) -> Layout:
    """Divide the batches below offset `limit` into ranges: first those of `candidates` that match the segment.

    The rest is combined with the last of these while they are not larger, so that a growing segment has few ranges.
    Raises OSError.
    """
    damage = DamageLog(REPORT)
    kept: list[SettledRange] = []
    end = segment.size_bytes
    if candidates:
        # Check the records too: the cache must not hide that a flipped bit has made the log unreadable.
        found, end = _digests(_iter_settled(log, segment, limit, damage, check_crc=True), segment, candidates)
        kept = _chain([found[one.start, one.end] for one in candidates if _is(one, found, aborted)])
    at = kept[-1].end if kept else 0
    while kept and at < end and kept[-1].end - kept[-1].start <= end - at and end - kept[-1].start <= TARGET_BYTES:
        at = kept.pop().start
    fresh = list(_cut(_iter_settled(log, segment, limit, damage, start=at), segment, at)) if at < end else []
    return Layout((*kept, *fresh), is_sound=True) if not damage.found else Layout((), is_sound=False)


def digest_of(piece: SegmentPiece) -> str:
    """Return the digest of all batches of `piece`, as they are now. Raises OSError."""
    found = _Digest(piece.base_offset, piece.start)
    for rows in _header_rows(piece, DamageLog(REPORT), check_crc=False):
        found.add(rows)
    return found.settled_range().digest


def segment_piece(log: PartitionLog, segment: SegmentFile, start: int, end: int) -> SegmentPiece:
    size, is_last = segment.size_bytes, segment.is_last
    return SegmentPiece(segment.path, segment.base_offset, start, end, size, is_last, log.recovery_point)


class _Digest:
    def __init__(self, base_offset: int, start: int) -> None:
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._base_offset, self.start, self.end = base_offset, start, start
        self._first_offset, self._end_offset = -1, -1

    def add(self, rows: Longs) -> None:
        if len(rows):
            self._hash.update(np.ascontiguousarray(rows, dtype="<i8").tobytes())
            if self._first_offset < 0:
                self._first_offset = int(rows[0, headers.BASE_OFFSET])
            self._end_offset = int(rows[-1, headers.LAST_OFFSET]) + 1
            self.end = int(rows[-1, headers.POSITION] + rows[-1, headers.SIZE])

    def settled_range(self) -> SettledRange:
        offsets = self._first_offset, self._end_offset
        return SettledRange(self._base_offset, self.start, self.end, *offsets, self._hash.hexdigest())


def _header_rows(piece: SegmentPiece, damage: DamageLog, *, check_crc: bool) -> Iterator[Longs]:
    """Yield header rows with their positions in the file."""
    for chunk in SegmentReader(damage, check_crc=check_crc).chunks(piece):
        rows = chunk.rows.copy()
        rows[:, headers.POSITION] += chunk.file_position
        yield rows


def _iter_settled(
    log: PartitionLog, segment: SegmentFile, limit: int, damage: DamageLog, *, start: int = 0, check_crc: bool = False
) -> Iterator[Longs]:
    piece = segment_piece(log, segment, start, segment.size_bytes)
    for rows in _header_rows(piece, damage, check_crc=check_crc):
        is_unsettled = rows[:, headers.LAST_OFFSET] >= limit
        if is_unsettled.any():
            yield rows[: int(is_unsettled.argmax())]
            return
        yield rows


def _digests(
    all_rows: Iterable[Longs], segment: SegmentFile, candidates: Sequence[Piece]
) -> tuple[dict[tuple[int, int], SettledRange], int]:
    """Return the current range at the positions of each candidate, and the end position of the last row."""
    digests = {(one.start, one.end): _Digest(segment.base_offset, one.start) for one in candidates}
    read_to = 0
    for rows in all_rows:
        positions = rows[:, headers.POSITION]
        for edges, digest in digests.items():
            first, end = np.searchsorted(positions, edges)
            digest.add(rows[first:end])
        if len(rows):
            read_to = int(rows[-1, headers.POSITION] + rows[-1, headers.SIZE])
    return {edges: digest.settled_range() for edges, digest in digests.items()}, read_to


def _is(piece: Piece, found: dict[tuple[int, int], SettledRange], aborted: Longs) -> bool:
    settled_range = found[piece.start, piece.end]
    return settled_range.end == piece.end and identity(settled_range, aborted) == piece.identity


def _chain(settled_ranges: Iterable[SettledRange]) -> list[SettledRange]:
    """Return consecutive ranges from the start of the segment; the longest if several begin at one position."""
    longest: dict[int, SettledRange] = {}
    for one in settled_ranges:
        if one.start not in longest or one.end > longest[one.start].end:
            longest[one.start] = one
    chain: list[SettledRange] = []
    while (at := chain[-1].end if chain else 0) in longest:
        chain.append(longest[at])
    return chain


def _cut(all_rows: Iterable[Longs], segment: SegmentFile, start: int) -> Iterator[SettledRange]:
    digest = _Digest(segment.base_offset, start)
    for rows in all_rows:
        rest = rows
        while len(rest):
            ends = rest[:, headers.POSITION] + rest[:, headers.SIZE]
            count = int(np.searchsorted(ends, digest.start + TARGET_BYTES)) + 1
            digest.add(rest[:count])
            if count <= len(rest):
                yield digest.settled_range()
                digest = _Digest(segment.base_offset, digest.end)
            rest = rest[count:]
    if digest.end > digest.start:
        yield digest.settled_range()
