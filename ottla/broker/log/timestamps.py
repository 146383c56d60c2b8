"""Finding records by timestamp (ListOffsets). shell

Source: Kafka's `UnifiedLog.fetchOffsetByTimestamp`, `LogSegment.findOffsetByTimestamp`,
`FileRecords.searchForTimestamp`.
"""

from typing import NamedTuple

from ottla.broker.log.batches import iter_file
from ottla.broker.log.segment import Segment
from ottla.broker.log.segments import Segments
from ottla.protocol.batch import iter_records


class TimestampOffset(NamedTuple):
    """Where a record is; -1 each if there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


def find_timestamp(segments: Segments, timestamp_ms: int, from_offset: int) -> TimestampOffset | None:
    """The first record from `from_offset` on with at least `timestamp_ms`."""
    for segment in segments:
        if segment.index.max_timestamp_ms >= timestamp_ms:
            found = _search(segment, timestamp_ms, from_offset)
            if found is not None:
                return found
    return None


def find_largest_timestamp(segments: Segments) -> TimestampOffset | None:
    """The first record with the largest timestamp of all, also of those below the log start that are still there."""
    largest = max(segments, key=lambda segment: segment.index.max_timestamp_ms)
    timestamp_ms = largest.index.max_timestamp_ms
    if largest.size_bytes == 0:
        return None
    return _search(largest, timestamp_ms, largest.base_offset)


def _search(segment: Segment, timestamp_ms: int, from_offset: int) -> TimestampOffset | None:
    start = max(segment.index.offset_for_timestamp(timestamp_ms - 1), from_offset)
    position = segment.find(start)
    for _, header, batch in iter_file(segment.file, position, segment.size_bytes):
        if header.max_timestamp < timestamp_ms:
            continue
        for record in iter_records(batch, header):
            if record.timestamp >= timestamp_ms and record.offset >= from_offset:
                return TimestampOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    return None
