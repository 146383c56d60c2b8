"""The records that a consumer gets out of a Fetch: whole, in order, without what was aborted. pure"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import HEADER_SIZE, read_header
from ottla.protocol.records import iter_records


class TopicRecord(NamedTuple):
    """A record as a consumer gets it; `timestamp` in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    producer_epoch: int


def readable(
    topic: str, partition: int, content: bytes, aborted: Iterable[tuple[int, int]] | None, from_offset: int
) -> tuple[list[TopicRecord], int]:
    """(records, where to go on). `aborted` is [(producer id, first offset)] for read_committed, else None."""
    waiting = sorted(aborted or (), key=lambda entry: entry[1])
    dropped: set[int] = set()
    records: list[TopicRecord] = []
    position, following = 0, from_offset
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
        elif not (header.is_transactional and header.producer_id in dropped):
            for found in iter_records(view[position:end], header):
                if found.offset >= from_offset:
                    owner = header.producer_id, header.producer_epoch
                    records.append(TopicRecord(topic, partition, *found[:5], *owner))
        following = max(following, header.next_offset)
        position = end
    return records, following
