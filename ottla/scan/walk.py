"""Ordered walk over a range, which yields the events of each chunk (columns: `events`). shell"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ottla.scan import headers
from ottla.scan.chunks import SegmentPiece
from ottla.scan.compiled.kernels import Bytes, Longs
from ottla.scan.damage_log import DamageLog
from ottla.scan.events import Follower
from ottla.scan.fates import ABORTED_COLUMNS, RangeFates, aborted_of
from ottla.scan.pieces import Piece, PieceReader
from ottla.scan.ranges import LogRange
from ottla.scan.states import DEFAULT_EXPIRATION_MS, States

# AppendOrigin.COORDINATOR: `ProducerAppendInfo` does not check sequences there.
_WRITTEN_BY_COORDINATORS = ("__consumer_offsets", "__share_group_state", "__transaction_state")


class Step(NamedTuple):
    """Whole batches: header `rows` (positions in `buffer`, which starts at `file_position`), and their events.

    The arrays of a step are valid until the next step.
    """

    piece: Piece
    buffer: Bytes
    file_position: int
    rows: Longs
    ended: Longs
    anomalies: Longs
    gaps: Longs

    @property
    def segment(self) -> SegmentPiece:
        """The piece of a step over files."""
        assert isinstance(self.piece, SegmentPiece)
        return self.piece


class Walk:
    """Iterator over the steps of a walk. At its end `leaving` and `totals` have the final states and sums."""

    def __init__(
        self,
        part: LogRange,
        entering: States,
        log: DamageLog,
        *,
        check_crc: bool,
        limit: int | None = None,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        """`entering`: `states.empty()`, or the result of `partitions.entering(log)` or `states.enter`.

        `limit`: batches that begin at or after this offset are ignored.
        """
        self._part = part
        self._limit = limit
        self._reader = PieceReader(log, check_crc=check_crc)
        has_sequences = part.topic not in _WRITTEN_BY_COORDINATORS
        self._follower = Follower(entering, part.log_start, expiration_ms, has_sequences=has_sequences)

    def __iter__(self) -> Iterator[Step]:
        """Yield the steps. Raises DamagedSegment in mode `fail`, OSError if a file cannot be read."""
        follower = self._follower
        self._reader.expect(self._part.pieces)
        for piece in self._part.pieces:
            if self._limit is not None and piece.base_offset >= self._limit:
                return
            for chunk in self._reader.chunks(piece, follower.next_offset):
                rows = chunk.rows
                if self._limit is not None:
                    rows = rows[: np.searchsorted(rows[:, headers.BASE_OFFSET], self._limit)]
                found = follower.follow(rows, chunk.file_position, piece.base_offset)
                yield Step(piece, chunk.buffer, chunk.file_position, rows, *found)
                if len(rows) < len(chunk.rows):
                    return

    def finish(self) -> "Walk":
        """Take all steps."""
        for _ in self:
            pass
        return self

    @property
    def leaving(self) -> States:
        """The states after the last batch of the last step."""
        return self._follower.leaving()

    @property
    def totals(self) -> Longs:
        return self._follower.totals


def range_fates(part: LogRange, start: States, *, on_damage: str, check_crc: bool) -> RangeFates:
    """Walk over all of `part` and return the fates of its transactions. Raises the errors of the walk."""
    log = DamageLog(on_damage)
    walked = Walk(part, start, log, check_crc=check_crc)
    aborted: list[Longs] = [np.empty((0, ABORTED_COLUMNS), dtype=np.int64)]
    aborted += [aborted_of(step.ended) for step in walked if len(step.ended)]
    return RangeFates(walked.totals, np.concatenate(aborted), walked.leaving, tuple(log.found), tuple(log.torn))
