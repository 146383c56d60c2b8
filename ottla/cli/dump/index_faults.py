"""Checks of index entries against the `.log` that they point into. shell

Source: Kafka's `DumpLogSegments.dumpIndex`, `dumpTimeIndex`, which call the disagreements mismatches.
"""

from ottla.broker.log.batches import BadBatch, find_offset
from ottla.broker.ports.disk import File
from ottla.protocol.batch_header import HEADER_SIZE, MAGIC, BatchHeader, least_size, read_header
from ottla.protocol.errors import ProtocolError
from ottla.protocol.indexes import OFFSET_ENTRY, TIME_ENTRY, iter_offset_entries, iter_time_entries


def offset_index_fault(content: bytes, base_offset: int, log: File) -> str | None:
    """Return the first entry of an `.index` whose position has no batch with its offset; None if all agree.

    The offset is the last of that batch. Kafka before 4.0 wrote the last offset of several batches that were appended
    at once, so a larger offset is accepted.
    """
    for number, entry in enumerate(iter_offset_entries(content)):
        header = _header_at(log, entry.position)
        offset = base_offset + entry.relative_offset
        if header is None or not base_offset <= header.base_offset <= offset:
            found = "no batch" if header is None else f"offset {header.base_offset}"
            return f"offset {offset} at {entry.position}, which has {found}, at position {number * OFFSET_ENTRY.size}"
    return None


def time_index_fault(content: bytes, base_offset: int, log: File) -> str | None:
    """Return the first entry of a `.timeindex` whose timestamp is not that of the batch with its offset, or None."""
    position = 0
    for number, entry in enumerate(iter_time_entries(content)):
        offset = base_offset + entry.relative_offset
        try:
            position = find_offset(log, position, log.size_bytes, offset)
        except BadBatch as bad:
            return f"the log of this index cannot be read: {bad}"
        header = _header_at(log, position)
        if header is None or header.base_offset > offset or header.max_timestamp != entry.timestamp:
            found = "no batch" if header is None else f"timestamp {header.max_timestamp}"
            at = number * TIME_ENTRY.size
            return f"timestamp {entry.timestamp} for offset {offset}, which has {found}, at position {at}"
    return None


def _header_at(log: File, position: int) -> BatchHeader | None:
    """Return the header of the batch at `position`; None if no sound batch fits there."""
    try:
        header = read_header(log.pread(HEADER_SIZE, position))
    except ProtocolError:
        return None
    least, most = least_size(header.magic), log.size_bytes - position
    sound = 0 <= header.magic <= MAGIC and least <= header.size_bytes <= most
    return header if sound and header.last_offset_delta >= 0 else None
