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


def _struct(*fields: Field) -> Read:
    return lambda reader, version: read_fields(fields, reader, version)


def _array(element: Read, least_bytes: int = 1) -> Read:
    return lambda reader, version: list(reader.array(lambda: element(reader, version), least_bytes))


def _nullable_array(element: Read, least_bytes: int) -> Read:
    def read(reader: Reader, version: int) -> Json:
        values = reader.nullable_array(lambda: element(reader, version), least_bytes)
        return None if values is None else list(values)

    return read


def _plain(read: Callable[[Reader], Json]) -> Read:
    return lambda reader, _version: read(reader)


_int8: Final = _plain(Reader.int8)
_int16: Final = _plain(Reader.int16)
_uint16: Final = _plain(lambda reader: reader.int16() & 0xFFFF)
_int32: Final = _plain(Reader.int32)
_int64: Final = _plain(Reader.int64)
_float64: Final = _plain(Reader.float64)
_bool: Final = _plain(lambda reader: reader.int8() != 0)
_string: Final = _plain(Reader.string)
_nullable_string: Final = _plain(Reader.nullable_string)
_uuid: Final = _plain(lambda reader: encode_id(reader.uuid()))
_bytes: Final = _plain(lambda reader: b64encode(reader.blob()).decode())


def _user_data(reader: Reader, _version: int) -> Json:
    """Read nullable bytes of a message that is not flexible."""
    size = reader.int32()
    return None if size < 0 else b64encode(reader.raw(size)).decode()


_int32s: Final = _array(_int32, 4)
_uuids: Final = _array(_uuid, UUID_SIZE)
_nullable_int32s: Final = _nullable_array(_int32, 4)
_nullable_uuids: Final = _nullable_array(_uuid, UUID_SIZE)

_VERSION: Final = Field("version", _int16)
_LISTENER: Final = (Field("name", _string), Field("host", _string), Field("port", _uint16))
_REGISTERED: Final = _array(_struct(*_LISTENER, Field("securityProtocol", _int16)))
_SUPPORTED: Final = (Field("minSupportedVersion", _int16), Field("maxSupportedVersion", _int16))
_FEATURES: Final = _array(_struct(Field("name", _string), *_SUPPORTED))
_FENCING: Final = (Field("id", _int32), Field("epoch", _int64))
_SCRAM_USER: Final = (Field("name", _string), Field("mechanism", _int8))

_REGISTER_BROKER: Final = (
    Field("brokerId", _int32),
    Field("isMigratingZkBroker", _bool, since=2),
    Field("incarnationId", _uuid),
    Field("brokerEpoch", _int64),
    Field("endPoints", _REGISTERED),
    Field("features", _FEATURES),
    Field("rack", _nullable_string),
    Field("fenced", _bool),
    Field("inControlledShutdown", _bool, since=1),
    Field("logDirs", _uuids, since=3, tag=0, default=[]),
    Field("cordonedLogDirs", _nullable_uuids, since=4, tag=1),
)
_REGISTER_CONTROLLER: Final = (
    Field("controllerId", _int32),
    Field("incarnationId", _uuid),
    Field("zkMigrationReady", _bool),
    Field("endPoints", _REGISTERED),
    Field("features", _FEATURES),
)
_BROKER_REGISTRATION_CHANGE: Final = (
    Field("brokerId", _int32),
    Field("brokerEpoch", _int64),
    Field("fenced", _int8, tag=0, default=0),
    Field("inControlledShutdown", _int8, since=1, tag=1, default=0),
    Field("logDirs", _uuids, since=2, tag=2, default=[]),
    Field("cordonedLogDirs", _nullable_uuids, since=3, tag=3),
)
_PARTITION: Final = (
    Field("partitionId", _int32),
    Field("topicId", _uuid),
    *(Field(name, _int32s) for name in ("replicas", "isr", "removingReplicas", "addingReplicas")),
    Field("leader", _int32),
    Field("leaderRecoveryState", _int8, tag=0, default=0),
    Field("leaderEpoch", _int32),
    Field("partitionEpoch", _int32),
    Field("directories", _uuids, since=1),
    Field("eligibleLeaderReplicas", _nullable_int32s, since=2, tag=1),
    Field("lastKnownElr", _nullable_int32s, since=2, tag=2),
)
_PARTITION_CHANGE: Final = (
    Field("partitionId", _int32),
    Field("topicId", _uuid),
    Field("isr", _nullable_int32s, tag=0),
    Field("leader", _int32, tag=1, default=NO_LEADER_CHANGE),
    Field("replicas", _nullable_int32s, tag=2),
    Field("removingReplicas", _nullable_int32s, tag=3),
    Field("addingReplicas", _nullable_int32s, tag=4),
    Field("leaderRecoveryState", _int8, tag=5, default=-1),
    Field("directories", _nullable_uuids, since=1, tag=8),
    Field("eligibleLeaderReplicas", _nullable_int32s, since=2, tag=6),
    Field("lastKnownElr", _nullable_int32s, since=2, tag=7),
)
_DELEGATION_TOKEN: Final = (
    Field("owner", _string),
    Field("requester", _string),
    Field("renewers", _array(_string)),
    *(Field(name, _int64) for name in ("issueTimestamp", "maxTimestamp", "expirationTimestamp")),
    Field("tokenId", _string),
)
_CLIENT_QUOTA: Final = (
    Field("entity", _array(_struct(Field("entityType", _string), Field("entityName", _nullable_string)))),
    Field("key", _string),
    Field("value", _float64),
    Field("remove", _bool),
)
_ACCESS_CONTROL_ENTRY: Final = (
    Field("id", _uuid),
    Field("resourceType", _int8),
    Field("resourceName", _string),
    Field("patternType", _int8),
    Field("principal", _string),
    Field("host", _string),
    Field("operation", _int8),
    Field("permissionType", _int8),
)
_CONFIG: Final = (
    Field("resourceType", _int8),
    Field("resourceName", _string),
    Field("name", _string),
    Field("value", _nullable_string),
)
_PRODUCER_IDS: Final = (Field("brokerId", _int32), Field("brokerEpoch", _int64), Field("nextProducerId", _int64))
_SCRAM_CREDENTIAL: Final = (
    *_SCRAM_USER,
    Field("salt", _bytes),
    Field("storedKey", _bytes),
    Field("serverKey", _bytes),
    Field("iterations", _int32),
)

METADATA_SCHEMAS: Final = {
    0: Schema("REGISTER_BROKER_RECORD", 4, _REGISTER_BROKER),
    1: Schema("UNREGISTER_BROKER_RECORD", 0, (Field("brokerId", _int32), Field("brokerEpoch", _int64))),
    2: Schema("TOPIC_RECORD", 0, (Field("name", _string), Field("topicId", _uuid))),
    3: Schema("PARTITION_RECORD", 2, _PARTITION),
    4: Schema("CONFIG_RECORD", 0, _CONFIG),
    5: Schema("PARTITION_CHANGE_RECORD", 2, _PARTITION_CHANGE),
    7: Schema("FENCE_BROKER_RECORD", 0, _FENCING),
    8: Schema("UNFENCE_BROKER_RECORD", 0, _FENCING),
    9: Schema("REMOVE_TOPIC_RECORD", 0, (Field("topicId", _uuid),)),
    10: Schema("DELEGATION_TOKEN_RECORD", 0, _DELEGATION_TOKEN),
    11: Schema("USER_SCRAM_CREDENTIAL_RECORD", 0, _SCRAM_CREDENTIAL),
    12: Schema("FEATURE_LEVEL_RECORD", 0, (Field("name", _string), Field("featureLevel", _int16))),
    14: Schema("CLIENT_QUOTA_RECORD", 0, _CLIENT_QUOTA),
    15: Schema("PRODUCER_IDS_RECORD", 0, _PRODUCER_IDS),
    17: Schema("BROKER_REGISTRATION_CHANGE_RECORD", 3, _BROKER_REGISTRATION_CHANGE),
    18: Schema("ACCESS_CONTROL_ENTRY_RECORD", 0, _ACCESS_CONTROL_ENTRY),
    19: Schema("REMOVE_ACCESS_CONTROL_ENTRY_RECORD", 0, (Field("id", _uuid),)),
    20: Schema("NO_OP_RECORD", 0, ()),
    21: Schema("ZK_MIGRATION_STATE_RECORD", 0, (Field("zkMigrationState", _int8),)),
    22: Schema("REMOVE_USER_SCRAM_CREDENTIAL_RECORD", 0, _SCRAM_USER),
    23: Schema("BEGIN_TRANSACTION_RECORD", 0, (Field("name", _nullable_string, tag=0),)),
    24: Schema("END_TRANSACTION_RECORD", 0, ()),
    25: Schema("ABORT_TRANSACTION_RECORD", 0, (Field("reason", _nullable_string, tag=0),)),
    26: Schema("REMOVE_DELEGATION_TOKEN_RECORD", 0, (Field("tokenId", _string),)),
    27: Schema("REGISTER_CONTROLLER_RECORD", 0, _REGISTER_CONTROLLER),
    28: Schema("CLEAR_ELR_RECORD", 0, (Field("topicName", _string),)),
}
"""Schemas by `MetadataRecordType`. All are flexible."""

_VOTER_IDS: Final = _array(_struct(Field("voterId", _int32)))
_VOTER: Final = _struct(
    Field("voterId", _int32),
    Field("voterDirectoryId", _uuid),
    Field("endpoints", _array(_struct(*_LISTENER))),
    Field("kRaftVersionFeature", _struct(*_SUPPORTED)),
)
_LEADER_CHANGED: Final = (Field("leaderId", _int32), Field("voters", _VOTER_IDS), Field("grantingVoters", _VOTER_IDS))

CONTROL_SCHEMAS: Final = {
    LEADER_CHANGE: Schema("LeaderChange", 0, (_VERSION, *_LEADER_CHANGED)),
    SNAPSHOT_HEADER: Schema("SnapshotHeader", 0, (_VERSION, Field("lastContainedLogTimestamp", _int64))),
    SNAPSHOT_FOOTER: Schema("SnapshotFooter", 0, (_VERSION,)),
    KRAFT_VERSION: Schema("KRaftVersion", 0, (_VERSION, Field("kRaftVersion", _int16))),
    KRAFT_VOTERS: Schema("KRaftVoters", 0, (_VERSION, Field("voters", _array(_VOTER)))),
}
"""Schemas by `ControlRecordType`. All are flexible and begin with a version; `ControlRecordUtils` reads only 0."""

_TOPIC_PARTITIONS: Final = _array(_struct(Field("topic", _string), Field("partitions", _int32s)), 6)

SUBSCRIPTION: Final = (
    Field("topics", _array(_string, 2)),
    Field("userData", _user_data),
    Field("ownedPartitions", _TOPIC_PARTITIONS, since=1),
    Field("generationId", _int32, since=2),
    Field("rackId", _nullable_string, since=3),
)
"""`ConsumerProtocolSubscription`: not flexible; a newer version may only add fields."""

ASSIGNMENT: Final = (Field("assignedPartitions", _TOPIC_PARTITIONS), Field("userData", _user_data))
"""`ConsumerProtocolAssignment`: not flexible; a newer version may only add fields."""
