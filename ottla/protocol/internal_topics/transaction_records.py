"""Keys and values of `__transaction_state`. pure frozen

Source: `TransactionLogKey.json`, `TransactionLogValue.json` and `TransactionLog` of Kafka's transaction coordinator.
"""

from functools import lru_cache
from struct import Struct, pack
from typing import Final, NamedTuple, Protocol

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import Reader, UnknownVersion
from ottla.protocol.values import NO_PRODUCER_ID
from ottla.protocol.varints import Buffer, write_unsigned_varint

TRANSACTION_KEY_TYPE: Final = 0
MAX_TRANSACTION_VALUE_VERSION: Final = 1

TopicPartitions = tuple[tuple[str, tuple[int, ...]], ...]

_HEAD: Final = Struct(">hqhib")  # version, producer id and epoch, timeout, status
_TIMES: Final = Struct(">qq")
_INT32: Final = Struct(">i")
_TAGGED_INT64: Final = Struct(">bbq")
_TAGGED_INT16: Final = Struct(">bbh")
_KEY: Final = Struct(">hh")  # type, length of the id
# A whole value of version 1 without partitions. Its tagged fields are the previous producer id, perhaps with the client
# version. "3s": number of tagged fields, tag and size of the first. "2s": tag and size of the second.
_IDLE: Final = Struct(">hqhibBqq3sq")
_IDLE_V2: Final = Struct(">hqhibBqq3sq2sh")
# The usual end after the partitions: the times, and the same tagged fields.
_END: Final = Struct(">qq3sq")
_END_V2: Final = Struct(">qq3sq2sh")
_ONE_PARTITION: Final = Struct(">Bix")
_ONE_TAG: Final = b"\x01\x00\x08"
_TWO_TAGS: Final = b"\x02\x00\x08"
_CLIENT_VERSION_TAG: Final = b"\x02\x02"
# The partitions of larger values are not kept.
_MOST_KEPT_BYTES: Final = 2_048
_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_VERSION: Final = 2


class TransactionValue(NamedTuple):
    """The durable state of a transactional id.

    `status` is the state's number (0 Empty to 5 CompleteAbort). `partitions` is None in Empty, else ((topic,
    (partition, ...)), ...). Times are in ms, -1 none. `client_version` is the client's transaction version (KIP-890).
    Version 0 does not hold the last three.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: TopicPartitions | None
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0


def transaction_key(transactional_id: str) -> bytes:
    encoded = transactional_id.encode()
    return _KEY.pack(TRANSACTION_KEY_TYPE, len(encoded)) + encoded


def read_transaction_key(key: Buffer) -> str | None:
    """Return the transactional id, or None if the key is of an unknown type (skip the record)."""
    if len(key) >= _KEY.size:
        kind, length = _KEY.unpack_from(key)
        if kind == TRANSACTION_KEY_TYPE and length == len(key) - _KEY.size:
            try:
                return str(memoryview(key)[_KEY.size :], "utf-8")
            except UnicodeDecodeError:
                pass  # the reader raises the error
    reader = Reader(key)
    if reader.int16() != TRANSACTION_KEY_TYPE:
        return None
    transactional_id = reader.string()
    reader.end()
    return transactional_id


class TransactionFields(Protocol):
    """Fields of a transaction value without its partitions; see `TransactionValue`."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def timeout_ms(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def last_update_ms(self) -> int: ...
    @property
    def start_ms(self) -> int: ...
    @property
    def previous_producer_id(self) -> int: ...
    @property
    def next_producer_id(self) -> int: ...
    @property
    def client_version(self) -> int: ...


def encode_transaction_value(value: TransactionValue, version: int = 1) -> bytes:
    """Encode a value with its partitions; see `encode_transaction_fields`."""
    return encode_transaction_fields(value, value.partitions, version)


def encode_transaction_fields(value: TransactionFields, partitions: TopicPartitions | None, version: int = 1) -> bytes:
    """Encode version 1, or version 0 for the feature level 0 of `transaction.version`.

    Version 0 drops the previous and next producer id, as in Kafka. Raises ValueError if it has to drop client_version.
    """
    if not 0 <= version <= MAX_TRANSACTION_VALUE_VERSION:
        raise ValueError(f"unknown version {version} of a transaction value")
    if version == 0 and value.client_version:
        raise ValueError("version 0 cannot hold a client transaction version")
    head = _HEAD.pack(version, value.producer_id, value.producer_epoch, value.timeout_ms, value.status)
    updated_ms, began_ms, previous, client = (
        value.last_update_ms,
        value.start_ms,
        value.previous_producer_id,
        value.client_version,
    )
    if version == 0:
        return head + _plain_partitions(partitions) + _TIMES.pack(updated_ms, began_ms)
    if previous == -1 or value.next_producer_id != -1:
        tags = _tags(value)
        end = b"%b%c%b" % (_TIMES.pack(updated_ms, began_ms), len(tags), b"".join(tags))
    elif client:
        end = _END_V2.pack(updated_ms, began_ms, _TWO_TAGS, previous, _CLIENT_VERSION_TAG, client)
    else:
        end = _END.pack(updated_ms, began_ms, _ONE_TAG, previous)
    return head + _partitions(partitions) + end


# Encoded by hand, because a coordinator writes three of these values for each transaction.
def _partitions(partitions: TopicPartitions | None) -> bytes:
    if not partitions:
        return b"\0" if partitions is None else b"\1"
    out = bytearray()
    write_unsigned_varint(out, len(partitions) + 1)
    for name, indexes in partitions:
        encoded = name.encode()
        write_unsigned_varint(out, len(encoded) + 1)
        out += encoded
        if len(indexes) == 1:
            out += _ONE_PARTITION.pack(2, indexes[0])
        else:
            write_unsigned_varint(out, len(indexes) + 1)
            out += pack(f">{len(indexes)}ix", *indexes)
    return bytes(out)


def _plain_partitions(partitions: TopicPartitions | None) -> bytes:
    """Encode the partitions in version 0, which is not flexible."""
    out = bytearray(_INT32.pack(-1 if partitions is None else len(partitions)))
    for name, indexes in partitions or ():
        encoded = name.encode()
        out += pack(f">h{len(encoded)}si{len(indexes)}i", len(encoded), encoded, len(indexes), *indexes)
    return bytes(out)


def _tags(value: TransactionFields) -> list[bytes]:
    """Encode the tagged fields that are not at their defaults: tag, size, value."""
    tags = []
    if value.previous_producer_id != -1:
        tags.append(_TAGGED_INT64.pack(_PREVIOUS_PRODUCER_ID, 8, value.previous_producer_id))
    if value.next_producer_id != -1:
        tags.append(_TAGGED_INT64.pack(_NEXT_PRODUCER_ID, 8, value.next_producer_id))
    if value.client_version:
        tags.append(_TAGGED_INT16.pack(_CLIENT_VERSION, 2, value.client_version))
    return tags


def decode_transaction_value(content: Buffer) -> TransactionValue:
    """Decode a value. Raises UnknownVersion above version 1, ProtocolError for bytes that are no transaction value."""
    return _decode_idle(content) or _decode_usual(content) or _decode_any(content)


def _decode_idle(content: Buffer) -> TransactionValue | None:
    """Decode a value of version 1 without partitions in one call, as most records are; None for other values."""
    if len(content) == _IDLE_V2.size:
        version, producer_id, epoch, timeout_ms, status, count, updated_ms, began_ms, tags, previous_id, tag, client = (
            _IDLE_V2.unpack(content)
        )
        if tag != _CLIENT_VERSION_TAG or tags != _TWO_TAGS:
            return None
    elif len(content) == _IDLE.size:
        version, producer_id, epoch, timeout_ms, status, count, updated_ms, began_ms, tags, previous_id = _IDLE.unpack(
            content
        )
        client = 0
        if tags != _ONE_TAG:
            return None
    else:
        return None
    if version != 1 or count > 1:
        return None
    # One object for both ids, which are almost always the same: a million of them are 32 MB.
    return TransactionValue(
        producer_id,
        epoch,
        timeout_ms,
        status,
        () if count else None,
        updated_ms,
        began_ms,
        producer_id if previous_id == producer_id else previous_id,
        -1,
        client,
    )


def _decode_usual(content: Buffer) -> TransactionValue | None:
    """Decode a value of version 1 with the usual end after its partitions; None for other values.

    Many values have the same partitions, so their bytes are decoded once.
    """
    at, client = len(content) - _END_V2.size, 0
    if at > _HEAD.size and content[at + _TIMES.size : at + _TIMES.size + 3] == _TWO_TAGS:
        updated_ms, began_ms, _, previous_id, tag, client = _END_V2.unpack_from(content, at)
        if tag != _CLIENT_VERSION_TAG:
            return None
    else:
        at = len(content) - _END.size
        if at <= _HEAD.size:
            return None
        updated_ms, began_ms, tags, previous_id = _END.unpack_from(content, at)
        if tags != _ONE_TAG:
            return None
    version, producer_id, epoch, timeout_ms, status = _HEAD.unpack_from(content)
    if version != 1 or at > _MOST_KEPT_BYTES:
        return None
    try:
        partitions = _decode_partitions(bytes(content[_HEAD.size : at]))
    except ProtocolError:
        return None
    previous_id = producer_id if previous_id == producer_id else previous_id
    return TransactionValue(
        producer_id, epoch, timeout_ms, status, partitions, updated_ms, began_ms, previous_id, -1, client
    )


@lru_cache(maxsize=256)
def _decode_partitions(content: bytes) -> TopicPartitions | None:
    """Decode the partitions of a value of version 1. Raises ProtocolError."""
    reader = Reader(content)
    reader.flexible = True
    partitions = _read_partitions(reader)
    reader.end()
    return partitions


def _read_partitions(reader: Reader) -> TopicPartitions | None:
    def topic() -> tuple[str, tuple[int, ...]]:
        element = (reader.string(), reader.array(reader.int32, 4))
        reader.tags()
        return element

    return reader.nullable_array(topic, 3)


def _decode_any(content: Buffer) -> TransactionValue:
    reader = Reader(content)
    version = reader.int16()
    if not 0 <= version <= MAX_TRANSACTION_VALUE_VERSION:
        raise UnknownVersion(f"transaction value of version {version}")
    reader.flexible = version > 0
    value = TransactionValue(
        producer_id=reader.int64(),
        producer_epoch=reader.int16(),
        timeout_ms=reader.int32(),
        status=reader.int8(),
        partitions=_read_partitions(reader),
        last_update_ms=reader.int64(),
        start_ms=reader.int64(),
    )
    tags = reader.tags()
    reader.end()
    return value._replace(
        previous_producer_id=tags[_PREVIOUS_PRODUCER_ID].int64() if _PREVIOUS_PRODUCER_ID in tags else NO_PRODUCER_ID,
        next_producer_id=tags[_NEXT_PRODUCER_ID].int64() if _NEXT_PRODUCER_ID in tags else NO_PRODUCER_ID,
        client_version=tags[_CLIENT_VERSION].int16() if _CLIENT_VERSION in tags else 0,
    )
