"""Bounded pieces of the log of one partition: whole batches, each with the fate of its records. shell

The index of aborted transactions has each one whose marker is in the log, and the partition knows the open ones. So a
piece shows the fates above the last stable offset too, without a search for markers.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.broker.costs import BATCH_HEADER_US, COPY_BYTE_US, LOOKUP_US, READ_HEADERS_US
from ottla.broker.log.partition import Partition
from ottla.broker.log.segments.log_segments import LogSegments, Moved
from ottla.fates import AbortedTransactions, Answer, Fate
from ottla.protocol.batch_header import BatchHeader, iter_batches
from ottla.protocol.errors import ProtocolError
from ottla.protocol.steps import Steps

PIECE_BYTES: Final = 256 * 1024
WHOLE_BATCH_BYTES: Final = 2 * 1024 * 1024
"""A batch up to this size is read as a whole, even if it is larger than a piece."""
_MARKER_BYTES: Final = 1024
_RUN_BATCHES: Final = 256
_TRIES: Final = 5


class FatedBatch(NamedTuple):
    """A batch with its bytes, which are cut if they are fewer than `header.size_bytes`."""

    header: BatchHeader
    data: memoryview
    fate: Fate


class Piece(NamedTuple):
    """Batches in order, and the number of bytes that were read."""

    batches: list[FatedBatch]
    size_bytes: int


def read_piece(partition: Partition, offset: int, upper: int, most_bytes: int) -> Steps[Piece]:
    """Read batches of one segment, from the one that holds `offset` up to offset `upper`, where a batch begins.

    A first batch of more than `most_bytes` is the only one. Raises ProtocolError and OSError.
    """
    for _ in range(_TRIES):
        try:
            return (yield from _read(partition, offset, upper, most_bytes))
        except Moved:
            yield LOOKUP_US
    raise ProtocolError("its segments were replaced or deleted at each of several tries to read them")


def end_of_batch(segments: LogSegments, offset: int) -> int:
    """Return the offset after the batch that holds `offset`; `offset + 1` if no batch does."""
    header = segments.header_at(offset)
    return header.next_offset if header.base_offset <= offset else offset + 1


def _read(partition: Partition, offset: int, upper: int, most_bytes: int) -> Steps[Piece]:
    segments = partition.log.segments
    replaced = segments.replaced
    records, segment, position = segments.read(offset, upper, most_bytes, min_one_batch=False)
    data = memoryview(records if isinstance(records, bytes) else b"")
    if data:
        found, end = (yield from _headers(data)), position + len(data)
    else:
        header = segments.header_at(offset)
        if header.base_offset >= upper:
            return Piece([], 0)
        whole = header.size_bytes <= WHOLE_BATCH_BYTES
        data = memoryview(segments.part_of_batch(offset, 0, header.size_bytes if whole else PIECE_BYTES))
        found, end = [(0, header)], position + header.size_bytes
    yield READ_HEADERS_US + len(data) * COPY_BYTE_US
    if segments.replaced != replaced:
        raise Moved
    # A transaction that is open now has no marker in the index; if its marker is written from now on, it is open here.
    opened = _list_open(partition, (header.producer_id for _, header in found if header.is_transactional))
    aborted = yield from segments.collect_aborted_transactions(offset, segment, end)
    answer = Answer(data, tuple(found), tuple(aborted))
    yield len(aborted) * LOOKUP_US
    return Piece((yield from _judge(answer, opened)), len(data))


def _headers(data: memoryview) -> Steps[list[tuple[int, BatchHeader]]]:
    found = []
    for each in iter_batches(data):
        found.append(each)
        if not len(found) % _RUN_BATCHES:
            yield _RUN_BATCHES * BATCH_HEADER_US * 2
    return found


def _list_open(partition: Partition, producer_ids: Iterable[int]) -> dict[int, int]:
    """Return the first offset of the open transaction of each of these producers that has one."""
    known = {producer_id: partition.producer_of(producer_id) for producer_id in set(producer_ids)}
    return {
        producer_id: producer.current_txn_first_offset
        for producer_id, producer in known.items()
        if producer is not None and producer.current_txn_first_offset >= 0
    }


def _judge(answer: Answer, opened: dict[int, int]) -> Steps[list[FatedBatch]]:
    """Return the batches with their fates. No batch of the log can make this step long: markers are short."""
    aborted, found = AbortedTransactions(answer), []
    for position, header in answer.batches:
        data = answer.records[position : position + header.size_bytes]
        fate = Fate.UNKNOWN
        if not header.is_control or (not header.compression and header.size_bytes <= _MARKER_BYTES):
            try:
                fate = aborted.pass_batch(position, header)
            except ProtocolError:  # a damaged marker: `ottla dump` shows it
                fate = Fate.UNKNOWN
        if header.is_transactional and opened.get(header.producer_id, header.next_offset) <= header.base_offset:
            fate = Fate.OPEN
        found.append(FatedBatch(header, data, fate))
        if not len(found) % _RUN_BATCHES:
            yield _RUN_BATCHES * BATCH_HEADER_US * 4
    return found
