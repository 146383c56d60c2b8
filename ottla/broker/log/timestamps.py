"""Search for records by timestamp (ListOffsets). shell

Source: Kafka's `UnifiedLog.fetchOffsetByTimestamp`, `LogSegment.findOffsetByTimestamp`,
`FileRecords.searchForTimestamp`.

A search is long where timestamps do not ascend, or where a batch is large, so it runs in steps. Between the steps
segments may be deleted or replaced. `has_moved` detects this, and is called before a file is read again.
"""

from collections.abc import Callable
from logging import getLogger
from typing import Final, NamedTuple

from ottla.broker.costs import BATCH_HEADER_US, COPY_BYTE_US, READ_HEADERS_US, ROW_US
from ottla.broker.log.batches import batch_size, iter_file, skip_older
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.segments.log_segment import LogSegment
from ottla.broker.log.segments.log_segments import LogSegments, Moved
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.compression import TooLarge
from ottla.protocol.errors import ProtocolError
from ottla.protocol.record_frames import find_record, raw_steps
from ottla.protocol.steps import Steps
from ottla.protocol.up_conversion import convert_if_old
from ottla.protocol.varints import Buffer

_log = getLogger(__name__)


IsMoved = Callable[[], bool]


class TimestampOffset(NamedTuple):
    """Offset, timestamp and leader epoch of a record; -1 each if there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


_NOWHERE: Final = TimestampOffset(-1, -1, -1)


def offset_for_timestamp(
    partition: Partition, timestamp_ms: int, isolation: FetchIsolation
) -> Steps[TimestampOffset | None]:
    """Find the first record with a timestamp of at least `timestamp_ms` below the reader's limit; -1 each if none.

    None if the files cannot be read.
    """
    log = partition.log
    return _find_in_log(
        partition,
        lambda has_moved: find_timestamp(log.segments, timestamp_ms, log.log_start_offset, has_moved),
        isolation,
    )


def max_timestamp_offset(partition: Partition, isolation: FetchIsolation) -> Steps[TimestampOffset | None]:
    """Find the first record with the largest timestamp. The results are those of `offset_for_timestamp`."""
    return _find_in_log(
        partition, lambda has_moved: find_largest_timestamp(partition.log.segments, has_moved), isolation
    )


def _find_in_log(
    partition: Partition, find: Callable[[IsMoved], Steps[TimestampOffset | None]], isolation: FetchIsolation
) -> Steps[TimestampOffset | None]:
    """Return the result of `find`, run again if segments moved; None if the log is unreadable or damaged."""
    segments = partition.log.segments
    while partition.offline is None:
        replaced = segments.replaced

        def has_moved(replaced: int = replaced) -> bool:
            return partition.offline is not None or segments.replaced != replaced

        try:
            found = yield from find(has_moved)
        except Moved:
            continue
        except TooLarge as large:
            _log.error(
                "%(topic)s-%(partition)d: cannot find the offset for a timestamp: %(why)s",
                partition.about | {"why": large},
            )
        except (ProtocolError, OSError) as error:
            partition.fail_read(error)
        else:
            seen = found is not None and found.offset < partition.last_fetchable_offset(isolation)
            return found if seen else _NOWHERE
        break
    return None


def find_timestamp(
    segments: LogSegments, timestamp_ms: int, from_offset: int, has_moved: IsMoved
) -> Steps[TimestampOffset | None]:
    """Find the first record from `from_offset` on with a timestamp of at least `timestamp_ms`. Raises Moved."""
    for segment in segments:
        if segment.index.max_timestamp_ms >= timestamp_ms:
            found = yield from _search(segment, timestamp_ms, from_offset, has_moved)
            if found is not None:
                return found
        yield from _pause(ROW_US, has_moved)
    return None


def find_largest_timestamp(segments: LogSegments, has_moved: IsMoved) -> Steps[TimestampOffset | None]:
    """Find the first record with the largest timestamp, also below the log start offset. Raises Moved."""
    largest: LogSegment | None = None
    for segment in segments:
        if largest is None or segment.index.max_timestamp_ms > largest.index.max_timestamp_ms:
            largest = segment
        yield from _pause(ROW_US, has_moved)
    if largest is None or largest.size_bytes == 0:
        return None
    return (yield from _search(largest, largest.index.max_timestamp_ms, largest.base_offset, has_moved))


def _search(
    segment: LogSegment, timestamp_ms: int, from_offset: int, has_moved: IsMoved
) -> Steps[TimestampOffset | None]:
    start = max(segment.index.offset_for_timestamp(timestamp_ms - 1), from_offset)
    position = segment.find(start)
    while position < segment.size_bytes:
        position, batches, found = skip_older(segment.file, position, segment.size_bytes, timestamp_ms)
        if found:
            end = min(position + batch_size(segment.file, position), segment.size_bytes)
            _, header, batch = next(iter_file(segment.file, position, end))
            yield len(batch) * COPY_BYTE_US
            readable = yield from convert_if_old(batch, header)
            at = yield from _search_batch(*readable, timestamp_ms, from_offset)
            if at is not None:
                return at
            position = end
        yield from _pause(READ_HEADERS_US + batches * BATCH_HEADER_US, has_moved)
    return None


def _search_batch(
    header: BatchHeader, batch: Buffer, timestamp_ms: int, from_offset: int
) -> Steps[TimestampOffset | None]:
    """Find a record in a batch, which is a copy in memory, so changes of the log have no effect."""
    epoch = header.partition_leader_epoch
    if not header.is_log_append_time:
        raw = yield from raw_steps(batch, header)
        least = timestamp_ms - header.base_timestamp
        found = yield from find_record(raw, header.record_count, least, from_offset - header.base_offset)
        if found is None:
            return None
        return TimestampOffset(header.base_offset + found[0], header.base_timestamp + found[1], epoch)
    if header.record_count == header.last_offset_delta + 1:  # no record was removed, and all have the same timestamp
        offset = max(header.base_offset, from_offset)
        return TimestampOffset(offset, header.max_timestamp, epoch) if offset <= header.last_offset else None
    raw = yield from raw_steps(batch, header)
    found = yield from find_record(raw, header.record_count, None, from_offset - header.base_offset)
    return None if found is None else TimestampOffset(header.base_offset + found[0], header.max_timestamp, epoch)


def _pause(cost_us: float, has_moved: IsMoved) -> Steps[None]:
    yield cost_us
    if has_moved():
        raise Moved
