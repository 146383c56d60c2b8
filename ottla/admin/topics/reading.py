"""Reading of the records of one partition for one request, forward or backward, in bounded pieces. shell"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.admin.topics.pieces import PIECE_BYTES, FatedBatch, end_of_batch, read_piece
from ottla.admin.topics.walk import ShownRecord, Unreadable, Walked, Wanted, walk_batch
from ottla.broker.log.partition import Partition
from ottla.fates import Fate
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.steps import Steps

MOST_PIECES: Final = 8
"""Pieces of one request, all together of at most `PIECE_BYTES`: a piece ends with its segment."""
WALKED_BYTES: Final = 4 * 1024 * 1024
WALKED_RECORDS: Final = 50_000
"""No further batch is read after that many records, or bytes of them after decompression."""


class FatedRecord(NamedTuple):
    """A record, the header of its batch, and its fate."""

    record: ShownRecord
    header: BatchHeader
    fate: Fate


class LeftOut(NamedTuple):
    """Offsets whose records are not shown, and the reason."""

    first_offset: int
    last_offset: int
    reason: str


@dataclass(slots=True)
class Found:
    """Records in the order of their offsets. All others from `first` to below `end` do not match, or are `left_out`."""

    first: int
    end: int
    records: list[FatedRecord] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


@dataclass(slots=True)
class _Budget:
    size_bytes: int
    pieces: int = MOST_PIECES
    walked_bytes: int = WALKED_BYTES
    walked_records: int = WALKED_RECORDS

    @property
    def may_read(self) -> bool:
        return self.size_bytes > 0 and self.pieces > 0

    @property
    def may_walk(self) -> bool:
        return self.walked_bytes > 0 and self.walked_records > 0


def read_forward(
    partition: Partition, offset: int, most: int, key: bytes | None, most_bytes: int = PIECE_BYTES
) -> Steps[Found]:
    """Read records from `offset` on. Raises ProtocolError and OSError."""
    found, budget, upper = Found(offset, offset), _Budget(most_bytes), partition.high_watermark
    while found.end < upper and len(found.records) < most and budget.may_read:
        piece = yield from read_piece(partition, found.end, upper, budget.size_bytes)
        budget.pieces -= 1
        budget.size_bytes -= piece.size_bytes
        if not piece.batches:
            found.end = upper
        for batch in piece.batches:
            if len(found.records) >= most or not budget.may_walk:
                return found
            wanted = Wanted(offset, upper, most - len(found.records), key=key)
            records = yield from _walk(batch, wanted, found, budget)
            found.records += records
            is_full = len(found.records) >= most
            found.end = records[-1].record.offset + 1 if is_full else batch.header.next_offset
    return found


def read_backward(
    partition: Partition, before: int, most: int, key: bytes | None, most_bytes: int = PIECE_BYTES
) -> Steps[Found]:
    """Read the last records below `before`. Raises ProtocolError and OSError."""
    found, budget, lowest = Found(before, before), _Budget(most_bytes), partition.log_start_offset
    segments = partition.log.segments
    while found.first > lowest and len(found.records) < most and budget.may_read:
        upper = min(end_of_batch(segments, found.first - 1), partition.high_watermark)
        start = segments.offset_back(upper, budget.size_bytes)
        piece = yield from read_piece(partition, start, upper, budget.size_bytes)
        budget.pieces -= 1
        budget.size_bytes -= piece.size_bytes
        if not piece.batches:
            found.first = max(lowest, min(start, found.first - 1))
        for batch in reversed(piece.batches):
            if len(found.records) >= most or not budget.may_walk:
                return found
            wanted = Wanted(lowest, before, most - len(found.records), last_ones=True, key=key)
            records = yield from _walk(batch, wanted, found, budget)
            found.records[:0] = records
            is_full = len(found.records) >= most
            found.first = max(lowest, records[0].record.offset if is_full else batch.header.base_offset)
    return found


def _walk(batch: FatedBatch, wanted: Wanted, found: Found, budget: _Budget) -> Steps[list[FatedRecord]]:
    """Return the wanted records of a batch; add those that cannot be shown to `found.left_out`."""
    header, fate = batch.header, batch.fate
    if header.is_control:
        return []
    try:
        walked = yield from walk_batch(batch.data, header, wanted)
    except Unreadable as error:
        walked = Walked([])
        found.left_out.append(LeftOut(header.base_offset, header.last_offset, str(error)))
    budget.walked_bytes -= walked.raw_bytes
    budget.walked_records -= header.record_count
    if walked.is_cut:
        found.left_out.extend(_rest(walked, batch))
    return [FatedRecord(record, header, fate) for record in walked.records]


def _rest(walked: Walked, batch: FatedBatch) -> Iterator[LeftOut]:
    header = batch.header
    first = walked.records[-1].offset + 1 if walked.records else header.base_offset
    if first <= header.last_offset:
        reason = f"the batch has {header.size_bytes:,} bytes: only its first {len(batch.data):,} are read"
        yield LeftOut(first, header.last_offset, reason)
