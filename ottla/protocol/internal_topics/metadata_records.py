"""Record values of `__cluster_metadata-0` and `bootstrap.checkpoint`. pure frozen

Source: the schemas of `kafka-metadata` 4.3.1 and `AbstractApiMessageSerde` of Kafka's server-common.
A value is unsigned varint frame version 1, record key, record version, then the message, flexible from version 0. Ids
are 16 bytes, printed as 22 characters of base64url (`checkpoints.encode_id`).
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import UUID_SIZE, Reader, UnknownVersion, Writer
from ottla.protocol.internal_topics.security_records import (
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    SECURITY_TYPES,
    STRING,
    UUID,
    RecordType,
    SecurityRecord,
    plain_type,
)
from ottla.protocol.varints import Buffer, write_unsigned_varint

_FRAME_VERSION: Final = 1
# Frame version, key and version of a record, one byte each for the records of this module.
_FRAME_SIZE: Final = 3
_INT32: Final = Struct(">i")
# `ConfigResource.Type`: the resource of a ConfigRecord.
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
# `LeaderConstants`.
NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2

Ints = tuple[int, ...]
Ids = tuple[bytes, ...]


class TopicRecord(NamedTuple):
    name: str
    topic_id: bytes


class PartitionRecord(NamedTuple):
    """A partition's first state. Versions below 1 have no directories, below 2 no eligible leader replicas."""

    partition_id: int
    topic_id: bytes
    replicas: Ints
    isr: Ints
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: Ids = ()
    removing_replicas: Ints = ()
    adding_replicas: Ints = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: Ints | None = None
    last_known_elr: Ints | None = None


def partition_on(
    replicas: Ints, directory_id: bytes, topic_id: bytes, partition_id: int, leader_epoch: int = 0
) -> PartitionRecord:
    """Return the record of a partition whose replicas are in sync; the first one leads. All are in one log directory,
    whose id is empty if it is not known."""
    directories = (directory_id,) * len(replicas) if directory_id else ()
    return PartitionRecord(partition_id, topic_id, replicas, replicas, replicas[0], leader_epoch, 0, directories)


class PartitionChangeRecord(NamedTuple):
    """Changed fields of a partition. None, leader -2 and recovery state -1 mean "unchanged"."""

    partition_id: int
    topic_id: bytes
    isr: Ints | None = None
    leader: int = NO_LEADER_CHANGE
    replicas: Ints | None = None
    removing_replicas: Ints | None = None
    adding_replicas: Ints | None = None
    leader_recovery_state: int = -1
    eligible_leader_replicas: Ints | None = None
    last_known_elr: Ints | None = None
    directories: Ids | None = None


class ConfigRecord(NamedTuple):
    """Value of a config. None removes it; a BROKER_RESOURCE named "" is the default of the cluster."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


class RemoveTopicRecord(NamedTuple):
    topic_id: bytes


class FeatureLevelRecord(NamedTuple):
    name: str
    feature_level: int


class ProducerIdsRecord(NamedTuple):
    """Assignment of a block of producer ids; `next_producer_id` is the first id of the next block."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


class BeginTransactionRecord(NamedTuple):
    """Start of records that apply with their EndTransactionRecord, or not at all."""

    name: str | None = None


class EndTransactionRecord(NamedTuple):
    pass


class AbortTransactionRecord(NamedTuple):
    """End of records that do not apply, from the BeginTransactionRecord on."""

    reason: str | None = None


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | SecurityRecord
)


def encode_partition_records(first: PartitionRecord, partition_ids: Iterable[int]) -> list[bytes]:
    """Return the values of records that differ from `first` only in their partition."""
    value = encode_metadata_record(first)
    head, tail = value[:_FRAME_SIZE], value[_FRAME_SIZE + _INT32.size :]
    return [head + _INT32.pack(partition_id) + tail for partition_id in partition_ids]


def encode_metadata_record(record: MetadataRecord) -> bytes:
    """Return the record value in the version that Kafka 4.3.1 writes."""
    kind = _TYPES[type(record)]
    writer = Writer(flexible=True)
    for number in (_FRAME_VERSION, kind.key, kind.version):
        writer.unsigned_varint(number)
    kind.write(writer, record)
    return bytes(writer.out)


def decode_metadata_record(value: Buffer) -> MetadataRecord | None:
    """Return the record, or None if its type is one that a single broker may skip.

    Raises UnknownVersion for a newer version of a known type, ProtocolError for bytes that are no metadata record.
    """
    reader, key = _read_key(value)
    version = reader.unsigned_varint()
    kind = _TYPES_BY_KEY.get(key)
    if kind is None:
        return None
    if version > kind.version:
        raise UnknownVersion(f"metadata record {key} of version {version}")
    record: MetadataRecord = kind.read(reader, version)
    reader.end()
    return record


def metadata_record_type(value: Buffer) -> int:
    """Return the type of a record value, known or not. Raises ProtocolError for bytes that are no metadata record."""
    return _read_key(value)[1]


def _read_key(value: Buffer) -> tuple[Reader, int]:
    """Return a reader of the rest of the value, and the key."""
    reader = Reader(value, flexible=True)
    frame_version = reader.unsigned_varint()
    if frame_version != _FRAME_VERSION:
        raise ProtocolError(f"metadata record with frame version {frame_version}")
    return reader, reader.unsigned_varint()


def parse_uuid(text: str) -> bytes:
    """Return the 16 bytes of `encode_id`'s text. Raises ProtocolError for other texts."""
    try:
        uuid = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        uuid = b""
    if len(uuid) != UUID_SIZE:
        raise ProtocolError(f"{text!r} is not a base64url id")
    return uuid


def _encode_partition(writer: Writer, record: PartitionRecord) -> None:
    writer.int32(record.partition_id)
    writer.uuid(record.topic_id)
    for replicas in (record.replicas, record.isr, record.removing_replicas, record.adding_replicas):
        writer.array(replicas, writer.int32)
    writer.int32(record.leader)
    writer.int32(record.leader_epoch)
    writer.int32(record.partition_epoch)
    writer.array(record.directories, writer.uuid)
    writer.tags(
        (0, bytes([record.leader_recovery_state & 0xFF])) if record.leader_recovery_state else None,
        _ints_tag(1, record.eligible_leader_replicas),
        _ints_tag(2, record.last_known_elr),
    )


def _decode_partition(reader: Reader, version: int) -> PartitionRecord:
    partition_id, topic_id = reader.int32(), reader.uuid()
    replicas, isr, removing, adding = [reader.array(reader.int32, 4) for _ in range(4)]
    record = PartitionRecord(
        partition_id,
        topic_id,
        replicas,
        isr,
        reader.int32(),
        reader.int32(),
        reader.int32(),
        reader.array(reader.uuid, UUID_SIZE) if version >= 1 else (),
        removing,
        adding,
    )
    tags = reader.tags()
    return record._replace(
        leader_recovery_state=tags[0].int8() if 0 in tags else 0,
        eligible_leader_replicas=_tagged_ints(tags, 1),
        last_known_elr=_tagged_ints(tags, 2),
    )


def _encode_partition_change(writer: Writer, record: PartitionChangeRecord) -> None:
    writer.int32(record.partition_id)
    writer.uuid(record.topic_id)
    state = record.leader_recovery_state
    writer.tags(
        _ints_tag(0, record.isr),
        None if record.leader == NO_LEADER_CHANGE else (1, _INT32.pack(record.leader)),
        _ints_tag(2, record.replicas),
        _ints_tag(3, record.removing_replicas),
        _ints_tag(4, record.adding_replicas),
        None if state == -1 else (5, bytes([state & 0xFF])),
        _ints_tag(6, record.eligible_leader_replicas),
        _ints_tag(7, record.last_known_elr),
        None if record.directories is None else (8, _compact(len(record.directories)) + b"".join(record.directories)),
    )


def _decode_partition_change(reader: Reader, _version: int) -> PartitionChangeRecord:
    partition_id, topic_id = reader.int32(), reader.uuid()
    tags = reader.tags()
    return PartitionChangeRecord(
        partition_id,
        topic_id,
        isr=_tagged_ints(tags, 0),
        leader=tags[1].int32() if 1 in tags else NO_LEADER_CHANGE,
        replicas=_tagged_ints(tags, 2),
        removing_replicas=_tagged_ints(tags, 3),
        adding_replicas=_tagged_ints(tags, 4),
        leader_recovery_state=tags[5].int8() if 5 in tags else -1,
        eligible_leader_replicas=_tagged_ints(tags, 6),
        last_known_elr=_tagged_ints(tags, 7),
        directories=tags[8].nullable_array(tags[8].uuid, UUID_SIZE) if 8 in tags else None,
    )


def _tagged_text_type(key: int, kind: Callable[[str | None], MetadataRecord]) -> RecordType:
    """Return the type of records that have one tagged field, which is a string."""

    def read(reader: Reader, _version: int) -> MetadataRecord:
        tags = reader.tags()
        return kind(tags[0].nullable_string() if 0 in tags else None)

    def write(writer: Writer, record: tuple[str | None]) -> None:
        if record[0] is None:
            writer.tags()
        else:
            content = Writer(flexible=True)
            content.string(record[0])
            writer.tags((0, bytes(content.out)))

    return RecordType(key, 0, read, write)


def _compact(count: int) -> bytes:
    out = bytearray()
    write_unsigned_varint(out, count + 1)
    return bytes(out)


def _ints_tag(tag: int, values: Ints | None) -> tuple[int, bytes] | None:
    return None if values is None else (tag, _compact(len(values)) + b"".join(map(_INT32.pack, values)))


def _tagged_ints(tags: dict[int, Reader], tag: int) -> Ints | None:
    return tags[tag].nullable_array(tags[tag].int32, 4) if tag in tags else None


_TYPES: Final[dict[type, RecordType]] = {
    TopicRecord: plain_type(2, TopicRecord, STRING, UUID),
    PartitionRecord: RecordType(3, 2, _decode_partition, _encode_partition),
    ConfigRecord: plain_type(4, ConfigRecord, INT8, STRING, STRING, NULLABLE_STRING),
    PartitionChangeRecord: RecordType(5, 2, _decode_partition_change, _encode_partition_change),
    RemoveTopicRecord: plain_type(9, RemoveTopicRecord, UUID),
    FeatureLevelRecord: plain_type(12, FeatureLevelRecord, STRING, INT16),
    ProducerIdsRecord: plain_type(15, ProducerIdsRecord, INT32, INT64, INT64),
    BeginTransactionRecord: _tagged_text_type(23, BeginTransactionRecord),
    EndTransactionRecord: plain_type(24, EndTransactionRecord),
    AbortTransactionRecord: _tagged_text_type(25, AbortTransactionRecord),
    **SECURITY_TYPES,
}
_TYPES_BY_KEY: Final = {kind.key: kind for kind in _TYPES.values()}
