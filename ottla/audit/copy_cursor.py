"""Reader of one copy of a partition, batch by batch, next to readers of its other copies. shell"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ottla.protocol.batch_header import BatchHeader, read_header
from ottla.protocol.records import Record, iter_records
from ottla.scan import headers
from ottla.scan.chunks import Chunk, SegmentPiece
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import REPORT, Damage, DamageLog
from ottla.scan.pieces import Piece, PieceReader
from ottla.wire import Unanswered

FAR: Final = 2**63 - 1


class CopyCursor:
    """A position among the batches of a copy. Batches below `log_start` are passed over.

    `rows`: header rows from the present batch on, as far as they are read. `hole`: the offsets [first, end) of damaged
    batches right before `rows`, with the damage. `epoch`: the leader epoch of the batch before the present one.
    """

    def __init__(self, pieces: Sequence[Piece], log_start: int) -> None:
        self._log = DamageLog(REPORT)
        self._log_start = log_start
        self._chunks = self._read(pieces)
        self._chunk: Chunk
        self._piece: Piece
        self._next_offset = log_start
        self._decoded: tuple[BatchHeader, dict[int, Record]] | None = None
        self.rows: Longs = headers.header_rows(0)
        self.hole: tuple[int, int, Damage] | None = None
        self.epoch = -1
        self.failure = ""
        self._fill()

    @property
    def base_offset(self) -> int:
        """The base offset of the present batch; FAR at the end."""
        return int(self.rows[0, headers.BASE_OFFSET]) if len(self.rows) else FAR

    @property
    def last_offset(self) -> int:
        return int(self.rows[0, headers.LAST_OFFSET])

    def place_of(self, row: Longs) -> tuple[str | None, int | None]:
        """Return the file with a batch of `rows`, and its position there; None at a broker."""
        if not isinstance(self._piece, SegmentPiece):
            return None, None
        return self._piece.path, self._chunk.file_position + int(row[headers.POSITION])

    def skip(self, count: int) -> None:
        """Go to the batch after the next `count` ones."""
        self.epoch = int(self.rows[count - 1, headers.LEADER_EPOCH])
        self._next_offset = int(self.rows[count - 1, headers.LAST_OFFSET]) + 1
        self.rows = self.rows[count:]
        self._decoded = None
        if not len(self.rows):
            self._fill()

    def decode(self) -> tuple[BatchHeader, dict[int, Record]]:
        """Return the header of the present batch, and its records by offset. Raises ProtocolError."""
        if self._decoded is None:
            start = int(self.rows[0, headers.POSITION])
            batch = bytes(self._chunk.buffer[start : start + int(self.rows[0, headers.SIZE])])
            header = read_header(batch)
            self._decoded = header, {record.offset: record for record in iter_records(batch, header)}
        return self._decoded

    def _fill(self) -> None:
        """Read chunks until one has a batch; at the end there is none. Raises OSError for files."""
        damaged = len(self._log.found)
        try:
            for chunk in self._chunks:
                self._chunk = chunk
                self.rows = chunk.rows[chunk.rows[:, headers.LAST_OFFSET] >= self._log_start]
                if len(self.rows):
                    break
        except (OSError, Unanswered) as error:
            if isinstance(self._piece, SegmentPiece):
                raise
            self.failure = str(error)
        new = self._log.found[damaged:]
        self.hole = (self._next_offset, self.base_offset, new[0]) if new else None

    def _read(self, pieces: Sequence[Piece]) -> Iterator[Chunk]:
        reader = PieceReader(self._log, check_crc=True)
        reader.expect(pieces)
        next_offset = 0
        for self._piece in pieces:
            for chunk in reader.chunks(self._piece, next_offset):
                next_offset = int(chunk.rows[-1, headers.LAST_OFFSET]) + 1
                yield chunk


def count_equal(cursors: Sequence[CopyCursor], end_offset: int, most: int) -> int:
    """Return the number of next batches, at most `most`, that end below `end_offset` and are the same in all copies.

    Their CRCs are right and equal, and so are all fields of their headers.
    """
    size = min(most, *(len(one.rows) for one in cursors))
    first, *others = [one.rows[:size] for one in cursors]
    same = first[:, headers.LAST_OFFSET] < end_offset
    for rows in others:
        same &= (rows[:, headers.BASE_OFFSET :] == first[:, headers.BASE_OFFSET :]).all(axis=1)
    return size if same.all() else int(np.argmin(same))
