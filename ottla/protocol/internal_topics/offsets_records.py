"""Keys and values of `__consumer_offsets`: committed offsets and classic group metadata. pure frozen

Source: `OffsetCommitKey.json`, `OffsetCommitValue.json`, `GroupMetadataKey.json`, `GroupMetadataValue.json` of Kafka's
group coordinator.
"""

from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.fields import Reader, UnknownVersion, Writer
from ottla.protocol.values import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP
from ottla.protocol.varints import Buffer, write_unsigned_varint

_LEGACY_OFFSET_KEY: Final = 0
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
MAX_OFFSET_VALUE_VERSION: Final = 4
MAX_GROUP_VALUE_VERSION: Final = 4
_TOPIC_ID: Final = 0

_KEY: Final = Struct(">hh")  # type, length of the group's id
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_HEAD_V4: Final = Struct(">hqi")  # version, offset, leader epoch
_UUID_BYTES: Final = 16
_TIME_NO_TAGS: Final = Struct(">qB")
_TIME_TOPIC_ID: Final = Struct(f">qBBB{_UUID_BYTES}s")  # time, number of tags, tag, size, content


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group: str


class OffsetValue(NamedTuple):
    """A committed offset. Times are in ms; -1 is none; `topic_id` is 16 bytes or None (version 4 only)."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: bytes | None = None


class GroupMember(NamedTuple):
    """A member of a classic group; `subscription` and `assignment` are the client's own bytes."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A classic group. `protocol` and `leader` are None while it is empty; `state_timestamp_ms` -1 is unknown."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[GroupMember, ...]


def offset_key(group: str, topic: str, partition: int) -> bytes:
    of_group, of_topic = group.encode(), topic.encode()
    head = _KEY.pack(_OFFSET_KEY, len(of_group))
    return head + of_group + _INT16.pack(len(of_topic)) + of_topic + _INT32.pack(partition)


def group_key(group: str) -> bytes:
    encoded = group.encode()
    return _KEY.pack(_GROUP_KEY, len(encoded)) + encoded


def read_offsets_key(key: Buffer) -> OffsetKey | GroupKey | None:
    """Return the key; None for the key types of other group protocols (consumer, share, streams): skip the record."""
    reader = Reader(key)
    key_type = reader.int16()
    found: OffsetKey | GroupKey
    if key_type in (_LEGACY_OFFSET_KEY, _OFFSET_KEY):
        found = OffsetKey(reader.string(), reader.string(), reader.int32())
    elif key_type == _GROUP_KEY:
        found = GroupKey(reader.string())
    else:
        return None
    reader.end()
    return found


def encode_offset_value(value: OffsetValue, version: int | None = None) -> bytes:
    """Encode a value. The default version is Kafka 4.3's: 1 for a value with an expiry time, else 4."""
    if version is None:
        if value.expire_ms == -1:
            return _encode_latest(value)
        version = 1
    if not 0 <= version <= MAX_OFFSET_VALUE_VERSION:
        raise ValueError(f"unknown version {version} of an offset value")
    if value.expire_ms != -1 and version != 1:
        raise ValueError(f"version {version} cannot hold an expiry time")
    writer = Writer(flexible=version >= 4)
    writer.int16(version)
    writer.int64(value.offset)
    if version >= 3:
        writer.int32(value.leader_epoch)
    writer.string(value.metadata)
    writer.int64(value.commit_ms)
    if version == 1:
        writer.int64(value.expire_ms)
    writer.tags(None if value.topic_id is None else (_TOPIC_ID, value.topic_id))
    return bytes(writer.out)


def _encode_latest(value: OffsetValue) -> bytes:
    """Encode version 4, as a commit writes it, without a `Writer`: commits are frequent."""
    metadata = value.metadata.encode()
    out = bytearray(_HEAD_V4.pack(4, value.offset, value.leader_epoch))
    write_unsigned_varint(out, len(metadata) + 1)
    out += metadata
    if value.topic_id is None:
        out += _TIME_NO_TAGS.pack(value.commit_ms, 0)
    else:
        out += _TIME_TOPIC_ID.pack(value.commit_ms, 1, _TOPIC_ID, _UUID_BYTES, value.topic_id)
    return bytes(out)


def decode_offset_value(content: Buffer) -> OffsetValue:
    """Decode a value. Raises UnknownVersion above version 4, ProtocolError for bytes that are no offset value."""
    reader = Reader(content)
    version = reader.int16()
    if not 0 <= version <= MAX_OFFSET_VALUE_VERSION:
        raise UnknownVersion(f"offset value of version {version}")
    reader.flexible = version >= 4
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_PARTITION_LEADER_EPOCH
    metadata = reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == 1 else -1
    topic_id = reader.tags().get(_TOPIC_ID)
    reader.end()
    return OffsetValue(
        offset, leader_epoch, metadata, commit_ms, expire_ms, None if topic_id is None else topic_id.uuid()
    )


def encode_group_value(value: GroupValue, version: int = 3) -> bytes:
    """Encode a value. Kafka 4.3 writes version 3."""
    if not 0 <= version <= MAX_GROUP_VALUE_VERSION:
        raise ValueError(f"unknown version {version} of a group value")
    writer = Writer(flexible=version >= 4)
    writer.int16(version)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    if version >= 2:
        writer.int64(value.state_timestamp_ms)

    def member(element: GroupMember) -> None:
        writer.string(element.member_id)
        if version >= 3:
            writer.string(element.group_instance_id)
        writer.string(element.client_id)
        writer.string(element.client_host)
        if version >= 1:
            writer.int32(element.rebalance_timeout_ms)
        writer.int32(element.session_timeout_ms)
        writer.blob(element.subscription)
        writer.blob(element.assignment)
        writer.tags()

    writer.array(value.members, member)
    writer.tags()
    return bytes(writer.out)


def decode_group_value(content: Buffer) -> GroupValue:
    """Decode a value. Raises UnknownVersion above version 4, ProtocolError for bytes that are no group value.

    Version 0 has no rebalance timeout: the session timeout replaces it, as in Kafka.
    """
    reader = Reader(content)
    version = reader.int16()
    if not 0 <= version <= MAX_GROUP_VALUE_VERSION:
        raise UnknownVersion(f"group value of version {version}")
    reader.flexible = version >= 4

    def member() -> GroupMember:
        member_id = reader.string()
        group_instance_id = reader.nullable_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout_ms = reader.int32() if version >= 1 else None
        session_timeout_ms = reader.int32()
        element = GroupMember(
            member_id,
            group_instance_id,
            client_id,
            client_host,
            session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
            session_timeout_ms,
            reader.blob(),
            reader.blob(),
        )
        reader.tags()
        return element

    value = GroupValue(
        protocol_type=reader.string(),
        generation=reader.int32(),
        protocol=reader.nullable_string(),
        leader=reader.nullable_string(),
        state_timestamp_ms=reader.int64() if version >= 2 else NO_TIMESTAMP,
        members=reader.array(member, 10),
    )
    reader.tags()
    reader.end()
    return value
