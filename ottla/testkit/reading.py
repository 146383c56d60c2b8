"""The records that a consumer gets from a Fetch: complete batches, in order, without aborted ones. pure

Source: `CompletedFetch.nextFetchedRecord` of Kafka's consumer.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.protocol.batch import ABORT, read_marker
from ottla.protocol.batch_header import BatchHeader, iter_batches
from ottla.protocol.records import iter_records
from ottla.protocol.varints import Buffer

Aborted = Iterable[tuple[int, int]]
"""(producer id, first offset) of each aborted transaction, as in a Fetch reply to a read_committed consumer."""


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


class Fetched(NamedTuple):
    """A complete batch of a Fetch; `seen` is whether the consumer gets its records."""

    position: int
    header: BatchHeader
    seen: bool


def fetched_batches(content: Buffer, aborted: Aborted | None) -> Iterator[Fetched]:
    """Yield the batches in order; `aborted` is None for read_uncommitted. ProtocolError for an invalid batch."""
    to_come = sorted(aborted or (), key=lambda entry: entry[1])
    dropping: set[int] = set()
    for position, header in iter_batches(content):
        while to_come and to_come[0][1] <= header.last_offset:
            dropping.add(to_come.pop(0)[0])
        if header.is_control:
            marker = read_marker(content, header, position)
            if marker is not None and marker.control_type == ABORT:
                dropping.discard(header.producer_id)
        is_dropped = header.is_transactional and header.producer_id in dropping
        yield Fetched(position, header, not (header.is_control or is_dropped))


def readable(
    topic: str, partition: int, content: Buffer, aborted: Aborted | None, from_offset: int
) -> tuple[list[TopicRecord], int]:
    """Return (records, next offset) of a fetch from this offset."""
    records: list[TopicRecord] = []
    following = from_offset
    for position, header, seen in fetched_batches(content, aborted):
        following = max(following, header.next_offset)
        if not seen:
            continue
        owner = header.producer_id, header.producer_epoch
        for found in iter_records(content, header, position):
            if found.offset >= from_offset:
                records.append(TopicRecord(topic, partition, *found[:5], *owner))
    return records, following
