"""What a consumer makes of a Fetch answer: whole records from an offset, without those of aborted transactions. pure"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import HEADER_SIZE, read_header
from ottla.protocol.records import iter_records


class Visible(NamedTuple):
    """The records that the application gets, [(offset, value)], and where to go on."""

    records: list[tuple[int, str]]
    next_offset: int


def visible(content: bytes, aborted: Iterable[tuple[int, int]] | None, from_offset: int) -> Visible:
    """`aborted` is [(producer id, first offset)] for read_committed, None for read_uncommitted."""
    waiting = sorted(aborted or (), key=lambda entry: entry[1])
    dropped: set[int] = set()
    records: list[tuple[int, str]] = []
    position, next_offset = 0, from_offset
    view = memoryview(content)
    while position + HEADER_SIZE <= len(content):
        header = read_header(content, position)
        end = position + header.size_bytes
        if end > len(content):
            break
        while waiting and waiting[0][1] <= header.last_offset:
            dropped.add(waiting.pop(0)[0])
        if header.is_control:
            marker = read_marker(view[position:end], header)
            if marker is not None and marker.control_type == 0:
                dropped.discard(header.producer_id)
        elif aborted is None or not (header.is_transactional and header.producer_id in dropped):
            for record in iter_records(view[position:end], header):
                if record.offset >= from_offset:
                    records.append((record.offset, (record.value or b"").decode()))
        next_offset = max(next_offset, header.next_offset)
        position = end
    return Visible(records, next_offset)
