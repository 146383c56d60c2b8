"""Keys and values of the internal topics as Kafka's tools print them: JSON with the names of the schemas. pure

Source: `DumpLogSegments` and the schemas of Kafka's coordinators and of `kafka-metadata` 4.3.1. The client's own bytes
in a group record (subscription, assignment) are base64 here; Kafka's tool decodes those of consumers.
"""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import Reader
from ottla.protocol.metadata_records import (
    MetadataRecord,
    PartitionChangeRecord,
    decode_metadata_record,
    format_uuid,
)
from ottla.protocol.state_records import (
    GroupKey,
    GroupValue,
    OffsetValue,
    TransactionValue,
    decode_group_value,
    decode_offset_value,
    decode_transaction_value,
    read_offsets_key,
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
# `MetadataRecordType`: id and name.
_METADATA_TYPES: Final = {
    0: "REGISTER_BROKER",
    1: "UNREGISTER_BROKER",
    2: "TOPIC",
    3: "PARTITION",
    4: "CONFIG",
    5: "PARTITION_CHANGE",
    7: "FENCE_BROKER",
    8: "UNFENCE_BROKER",
    9: "REMOVE_TOPIC",
    10: "DELEGATION_TOKEN",
    11: "USER_SCRAM_CREDENTIAL",
    12: "FEATURE_LEVEL",
    14: "CLIENT_QUOTA",
    15: "PRODUCER_IDS",
    17: "BROKER_REGISTRATION_CHANGE",
    18: "ACCESS_CONTROL_ENTRY",
    19: "REMOVE_ACCESS_CONTROL_ENTRY",
    20: "NO_OP",
    21: "ZK_MIGRATION_STATE",
    22: "REMOVE_USER_SCRAM_CREDENTIAL",
    23: "BEGIN_TRANSACTION",
    24: "END_TRANSACTION",
    25: "ABORT_TRANSACTION",
    26: "REMOVE_DELEGATION_TOKEN",
    27: "REGISTER_CONTROLLER",
    28: "CLEAR_ELR",
}
_NO_OP: Final = 20

Json = Any
Decoded = tuple[Json, Json]
Decoder = Callable[[bytes | None, bytes | None], Decoded]


def decoder_for(directory_name: str, chosen: str | None) -> Decoder | None:
    """The decoder of a partition directory, by its topic's name or as chosen; None for plain text."""
    kind = _TOPICS.get(directory_name.rpartition("-")[0]) if chosen is None else chosen
    return _DECODERS.get(kind or NO_DECODER)


def _transaction(key: bytes | None, value: bytes | None) -> Decoded:
    transactional_id = read_transaction_key(key or b"")
    shown_key: Json = {"type": str(_int16(key or b"")), "data": "unknown"}
    if transactional_id is None:
        return shown_key, None if value is None else _unknown(value)
    shown_key["data"] = {"transactionalId": transactional_id}
    return shown_key, None if value is None else _versioned(value, _transaction_value(decode_transaction_value(value)))


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
        return shown_key, None if value is None else _unknown(value)
    if isinstance(found, GroupKey):
        shown_key["data"] = {"group": found.group}
        return shown_key, None if value is None else _versioned(value, _group_value(decode_group_value(value), value))
    shown_key["data"] = {"group": found.group, "topic": found.topic, "partition": found.partition}
    return shown_key, None if value is None else _versioned(value, _offset_value(decode_offset_value(value), value))


def _offset_value(value: OffsetValue, raw: bytes) -> Json:
    version = _int16(raw)
    fields: Json = {"offset": value.offset}
    if version >= 3:
        fields["leaderEpoch"] = value.leader_epoch
    fields |= {"metadata": value.metadata, "commitTimestamp": value.commit_ms}
    if version == 1:
        fields["expireTimestamp"] = value.expire_ms
    if value.topic_id is not None:
        fields["topicId"] = format_uuid(value.topic_id)
    return fields


def _group_value(value: GroupValue, raw: bytes) -> Json:
    version = _int16(raw)
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
            "subscription": b64encode(member.subscription).decode(),
            "assignment": b64encode(member.assignment).decode(),
        }
        for member in value.members
    ]
    return fields


def _metadata(key: bytes | None, value: bytes | None) -> Decoded:
    if value is None:
        return None, None
    reader = Reader(value, flexible=True)
    _, kind, version = reader.unsigned_varint(), reader.unsigned_varint(), reader.unsigned_varint()
    name = f"{_METADATA_TYPES[kind]}_RECORD" if kind in _METADATA_TYPES else kind
    shown: Json = {"type": name, "version": version}
    record = decode_metadata_record(value)
    if record is None and kind == _NO_OP:
        return None, shown | {"data": {}}
    if record is None:
        return None, shown | {"undecoded": value[reader.position :].hex()}
    return None, shown | {"data": _metadata_fields(record)}


def _metadata_fields(record: MetadataRecord) -> Json:
    """As in Kafka, tagged fields are left out at their defaults."""
    fields: Json = {}
    defaults = record._field_defaults
    all_tagged = isinstance(record, PartitionChangeRecord)
    for name, value in record._asdict().items():
        if (all_tagged or name == "leader_recovery_state") and name in defaults and value == defaults[name]:
            continue
        shown = value
        if isinstance(value, bytes):
            shown = format_uuid(value)
        elif isinstance(value, tuple):
            shown = [format_uuid(each) if isinstance(each, bytes) else each for each in value]
        if value is not None or name == "value":
            fields[_camel(name)] = shown
    return fields


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _versioned(raw: bytes, data: Json) -> Json:
    return {"version": str(_int16(raw)), "data": data}


def _unknown(raw: bytes) -> Json:
    return {"version": str(_int16(raw)), "data": "unknown"}


def _int16(raw: bytes) -> int:
    if len(raw) < 2:
        raise ProtocolError(f"{len(raw)} bytes where a version was expected")
    return int.from_bytes(raw[:2], "big", signed=True)


_DECODERS: Final[dict[str, Decoder]] = {TRANSACTIONS: _transaction, OFFSETS: _offset, METADATA: _metadata}
