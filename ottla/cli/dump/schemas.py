"""Schemas of the messages that Kafka's tools print as JSON, and a reader from bytes to named fields. pure

Source: `common/metadata/*.json` of `kafka-metadata` and `common/message/*.json` of `kafka-clients` 4.3.1, and the JSON
converters that Kafka generates from these. Fields are in the order of the schema. Tagged fields are left out at their
defaults. Ids are base64url, bytes are base64.
"""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.protocol.batch import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE, SNAPSHOT_FOOTER, SNAPSHOT_HEADER
from ottla.protocol.checkpoints import encode_id
from ottla.protocol.fields import UUID_SIZE, Reader
from ottla.protocol.internal_topics.metadata_records import NO_LEADER_CHANGE

Json = Any
Read = Callable[[Reader, int], Json]
"""Function that reads one value of a message of the given version."""


class Field(NamedTuple):
    """A field since a version. A tagged field may be missing, and is not shown at its `default`."""

    name: str
    read: Read
    since: int = 0
    tag: int | None = None
    default: Json = None


class Schema(NamedTuple):
    """A message in the versions 0 to `highest`, with the name that Kafka's tools give it."""

    name: str
    highest: int
    fields: tuple[Field, ...]


def read_fields(fields: tuple[Field, ...], reader: Reader, version: int) -> dict[str, Json]:
    """Return the fields of one struct in the order of its schema. Raises ProtocolError for invalid bytes."""
    held = [field for field in fields if version >= field.since]
    found = {field.name: field.read(reader, version) for field in held if field.tag is None}
    tags = reader.tags()
    for field in held:
        if field.tag is not None and field.tag in tags:
            value = field.read(tags[field.tag], version)
            tags[field.tag].end()
            if value != field.default:
                found[field.name] = value
    return {field.name: found[field.name] for field in held if field.name in found}


def struct_of(*fields: Field) -> Read:
    return lambda reader, version: read_fields(fields, reader, version)


def nullable_struct_of(*fields: Field) -> Read:
    """Read a struct after a byte that is 0 if it is null."""
    return lambda reader, version: read_fields(fields, reader, version) if reader.raw(1) != b"\0" else None


def array_of(element: Read, least_bytes: int = 1) -> Read:
    return lambda reader, version: list(reader.array(lambda: element(reader, version), least_bytes))


def _nullable_array(element: Read, least_bytes: int) -> Read:
    def read(reader: Reader, version: int) -> Json:
        values = reader.nullable_array(lambda: element(reader, version), least_bytes)
        return None if values is None else list(values)

    return read


def _plain(read: Callable[[Reader], Json]) -> Read:
    return lambda reader, _version: read(reader)


read_int8: Final = _plain(Reader.int8)
_int16: Final = _plain(Reader.int16)
_uint16: Final = _plain(lambda reader: reader.int16() & 0xFFFF)
read_int32: Final = _plain(Reader.int32)
read_int64: Final = _plain(Reader.int64)
_float64: Final = _plain(Reader.float64)
_bool: Final = _plain(lambda reader: reader.int8() != 0)
read_string: Final = _plain(Reader.string)
read_nullable_string: Final = _plain(Reader.nullable_string)
read_uuid: Final = _plain(lambda reader: encode_id(reader.uuid()))
read_bytes: Final = _plain(lambda reader: b64encode(reader.blob()).decode())


def _user_data(reader: Reader, _version: int) -> Json:
    """Read nullable bytes of a message that is not flexible."""
    size = reader.int32()
    return None if size < 0 else b64encode(reader.raw(size)).decode()


read_int32s: Final = array_of(read_int32, 4)
_uuids: Final = array_of(read_uuid, UUID_SIZE)
read_nullable_int32s: Final = _nullable_array(read_int32, 4)
_nullable_uuids: Final = _nullable_array(read_uuid, UUID_SIZE)

_VERSION: Final = Field("version", _int16)
_LISTENER: Final = (Field("name", read_string), Field("host", read_string), Field("port", _uint16))
_REGISTERED: Final = array_of(struct_of(*_LISTENER, Field("securityProtocol", _int16)))
_SUPPORTED: Final = (Field("minSupportedVersion", _int16), Field("maxSupportedVersion", _int16))
_FEATURES: Final = array_of(struct_of(Field("name", read_string), *_SUPPORTED))
_FENCING: Final = (Field("id", read_int32), Field("epoch", read_int64))
_SCRAM_USER: Final = (Field("name", read_string), Field("mechanism", read_int8))

_REGISTER_BROKER: Final = (
    Field("brokerId", read_int32),
    Field("isMigratingZkBroker", _bool, since=2),
    Field("incarnationId", read_uuid),
    Field("brokerEpoch", read_int64),
    Field("endPoints", _REGISTERED),
    Field("features", _FEATURES),
    Field("rack", read_nullable_string),
    Field("fenced", _bool),
    Field("inControlledShutdown", _bool, since=1),
    Field("logDirs", _uuids, since=3, tag=0, default=[]),
    Field("cordonedLogDirs", _nullable_uuids, since=4, tag=1),
)
_REGISTER_CONTROLLER: Final = (
    Field("controllerId", read_int32),
    Field("incarnationId", read_uuid),
    Field("zkMigrationReady", _bool),
    Field("endPoints", _REGISTERED),
    Field("features", _FEATURES),
)
_BROKER_REGISTRATION_CHANGE: Final = (
    Field("brokerId", read_int32),
    Field("brokerEpoch", read_int64),
    Field("fenced", read_int8, tag=0, default=0),
    Field("inControlledShutdown", read_int8, since=1, tag=1, default=0),
    Field("logDirs", _uuids, since=2, tag=2, default=[]),
    Field("cordonedLogDirs", _nullable_uuids, since=3, tag=3),
)
_PARTITION: Final = (
    Field("partitionId", read_int32),
    Field("topicId", read_uuid),
    *(Field(name, read_int32s) for name in ("replicas", "isr", "removingReplicas", "addingReplicas")),
    Field("leader", read_int32),
    Field("leaderRecoveryState", read_int8, tag=0, default=0),
    Field("leaderEpoch", read_int32),
    Field("partitionEpoch", read_int32),
    Field("directories", _uuids, since=1),
    Field("eligibleLeaderReplicas", read_nullable_int32s, since=2, tag=1),
    Field("lastKnownElr", read_nullable_int32s, since=2, tag=2),
)
_PARTITION_CHANGE: Final = (
    Field("partitionId", read_int32),
    Field("topicId", read_uuid),
    Field("isr", read_nullable_int32s, tag=0),
    Field("leader", read_int32, tag=1, default=NO_LEADER_CHANGE),
    Field("replicas", read_nullable_int32s, tag=2),
    Field("removingReplicas", read_nullable_int32s, tag=3),
    Field("addingReplicas", read_nullable_int32s, tag=4),
    Field("leaderRecoveryState", read_int8, tag=5, default=-1),
    Field("directories", _nullable_uuids, since=1, tag=8),
    Field("eligibleLeaderReplicas", read_nullable_int32s, since=2, tag=6),
    Field("lastKnownElr", read_nullable_int32s, since=2, tag=7),
)
_DELEGATION_TOKEN: Final = (
    Field("owner", read_string),
    Field("requester", read_string),
    Field("renewers", array_of(read_string)),
    *(Field(name, read_int64) for name in ("issueTimestamp", "maxTimestamp", "expirationTimestamp")),
    Field("tokenId", read_string),
)
_CLIENT_QUOTA: Final = (
    Field("entity", array_of(struct_of(Field("entityType", read_string), Field("entityName", read_nullable_string)))),
    Field("key", read_string),
    Field("value", _float64),
    Field("remove", _bool),
)
_ACCESS_CONTROL_ENTRY: Final = (
    Field("id", read_uuid),
    Field("resourceType", read_int8),
    Field("resourceName", read_string),
    Field("patternType", read_int8),
    Field("principal", read_string),
    Field("host", read_string),
    Field("operation", read_int8),
    Field("permissionType", read_int8),
)
_CONFIG: Final = (
    Field("resourceType", read_int8),
    Field("resourceName", read_string),
    Field("name", read_string),
    Field("value", read_nullable_string),
)
_PRODUCER_IDS: Final = (
    Field("brokerId", read_int32),
    Field("brokerEpoch", read_int64),
    Field("nextProducerId", read_int64),
)
_SCRAM_CREDENTIAL: Final = (
    *_SCRAM_USER,
    Field("salt", read_bytes),
    Field("storedKey", read_bytes),
    Field("serverKey", read_bytes),
    Field("iterations", read_int32),
)

METADATA_SCHEMAS: Final = {
    0: Schema("REGISTER_BROKER_RECORD", 4, _REGISTER_BROKER),
    1: Schema("UNREGISTER_BROKER_RECORD", 0, (Field("brokerId", read_int32), Field("brokerEpoch", read_int64))),
    2: Schema("TOPIC_RECORD", 0, (Field("name", read_string), Field("topicId", read_uuid))),
    3: Schema("PARTITION_RECORD", 2, _PARTITION),
    4: Schema("CONFIG_RECORD", 0, _CONFIG),
    5: Schema("PARTITION_CHANGE_RECORD", 2, _PARTITION_CHANGE),
    7: Schema("FENCE_BROKER_RECORD", 0, _FENCING),
    8: Schema("UNFENCE_BROKER_RECORD", 0, _FENCING),
    9: Schema("REMOVE_TOPIC_RECORD", 0, (Field("topicId", read_uuid),)),
    10: Schema("DELEGATION_TOKEN_RECORD", 0, _DELEGATION_TOKEN),
    11: Schema("USER_SCRAM_CREDENTIAL_RECORD", 0, _SCRAM_CREDENTIAL),
    12: Schema("FEATURE_LEVEL_RECORD", 0, (Field("name", read_string), Field("featureLevel", _int16))),
    14: Schema("CLIENT_QUOTA_RECORD", 0, _CLIENT_QUOTA),
    15: Schema("PRODUCER_IDS_RECORD", 0, _PRODUCER_IDS),
    17: Schema("BROKER_REGISTRATION_CHANGE_RECORD", 3, _BROKER_REGISTRATION_CHANGE),
    18: Schema("ACCESS_CONTROL_ENTRY_RECORD", 0, _ACCESS_CONTROL_ENTRY),
    19: Schema("REMOVE_ACCESS_CONTROL_ENTRY_RECORD", 0, (Field("id", read_uuid),)),
    20: Schema("NO_OP_RECORD", 0, ()),
    21: Schema("ZK_MIGRATION_STATE_RECORD", 0, (Field("zkMigrationState", read_int8),)),
    22: Schema("REMOVE_USER_SCRAM_CREDENTIAL_RECORD", 0, _SCRAM_USER),
    23: Schema("BEGIN_TRANSACTION_RECORD", 0, (Field("name", read_nullable_string, tag=0),)),
    24: Schema("END_TRANSACTION_RECORD", 0, ()),
    25: Schema("ABORT_TRANSACTION_RECORD", 0, (Field("reason", read_nullable_string, tag=0),)),
    26: Schema("REMOVE_DELEGATION_TOKEN_RECORD", 0, (Field("tokenId", read_string),)),
    27: Schema("REGISTER_CONTROLLER_RECORD", 0, _REGISTER_CONTROLLER),
    28: Schema("CLEAR_ELR_RECORD", 0, (Field("topicName", read_string),)),
}
"""Schemas by `MetadataRecordType`. All are flexible."""

_VOTER_IDS: Final = array_of(struct_of(Field("voterId", read_int32)))
_VOTER: Final = struct_of(
    Field("voterId", read_int32),
    Field("voterDirectoryId", read_uuid),
    Field("endpoints", array_of(struct_of(*_LISTENER))),
    Field("kRaftVersionFeature", struct_of(*_SUPPORTED)),
)
_LEADER_CHANGED: Final = (
    Field("leaderId", read_int32),
    Field("voters", _VOTER_IDS),
    Field("grantingVoters", _VOTER_IDS),
)

CONTROL_SCHEMAS: Final = {
    LEADER_CHANGE: Schema("LeaderChange", 0, (_VERSION, *_LEADER_CHANGED)),
    SNAPSHOT_HEADER: Schema("SnapshotHeader", 0, (_VERSION, Field("lastContainedLogTimestamp", read_int64))),
    SNAPSHOT_FOOTER: Schema("SnapshotFooter", 0, (_VERSION,)),
    KRAFT_VERSION: Schema("KRaftVersion", 0, (_VERSION, Field("kRaftVersion", _int16))),
    KRAFT_VOTERS: Schema("KRaftVoters", 0, (_VERSION, Field("voters", array_of(_VOTER)))),
}
"""Schemas by `ControlRecordType`. All are flexible and begin with a version; `ControlRecordUtils` reads only 0."""

_TOPIC_PARTITIONS: Final = array_of(struct_of(Field("topic", read_string), Field("partitions", read_int32s)), 6)

SUBSCRIPTION: Final = (
    Field("topics", array_of(read_string, 2)),
    Field("userData", _user_data),
    Field("ownedPartitions", _TOPIC_PARTITIONS, since=1),
    Field("generationId", read_int32, since=2),
    Field("rackId", read_nullable_string, since=3),
)
"""`ConsumerProtocolSubscription`: not flexible; a newer version may only add fields."""

ASSIGNMENT: Final = (Field("assignedPartitions", _TOPIC_PARTITIONS), Field("userData", _user_data))
"""`ConsumerProtocolAssignment`: not flexible; a newer version may only add fields."""
