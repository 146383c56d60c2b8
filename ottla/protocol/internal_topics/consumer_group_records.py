"""Keys and values of consumer groups of the new protocol in `__consumer_offsets` (KIP-848). pure frozen

Source: `ConsumerGroup*Key.json`, `ConsumerGroup*Value.json` of the group coordinator of Kafka 4.3.1. A key is an int16
type and strings with int16 lengths. A value is an int16 version, which is 0, and flexible fields.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.protocol.fields import Reader, UnknownVersion, Writer
from ottla.protocol.varints import Buffer


class ConsumerGroupRecordType(IntEnum):
    """Type of a record, which its key begins with (`CoordinatorRecordType`)."""

    METADATA = 3
    PARTITION_METADATA = 4  # Kafka writes only its tombstone since 4.1
    MEMBER_METADATA = 5
    TARGET_ASSIGNMENT_METADATA = 6
    TARGET_ASSIGNMENT_MEMBER = 7
    CURRENT_MEMBER_ASSIGNMENT = 8
    REGULAR_EXPRESSION = 16


_NAMED: Final = (
    ConsumerGroupRecordType.MEMBER_METADATA,
    ConsumerGroupRecordType.TARGET_ASSIGNMENT_MEMBER,
    ConsumerGroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
    ConsumerGroupRecordType.REGULAR_EXPRESSION,
)
_TYPES: Final = {int(record_type): record_type for record_type in ConsumerGroupRecordType}

Assignment = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id (16 bytes)."""
OwnedPartitions = Mapping[bytes, Mapping[int, int]]
"""Partition to assignment epoch, by topic id (16 bytes): the target epoch at which the member got it (KIP-1251)."""


class ConsumerGroupKey(NamedTuple):
    """Key of a record. `name` is the member id, or the regular expression; empty for the types of a whole group."""

    record_type: ConsumerGroupRecordType
    group: str
    name: str = ""


class ConsumerGroupMetadata(NamedTuple):
    """The group epoch, and a hash of the metadata of the subscribed topics (0: none)."""

    epoch: int
    metadata_hash: int = 0


class ClassicMemberMetadata(NamedTuple):
    """Protocols that a member of the classic protocol sent in JoinGroup: (assignor, subscription) in order."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


_NO_TAG: Final = ClassicMemberMetadata(0, ())
"""What a value without the tag means: Kafka's default is an empty struct, so that null is written."""
_NULL: Final = b"\0"
_PRESENT: Final = b"\1"


class PartitionMetadata(NamedTuple):
    """The names of the subscribed topics; the rest of the value is not read."""

    topics: tuple[str, ...]


class MemberMetadata(NamedTuple):
    """The subscription of a member. `classic` is None for a member of the consumer protocol."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberMetadata | None = None


class TargetAssignmentMetadata(NamedTuple):
    """The group epoch of the target assignment, and the time when it was computed in ms (0: unknown)."""

    assignment_epoch: int
    timestamp_ms: int = 0


class TargetAssignment(NamedTuple):
    """Partitions that the assignor gives to a member."""

    partitions: Assignment


class CurrentAssignment(NamedTuple):
    """Partitions that a member has, and those that it must give up. `state` is the byte of `MemberState`."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: OwnedPartitions
    pending_revocation: OwnedPartitions


class ResolvedRegularExpression(NamedTuple):
    """The topics that a regular expression matched, at a version of the metadata and a time in ms."""

    topics: tuple[str, ...]
    metadata_version: int
    timestamp_ms: int


ConsumerGroupValue = (
    ConsumerGroupMetadata
    | PartitionMetadata
    | MemberMetadata
    | TargetAssignmentMetadata
    | TargetAssignment
    | CurrentAssignment
    | ResolvedRegularExpression
)


def encode_consumer_group_key(key: ConsumerGroupKey) -> bytes:
    writer = Writer()
    writer.int16(key.record_type)
    writer.string(key.group)
    if key.record_type in _NAMED:
        writer.string(key.name)
    return bytes(writer.out)


def read_consumer_group_key(key: Buffer) -> ConsumerGroupKey | None:
    """Return the key; None for another type of record."""
    reader = Reader(key)
    record_type = _TYPES.get(reader.int16())
    if record_type is None:
        return None
    found = ConsumerGroupKey(record_type, reader.string(), reader.string() if record_type in _NAMED else "")
    reader.end()
    return found


def encode_consumer_group_value(value: ConsumerGroupValue) -> bytes:
    """Encode a value in version 0, the only one. Partition metadata cannot be written."""
    writer = Writer(flexible=True)
    writer.int16(0)
    match value:
        case ConsumerGroupMetadata(epoch, metadata_hash):
            writer.int32(epoch)
            writer.tags((0, _int64(metadata_hash)) if metadata_hash else None)
        case MemberMetadata():
            _write_member(writer, value)
        case TargetAssignmentMetadata(epoch, timestamp_ms):
            writer.int32(epoch)
            writer.tags((0, _int64(timestamp_ms)) if timestamp_ms else None)
        case TargetAssignment(partitions):
            _write_assignment(writer, partitions)
            writer.tags()
        case CurrentAssignment():
            writer.int32(value.member_epoch)
            writer.int32(value.previous_member_epoch)
            writer.int8(value.state)
            _write_partitions(writer, value.assigned)
            _write_partitions(writer, value.pending_revocation)
            writer.tags()
        case ResolvedRegularExpression(topics, version, timestamp_ms):
            writer.array(topics, writer.string)
            writer.int64(version)
            writer.int64(timestamp_ms)
            writer.tags()
        case PartitionMetadata():
            raise ValueError("partition metadata of a consumer group is not written any more")
    return bytes(writer.out)


def decode_consumer_group_value(record_type: ConsumerGroupRecordType, content: Buffer) -> ConsumerGroupValue:
    """Decode a value.

    Raises UnknownVersion above version 0, ProtocolError for bytes that are no such value.
    """
    reader = Reader(content, flexible=True)
    version = reader.int16()
    if version != 0:
        raise UnknownVersion(f"consumer group record of type {int(record_type)} has version {version}")
    value = _DECODERS[record_type](reader)
    reader.end()
    return value


def _int64(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _write_member(writer: Writer, member: MemberMetadata) -> None:
    writer.string(member.instance_id)
    writer.string(member.rack_id)
    writer.string(member.client_id)
    writer.string(member.client_host)
    writer.array(member.topic_names, writer.string)
    writer.string(member.topic_regex)
    writer.int32(member.rebalance_timeout_ms)
    writer.string(member.server_assignor)
    writer.tags(None if member.classic == _NO_TAG else (0, _classic_metadata(member.classic)))


def _classic_metadata(metadata: ClassicMemberMetadata | None) -> bytes:
    if metadata is None:
        return _NULL
    writer = Writer(flexible=True)

    def protocol(element: tuple[str, bytes]) -> None:
        writer.string(element[0])
        writer.blob(element[1])
        writer.tags()

    writer.out += _PRESENT
    writer.int32(metadata.session_timeout_ms)
    writer.array(metadata.protocols, protocol)
    writer.tags()
    return bytes(writer.out)


def _write_assignment(writer: Writer, assignment: Assignment) -> None:
    def topic(element: tuple[bytes, tuple[int, ...]]) -> None:
        writer.uuid(element[0])
        writer.int32_array(element[1])
        writer.tags()

    writer.array([*assignment.items()], topic)


def _write_partitions(writer: Writer, owned: OwnedPartitions) -> None:
    def topic(element: tuple[bytes, Mapping[int, int]]) -> None:
        topic_id, partitions = element
        epochs = Writer(flexible=True)
        epochs.int32_array(partitions.values())
        writer.uuid(topic_id)
        writer.int32_array(partitions)
        writer.tags((0, bytes(epochs.out)))

    writer.array([*owned.items()], topic)


def _read_metadata(reader: Reader) -> ConsumerGroupMetadata:
    epoch = reader.int32()
    tags = reader.tags()
    return ConsumerGroupMetadata(epoch, tags[0].int64() if 0 in tags else 0)


def _read_partition_metadata(reader: Reader) -> PartitionMetadata:
    def partition() -> None:
        reader.int32()
        reader.array(reader.string, 1)
        reader.tags()

    def topic() -> str:
        reader.uuid()
        name = reader.string()
        reader.int32()
        reader.array(partition, 6)
        reader.tags()
        return name

    found = PartitionMetadata(reader.array(topic, 23))
    reader.tags()
    return found


def _read_member(reader: Reader) -> MemberMetadata:
    member = MemberMetadata(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topic_names=reader.array(reader.string, 1),
        topic_regex=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        server_assignor=reader.nullable_string(),
    )
    tags = reader.tags()
    return member._replace(classic=_read_classic_metadata(tags[0]) if 0 in tags else _NO_TAG)


def _read_classic_metadata(reader: Reader) -> ClassicMemberMetadata | None:
    def protocol() -> tuple[str, bytes]:
        found = reader.string(), reader.blob()
        reader.tags()
        return found

    if reader.raw(1) == _NULL:
        return None
    return ClassicMemberMetadata(reader.int32(), reader.array(protocol, 3))


def _read_target_metadata(reader: Reader) -> TargetAssignmentMetadata:
    epoch = reader.int32()
    tags = reader.tags()
    return TargetAssignmentMetadata(epoch, tags[0].int64() if 0 in tags else 0)


def _read_target(reader: Reader) -> TargetAssignment:
    def topic() -> tuple[bytes, tuple[int, ...]]:
        found = reader.uuid(), reader.array(reader.int32, 4)
        reader.tags()
        return found

    target = TargetAssignment(dict(reader.array(topic, 18)))
    reader.tags()
    return target


def _read_current(reader: Reader) -> CurrentAssignment:
    epoch, previous, state = reader.int32(), reader.int32(), reader.int8()
    found = CurrentAssignment(epoch, previous, state, _read_partitions(reader, epoch), _read_partitions(reader, epoch))
    reader.tags()
    return found


def _read_partitions(reader: Reader, member_epoch: int) -> OwnedPartitions:
    """Read partitions with their assignment epochs. Before Kafka 4.3 they had none: the member's epoch replaces it."""

    def topic() -> tuple[bytes, dict[int, int]]:
        topic_id, partitions = reader.uuid(), reader.array(reader.int32, 4)
        tags = reader.tags()
        epochs = tags[0].nullable_array(tags[0].int32, 4) if 0 in tags else None
        return topic_id, dict(zip(partitions, epochs or [max(member_epoch, 0)] * len(partitions), strict=False))

    return dict(reader.array(topic, 18))


def _read_regular_expression(reader: Reader) -> ResolvedRegularExpression:
    found = ResolvedRegularExpression(reader.array(reader.string, 1), reader.int64(), reader.int64())
    reader.tags()
    return found


_DECODERS: Final[Mapping[ConsumerGroupRecordType, Callable[[Reader], ConsumerGroupValue]]] = {
    ConsumerGroupRecordType.METADATA: _read_metadata,
    ConsumerGroupRecordType.PARTITION_METADATA: _read_partition_metadata,
    ConsumerGroupRecordType.MEMBER_METADATA: _read_member,
    ConsumerGroupRecordType.TARGET_ASSIGNMENT_METADATA: _read_target_metadata,
    ConsumerGroupRecordType.TARGET_ASSIGNMENT_MEMBER: _read_target,
    ConsumerGroupRecordType.CURRENT_MEMBER_ASSIGNMENT: _read_current,
    ConsumerGroupRecordType.REGULAR_EXPRESSION: _read_regular_expression,
}
