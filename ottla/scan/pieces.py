"""Reader of pieces of partitions: of segment files, and of windows of offsets at brokers. shell"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from ottla.scan.chunks import Chunk, SegmentPiece, SegmentReader
from ottla.scan.damage_log import DamageLog

if TYPE_CHECKING:
    from ottla.scan.cluster.offset_window import OffsetWindow
    from ottla.scan.windows import WindowReader

Piece: TypeAlias = "SegmentPiece | OffsetWindow"


class PieceReader:
    """Reads pieces one after the other. A chunk is valid until the next one is read."""

    def __init__(self, log: DamageLog, *, check_crc: bool) -> None:
        self._log = log
        self._check_crc = check_crc
        self._segments: SegmentReader | None = None
        self._windows: WindowReader | None = None

    def expect(self, pieces: Iterable[Piece]) -> None:
        """Announce the next pieces, in order: files of a store are opened and read ahead."""
        segments = [piece for piece in pieces if isinstance(piece, SegmentPiece)]
        if segments:
            self._segment_reader().expect(segments)

    def chunks(self, piece: Piece, next_offset: int = 0) -> Iterator[Chunk]:
        """Yield the batches of a piece. A base offset below `next_offset` is damage.

        Raises OSError, Unanswered, DamagedSegment in mode `fail`.
        """
        if isinstance(piece, SegmentPiece):
            return self._segment_reader().chunks(piece, next_offset)
        if self._windows is None:
            from ottla.scan.windows import WindowReader  # and the connection, which readers of files do not need

            self._windows = WindowReader(self._log, check_crc=self._check_crc)
        return self._windows.chunks(piece, next_offset)

    def _segment_reader(self) -> SegmentReader:
        if self._segments is None:
            self._segments = SegmentReader(self._log, check_crc=self._check_crc)
        return self._segments
