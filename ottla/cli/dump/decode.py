"""Keys and values of internal topics in the format of Kafka's tools: JSON with the names of the schemas. pure

Source: `DumpLogSegments` and the schemas of Kafka's coordinators 4.3.1; for the rest see `schemas`. The data that
clients write into a group record (subscription, assignment) is decoded for consumers, and base64 for other clients.
"""

from base64 import b64encode
from collections.abc import Callable
from typing import Final

from ottla.cli.dump.group_schemas import CONSUMER_GROUP_SCHEMAS
from ottla.cli.dump.schemas import ASSIGNMENT, CONTROL_SCHEMAS, METADATA_SCHEMAS, SUBSCRIPTION, Field, Json, read_fields
from ottla.protocol.checkpoints import encode_id
from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import Reader, UnknownVersion
from ottla.protocol.internal_topics.consumer_group_records import read_consumer_group_key
from ottla.protocol.internal_topics.offsets_records import (
    GroupKey,
    GroupValue,
    OffsetValue,
    decode_group_value,
    decode_offset_value,
    read_offsets_key,
)
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    decode_transaction_value,
    read_transaction_key,
)

TRANSACTIONS: Final = "transactions"
OFFSETS: Final = "offsets"
METADATA: Final = "metadata"
NO_DECODER: Final = "none"

_TOPICS: Final = {
    "__transaction_state": TRANSACTIONS,
    "__consumer_offsets": OFFSETS,
    "__cluster_metadata": METADATA,
}
_METADATA_FRAME_VERSION: Final = 1
_CONSUMER: Final = "consumer"

Decoded = tuple[Json, Json]
Decoder = Callable[[bytes | None, bytes | None], Decoded]


def decoder_for(directory_name: str, chosen: str | None) -> Decoder | None:
    """Return the chosen decoder of a partition directory, by default that of its topic. None for plain text."""
    kind = _TOPICS.get(directory_name.rpartition("-")[0]) if chosen is None else chosen
    return _DECODERS.get(kind or NO_DECODER)


def _transaction(key: bytes | None, value: bytes | None) -> Decoded:
    transactional_id = read_transaction_key(key or b"")
    shown_key: Json = {"type": str(_int16(key or b"")), "data": "unknown"}
    if transactional_id is None:
        return shown_key, None if value is None else _unknown(value)
    shown_key["data"] = {"transactionalId": transactional_id}
    return shown_key, None if value is None else _add_version(
        value, _transaction_value(decode_transaction_value(value))
    )


def _transaction_value(value: TransactionValue) -> Json:
    partitions = value.partitions
    fields: Json = {"producerId": value.producer_id}
    if value.previous_producer_id != -1:
        fields["previousProducerId"] = value.previous_producer_id
    if value.next_producer_id != -1:
        fields["nextProducerId"] = value.next_producer_id
    fields |= {
        "producerEpoch": value.producer_epoch,
        "transactionTimeoutMs": value.timeout_ms,
        "transactionStatus": value.status,
        "transactionPartitions": None
        if partitions is None
        else [{"topic": topic, "partitionIds": list(indexes)} for topic, indexes in partitions],
        "transactionLastUpdateTimestampMs": value.last_update_ms,
        "transactionStartTimestampMs": value.start_ms,
    }
    if value.client_version:
        fields["clientTransactionVersion"] = value.client_version
    return fields


def _offset(key: bytes | None, value: bytes | None) -> Decoded:
    found = read_offsets_key(key or b"")
    shown_key: Json = {"type": str(_int16(key or b"")), "data": "unknown"}
    if found is None:
        return _consumer_group(shown_key, key or b"", value)
    if isinstance(found, GroupKey):
        shown_key["data"] = {"group": found.group}
        return shown_key, None if value is None else _add_version(value, _group_value(decode_group_value(value), value))
    shown_key["data"] = {"group": found.group, "topic": found.topic, "partition": found.partition}
    return shown_key, None if value is None else _add_version(value, _offset_value(decode_offset_value(value), value))


def _consumer_group(shown_key: Json, key: bytes, value: bytes | None) -> Decoded:
    """Decode a record of a group of the consumer protocol; records of share and streams groups stay bytes."""
    found = read_consumer_group_key(key)
    if found is None:
        return shown_key, None if value is None else _unknown(value)
    schema = CONSUMER_GROUP_SCHEMAS[found.record_type]
    shown_key["data"] = {"groupId": found.group} | ({schema.name_field: found.name} if schema.name_field else {})
    if value is None:
        return shown_key, None
    reader = Reader(value, flexible=True)
    version = reader.int16()
    if version != 0:
        raise UnknownVersion(f"consumer group record of version {version}")
    data = read_fields(schema.fields, reader, version)
    reader.end()
    return shown_key, _add_version(value, data)


def _offset_value(value: OffsetValue, raw: bytes) -> Json:
    version = _int16(raw)
    fields: Json = {"offset": value.offset}
    if version >= 3:
        fields["leaderEpoch"] = value.leader_epoch
    fields |= {"metadata": value.metadata, "commitTimestamp": value.commit_ms}
    if version == 1:
        fields["expireTimestamp"] = value.expire_ms
    if value.topic_id is not None:
        fields["topicId"] = encode_id(value.topic_id)
    return fields


def _group_value(value: GroupValue, raw: bytes) -> Json:
    version = _int16(raw)
    member_value = _member_value if value.protocol_type == _CONSUMER else _base64
    fields: Json = {
        "protocolType": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
    }
    if version >= 2:
        fields["currentStateTimestamp"] = value.state_timestamp_ms
    fields["members"] = [
        {
            "memberId": member.member_id,
            **({"groupInstanceId": member.group_instance_id} if version >= 3 else {}),
            "clientId": member.client_id,
            "clientHost": member.client_host,
            **({"rebalanceTimeout": member.rebalance_timeout_ms} if version >= 1 else {}),
            "sessionTimeout": member.session_timeout_ms,
            "subscription": member_value(member.subscription, SUBSCRIPTION),
            "assignment": member_value(member.assignment, ASSIGNMENT),
        }
        for member in value.members
    ]
    return fields


def _member_value(content: bytes, fields: tuple[Field, ...]) -> Json:
    """Return the data that a consumer sent to its group. Other content stays base64, as in Kafka's tool."""
    reader = Reader(content)
    try:
        return read_fields(fields, reader, max(0, reader.int16()))
    except ProtocolError:
        # The client wrote these bytes and no broker reads them, so an error in them is not damage.
        return _base64(content, fields)


def _base64(content: bytes, _fields: tuple[Field, ...]) -> Json:
    return b64encode(content).decode()


def _metadata(key: bytes | None, value: bytes | None) -> Decoded:
    if value is None:
        return None, None
    reader = Reader(value, flexible=True)
    frame_version = reader.unsigned_varint()
    if frame_version != _METADATA_FRAME_VERSION:
        raise ProtocolError(f"metadata record with frame version {frame_version}")
    kind, version = reader.unsigned_varint(), reader.unsigned_varint()
    schema = METADATA_SCHEMAS.get(kind)
    shown: Json = {"type": kind if schema is None else schema.name, "version": version}
    if schema is None or version > schema.highest:
        return None, shown | {"undecoded": value[reader.position :].hex()}
    data = read_fields(schema.fields, reader, version)
    reader.end()
    return None, shown | {"data": data}


def decode_control(kind: int, value: bytes) -> tuple[str, Json] | None:
    """Return (name, fields) of a control record other than a marker, None for an unknown type.

    The fields are None in an unknown version. Raises ProtocolError for bytes that are not a record of this type.
    """
    schema = CONTROL_SCHEMAS.get(kind)
    if schema is None:
        return None
    if _int16(value) != schema.highest:
        return schema.name, None
    return schema.name, read_fields(schema.fields, Reader(value, flexible=True), schema.highest)


def _add_version(raw: bytes, data: Json) -> Json:
    return {"version": str(_int16(raw)), "data": data}


def _unknown(raw: bytes) -> Json:
    return {"version": str(_int16(raw)), "data": "unknown"}


def _int16(raw: bytes) -> int:
    if len(raw) < 2:
        raise ProtocolError(f"{len(raw)} bytes where a version was expected")
    return int.from_bytes(raw[:2], "big", signed=True)


_DECODERS: Final[dict[str, Decoder]] = {TRANSACTIONS: _transaction, OFFSETS: _offset, METADATA: _metadata}
