"""Subscriptions and assignments that consumers of the classic protocol exchange as bytes. pure frozen

JoinGroup has a subscription for each protocol (assignor), SyncGroup has an assignment. Clients write both, so they are
read in steps, and every count is checked. Bytes that are neither raise ProtocolError.

Source: `ConsumerProtocol`, `ConsumerProtocolSubscription.json`, `ConsumerProtocolAssignment.json` (versions 0 to 3; a
higher one is read as 3, and bytes after the last field are ignored) of Kafka 4.3.1.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import Reader, Writer
from ottla.protocol.steps import ENTRY_US, Steps

TYPE: Final = "consumer"
"""The protocol type of groups whose members are consumers."""
LATEST: Final = 3
INDEXES_AT_ONCE: Final = 1_000
INDEX_US: Final = 0.1
"""The cost of a partition in an array."""
_INDEX: Final = Struct(">i")
_SMALLEST_NAME, _SMALLEST_TOPIC = 2, 6

Partitions = Mapping[str, Sequence[int]]
"""Partitions by the name of the topic, as a client wrote them: also negative ones, or those of no topic."""


class Subscription(NamedTuple):
    """The topics of a member, and the partitions that it owns (none before version 1). An empty rack is none."""

    topics: tuple[str, ...]
    owned: Partitions
    rack_id: str | None


class Assignment(NamedTuple):
    """The partitions of a member. Only assignors of users add data of their own."""

    partitions: Partitions
    has_user_data: bool


def read_version(content: bytes) -> int:
    """Return the version of a subscription or an assignment."""
    version = Reader(content).int16()
    if version < 0:
        raise ProtocolError(f"consumer protocol of version {version}")
    return min(version, LATEST)


def read_subscription(content: bytes) -> Steps[Subscription]:
    version = read_version(content)
    reader = Reader(content, 2)
    topics = []
    for name in read_topics(reader):
        topics.append(name)
        yield ENTRY_US
    owned: Partitions = {}
    if version >= 1:
        owned = yield from _read_partitions(reader)
    if version >= 2:
        reader.int32()  # the generation in which the member got them
    rack_id = reader.nullable_string() if version >= LATEST else None
    return Subscription(tuple(topics), owned, rack_id or None)


def read_topics(reader: Reader) -> Iterator[str]:
    """Yield the topics of a subscription after its version, then read past the data of its assignor.

    Each version begins in this way.
    """
    for _ in range(_read_count(reader, _SMALLEST_NAME)):
        yield reader.string()
    reader.raw(max(0, reader.int32()))  # -1 is null


def read_assignment(content: bytes) -> Steps[Assignment]:
    read_version(content)
    reader = Reader(content, 2)
    partitions = yield from _read_partitions(reader)
    return Assignment(partitions, bool(reader.raw(max(0, reader.int32()))))


def read_first_partitions(content: bytes, most: int) -> Steps[Partitions]:
    """Read at most `most` topics of an assignment, and at most `most` partitions of all of them.

    The bytes after these are not read.
    """
    read_version(content)
    return (yield from _read_partitions(Reader(content, 2), most))


def encode_assignment(partitions: Iterable[tuple[str, Sequence[int]]], version: int) -> Steps[bytes]:
    """Encode (topic, partitions) without data of an assignor."""
    rows = [*partitions]
    writer = Writer()
    writer.int16(version)
    writer.int32(len(rows))
    for topic, indexes in rows:
        writer.string(topic)
        writer.int32(len(indexes))
        for start in range(0, len(indexes), INDEXES_AT_ONCE):
            some = indexes[start : start + INDEXES_AT_ONCE]
            writer.out += Struct(f">{len(some)}i").pack(*some)
            yield len(some) * INDEX_US
        yield ENTRY_US
    writer.int32(-1)
    return bytes(writer.out)


def _read_partitions(reader: Reader, most: int = sys.maxsize) -> Steps[Partitions]:
    """Read topics until `most` topics or `most` partitions are read."""
    found: dict[str, list[int]] = {}
    wanted = most
    for _ in range(min(_read_count(reader, _SMALLEST_TOPIC), most)):
        indexes = found.setdefault(reader.string(), [])
        left = min(_read_count(reader, _INDEX.size), wanted)
        wanted -= left
        while left:
            count = min(left, INDEXES_AT_ONCE)
            indexes += Struct(f">{count}i").unpack(reader.raw(count * _INDEX.size))
            left -= count
            yield count * INDEX_US
        yield ENTRY_US
        if not wanted:
            break
    return found


def _read_count(reader: Reader, least_bytes: int) -> int:
    """Read the length of an array whose elements have at least so many bytes."""
    count = reader.int32()
    if not 0 <= count * least_bytes <= reader.remaining:
        raise ProtocolError(f"array of {count} elements before position {reader.position}")
    return count
