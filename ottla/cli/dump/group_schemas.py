"""Schemas of the records of consumer groups of the new protocol in `__consumer_offsets` (KIP-848). pure

Source: `ConsumerGroup*Key.json`, `ConsumerGroup*Value.json` of the group coordinator of Kafka 4.3.1.
"""

from typing import Final, NamedTuple

from ottla.cli.dump.schemas import (
    Field,
    Json,
    array_of,
    nullable_struct_of,
    read_bytes,
    read_int8,
    read_int32,
    read_int32s,
    read_int64,
    read_nullable_int32s,
    read_nullable_string,
    read_string,
    read_uuid,
    struct_of,
)
from ottla.protocol.internal_topics.consumer_group_records import ConsumerGroupRecordType


class GroupRecordSchema(NamedTuple):
    """A record: the name of the second field of its key, if it has one, and the fields of its value."""

    name_field: str | None
    fields: tuple[Field, ...]


_PROTOCOL: Final = struct_of(Field("name", read_string), Field("metadata", read_bytes))
_CLASSIC_MEMBER: Final = nullable_struct_of(
    Field("sessionTimeoutMs", read_int32), Field("supportedProtocols", array_of(_PROTOCOL, 3))
)
_NO_CLASSIC_MEMBER: Final[Json] = {"sessionTimeoutMs": 0, "supportedProtocols": []}
_PARTITION: Final = struct_of(Field("partition", read_int32), Field("racks", array_of(read_string)))
_TOPIC: Final = struct_of(
    Field("topicId", read_uuid),
    Field("topicName", read_string),
    Field("numPartitions", read_int32),
    Field("partitionMetadata", array_of(_PARTITION, 6)),
)
_TARGET: Final = struct_of(Field("topicId", read_uuid), Field("partitions", read_int32s))
_OWNED: Final = struct_of(
    Field("topicId", read_uuid),
    Field("partitions", read_int32s),
    Field("assignmentEpochs", read_nullable_int32s, tag=0, default=[]),
)

CONSUMER_GROUP_SCHEMAS: Final = {
    ConsumerGroupRecordType.METADATA: GroupRecordSchema(
        None, (Field("epoch", read_int32), Field("metadataHash", read_int64, tag=0, default=0))
    ),
    ConsumerGroupRecordType.PARTITION_METADATA: GroupRecordSchema(None, (Field("topics", array_of(_TOPIC, 23)),)),
    ConsumerGroupRecordType.MEMBER_METADATA: GroupRecordSchema(
        "memberId",
        (
            Field("instanceId", read_nullable_string),
            Field("rackId", read_nullable_string),
            Field("clientId", read_string),
            Field("clientHost", read_string),
            Field("subscribedTopicNames", array_of(read_string)),
            Field("subscribedTopicRegex", read_nullable_string),
            Field("rebalanceTimeoutMs", read_int32),
            Field("serverAssignor", read_nullable_string),
            Field("classicMemberMetadata", _CLASSIC_MEMBER, tag=0, default=_NO_CLASSIC_MEMBER),
        ),
    ),
    ConsumerGroupRecordType.TARGET_ASSIGNMENT_METADATA: GroupRecordSchema(
        None, (Field("assignmentEpoch", read_int32), Field("assignmentTimestamp", read_int64, tag=0, default=0))
    ),
    ConsumerGroupRecordType.TARGET_ASSIGNMENT_MEMBER: GroupRecordSchema(
        "memberId", (Field("topicPartitions", array_of(_TARGET, 18)),)
    ),
    ConsumerGroupRecordType.CURRENT_MEMBER_ASSIGNMENT: GroupRecordSchema(
        "memberId",
        (
            Field("memberEpoch", read_int32),
            Field("previousMemberEpoch", read_int32),
            Field("state", read_int8),
            Field("assignedPartitions", array_of(_OWNED, 18)),
            Field("partitionsPendingRevocation", array_of(_OWNED, 18)),
        ),
    ),
    ConsumerGroupRecordType.REGULAR_EXPRESSION: GroupRecordSchema(
        "regularExpression",
        (Field("topics", array_of(read_string)), Field("version", read_int64), Field("timestamp", read_int64)),
    ),
}
"""The schemas by type of record."""
