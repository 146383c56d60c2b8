"""Records as clients send and see them, each with a name. pure

A name is the value of a record. Where several records have one value, which nothing forbids, the name says also who
wrote it (`told_apart`): an idempotent producer numbers its records. What then still has one name cannot be judged.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ottla.protocol.batch_header import BatchHeader, iter_batches
from ottla.protocol.records import iter_records
from ottla.testkit.checks.operations import text_of, told_apart
from ottla.testkit.reading import fetched_batches


class Named(NamedTuple):
    """A record; `offset` is -1 in a batch that is sent."""

    value: str
    name_apart: str
    offset: int


class Batch(NamedTuple):
    """A batch of data and its records."""

    header: BatchHeader
    records: tuple[Named, ...]


def read_batches(key: str, content: Any) -> Iterator[Batch]:
    """The batches of data in `content`, complete ones only; ProtocolError for what is none."""
    for position, header in iter_batches(content):
        if not header.is_control:
            yield Batch(header, tuple(_named(key, header, content, position)))


def _named(key: str, header: BatchHeader, content: Any, position: int) -> Iterator[Named]:
    for record in iter_records(content, header, position):
        value = text_of(record.value)
        name = told_apart(value, key, header.producer_id, header.producer_epoch, record.sequence)
        yield Named(value, name, record.offset)


def committed_batches(key: str, content: Any, aborted: Iterable[Any]) -> Iterator[Batch]:
    """`read_batches` as a consumer sees it that reads committed: without what the broker says is of an aborted one."""
    transactions = [(row.producer_id, row.first_offset) for row in aborted]
    for position, header, seen in fetched_batches(content, transactions):
        if seen:
            yield Batch(header, tuple(_named(key, header, content, position)))


def end_of(content: Any, start: int) -> int:
    """The offset behind the last complete batch; `start` if there is none."""
    return max((header.next_offset for _, header in iter_batches(content)), default=start)
