"""Records that clients send and read, each with a name. pure

A name is the value of a record. If several records have the same value, the name also contains the producer and the
sequence number (`unique_name`), which idempotent producers set. Records with still equal names cannot be checked.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ottla.protocol.batch_header import BatchHeader, iter_batches
from ottla.protocol.records import iter_records
from ottla.testkit.checks.operations import text_of, unique_name
from ottla.testkit.reading import fetched_batches


class Named(NamedTuple):
    """A record; `offset` is -1 in a batch of a Produce request."""

    value: str
    name_apart: str
    offset: int


class Batch(NamedTuple):
    """A batch of data and its records."""

    header: BatchHeader
    records: tuple[Named, ...]


def read_batches(key: str, content: Any) -> Iterator[Batch]:
    """Yield the complete data batches in `content`. Raises ProtocolError for an invalid batch."""
    for position, header in iter_batches(content):
        if not header.is_control:
            yield Batch(header, tuple(_name_records(key, header, content, position)))


def _name_records(key: str, header: BatchHeader, content: Any, position: int) -> Iterator[Named]:
    for record in iter_records(content, header, position):
        value = text_of(record.value)
        name = unique_name(value, key, header.producer_id, header.producer_epoch, record.sequence)
        yield Named(value, name, record.offset)


def committed_batches(key: str, content: Any, aborted: Iterable[Any]) -> Iterator[Batch]:
    """Yield the batches that a read_committed consumer gets: without those of the aborted transactions."""
    transactions = [(row.producer_id, row.first_offset) for row in aborted]
    for position, header, seen in fetched_batches(content, transactions):
        if seen:
            yield Batch(header, tuple(_name_records(key, header, content, position)))


def end_of(content: Any, start: int) -> int:
    """Return the offset after the last complete batch, or `start` if there is none."""
    return max((header.next_offset for _, header in iter_batches(content)), default=start)
