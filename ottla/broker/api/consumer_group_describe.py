"""ConsumerGroupDescribe 0-1: state and members of groups of the consumer protocol. free

Version notes: 1 adds the type of a member (KIP-1099). A group of another type is GROUP_ID_NOT_FOUND: clients then ask
with DescribeGroups. A group with a topic that the client may not describe is answered without its members.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from ottla.broker.api import operations
from ottla.broker.api.authorization import DESCRIBE_GROUP, DESCRIBE_TOPIC, find_denials
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder, ReplyRows
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import LOOKUP_US
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.consumer.members import ConsumerGroupMember
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.consumer_group_records import Assignment, OwnedPartitions

_CONSUMER, _CLASSIC = 1, 0
"""Types of a member."""
_Refused = tuple[ErrorCode, str | None]


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe each requested group once."""
    reply = ReplyBuilder(broker, request)
    groups = reply.rows("groups")
    for group_id in dict.fromkeys(request.body.group_ids):
        group, refused = _find_group(broker, request, group_id)
        if group is not None and await find_denials(broker, request, DESCRIBE_TOPIC, await _topics_of(broker, group)):
            group, refused = None, (DESCRIBE_TOPIC.error, _NOT_DESCRIBED)
        if group is None:
            await groups.add(*refused, group_id, "", 0, 0, "", (), operations.NOT_REQUESTED)
        else:
            await _add_group(broker, request, reply, groups, group)
    return reply.finish(groups=groups)


_NOT_DESCRIBED: Final = "The group has described topic(s) that the client is not authorized to describe."


def _find_group(broker: Broker, request: Request, group_id: str) -> tuple[ConsumerGroup | None, _Refused]:
    if not broker.groups.consumer_groups.is_enabled:
        return None, (ErrorCode.UNSUPPORTED_VERSION, None)
    if not broker.may(request, DESCRIBE_GROUP, group_id):
        return None, (DESCRIBE_GROUP.error, None)
    if not group_id:
        return None, (ErrorCode.INVALID_GROUP_ID, None)
    metadata, error = broker.groups.describe(group_id)
    if error:
        return None, (error, None)
    if metadata is None:
        return None, (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(metadata.group, ConsumerGroup):
        return None, (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    return metadata.group, (ErrorCode.NONE, None)


async def _topics_of(broker: Broker, group: ConsumerGroup) -> Collection[str]:
    """Return the names of the topics in the group's assignments."""
    topics = broker.cluster.topics_by_id
    names: set[str] = set()
    for member in list(group.members.values()):
        current, target = member.current, group.targets.get(member.member_id, {})
        topic_ids = (*current.assigned, *current.pending_revocation, *target)
        names.update(topics[topic_id].name for topic_id in topic_ids if topic_id in topics)
        await broker.turns.spend(LOOKUP_US * (1 + len(topic_ids)))
    return names


async def _add_group(
    broker: Broker, request: Request, reply: ReplyBuilder, groups: ReplyRows, group: ConsumerGroup
) -> None:
    members = reply.rows("groups", "members")
    with_type = request.api_version >= 1
    for member in list(group.members.values()):
        await members.add(*_member_fields(broker, group, member, with_type))
    allowed = operations.NOT_REQUESTED
    if request.body.include_authorized_operations:
        allowed = operations.of_group(broker, request, group.group_id)
    assignor = group.preferred_assignor or broker.groups.consumer_groups.default_assignor
    await groups.add(
        ErrorCode.NONE,
        None,
        group.group_id,
        group.state.value,
        group.epoch,
        group.assignment_epoch,
        assignor,
        members,
        allowed,
    )


def _member_fields(broker: Broker, group: ConsumerGroup, member: ConsumerGroupMember, with_type: bool) -> list[Any]:
    metadata, current = member.metadata, member.current
    owned = _merge(current.assigned, current.pending_revocation)
    fields = [
        member.member_id,
        metadata.instance_id,
        metadata.rack_id,
        current.member_epoch,
        metadata.client_id,
        metadata.client_host,
        metadata.topic_names,
        metadata.topic_regex,
        (_list_partitions(broker, owned),),
        (_list_partitions(broker, group.targets.get(member.member_id, {})),),
    ]
    return [*fields, _CONSUMER if metadata.classic is None else _CLASSIC] if with_type else fields


def _merge(assigned: OwnedPartitions, pending: OwnedPartitions) -> Assignment:
    return {topic_id: (*assigned.get(topic_id, ()), *pending.get(topic_id, ())) for topic_id in {**assigned, **pending}}


def _list_partitions(broker: Broker, assignment: Mapping[bytes, tuple[int, ...]]) -> list[tuple[bytes, str, list[int]]]:
    """Return the partitions by topic, with its name. Topics that are gone are left out."""
    topics = broker.cluster.topics_by_id
    return [
        (topic_id, topics[topic_id].name, [*indexes]) for topic_id, indexes in assignment.items() if topic_id in topics
    ]
