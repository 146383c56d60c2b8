"""ConsumerGroupHeartbeat 0-1: a member joins, stays in, or leaves a group of the consumer protocol. free

Version notes: 1 adds regular expressions, and demands a member id from the client (KIP-1082). A topic that a member
names may not exist yet: the member gets its partitions when it does. A member with a new regular expression gets its
partitions with a later heartbeat; it matches the topics that the client may DESCRIBE. As in Kafka the API is
listed also where the protocol is off (`group.version` 0, or `group.coordinator.rebalance.protocols` without
`consumer`), and answers UNSUPPORTED_VERSION then.
"""

import base64
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID, uuid4

from ottla.broker.api import durability
from ottla.broker.api.authorization import DESCRIBE_TOPIC, READ_GROUP, SEE_TOPIC, find_denials
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.group.consumer.decisions import Heartbeat, HeartbeatReply, Refusal, is_blank
from ottla.broker.group.consumer.members import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.consumer_group_records import Assignment, OwnedPartitions

_OFF: Final = Refusal(ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled.")


async def handle(broker: Broker, request: Request) -> Reply:
    """Answer with the member's epoch, and with its assignment if that has changed."""
    body = request.body
    if not broker.groups.consumer_groups.is_enabled:
        return _refuse(request, _OFF)
    if not broker.may(request, READ_GROUP, body.group_id):
        return _refuse(request, Refusal(READ_GROUP.error, None))
    if body.subscribed_topic_names and await find_denials(broker, request, DESCRIBE_TOPIC, body.subscribed_topic_names):
        return _refuse(request, Refusal(DESCRIBE_TOPIC.error, None))
    refusal = _check(broker, request, body)
    if refusal is not None:
        return _refuse(request, refusal)
    answer = await broker.groups.consumer_groups.heartbeat(_heartbeat(request), _may_describe(broker, request))
    if isinstance(answer, HeartbeatReply):
        error = await durability.wait_group_durable(broker, body.group_id)
        if error:
            answer = Refusal(error, None)
    if isinstance(answer, Refusal):
        return _refuse(request, answer)
    return encode_reply(
        request,
        error_code=ErrorCode.NONE,
        error_message=None,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.assigned is None else _assignment(answer.assigned),
    )


def _check(broker: Broker, request: Request, body: Any) -> Refusal | None:
    """Return the refusal of a request that no state of a group makes valid (`throwIf...Invalid` of Kafka)."""
    epoch, version = body.member_epoch, request.api_version
    if is_blank(body.member_id) and (version >= 1 or epoch > 0 or epoch == LEAVE_EPOCH):
        return _invalid("MemberId can't be empty.")
    if is_blank(body.group_id):
        return _invalid("GroupId can't be empty.")
    if body.instance_id is not None and is_blank(body.instance_id):
        return _invalid("InstanceId can't be empty.")
    if body.rack_id is not None and is_blank(body.rack_id):
        return _invalid("RackId can't be empty.")
    if epoch == 0:
        if body.rebalance_timeout_ms == -1:
            return _invalid("RebalanceTimeoutMs must be provided in first request.")
        if body.topic_partitions is None or body.topic_partitions:
            return _invalid("TopicPartitions must be empty when (re-)joining.")
        if body.subscribed_topic_names is None and (version < 1 or body.subscribed_topic_regex is None):
            return _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVE_STATIC_EPOCH and body.instance_id is None:
        return _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        return _invalid("MemberEpoch is invalid.")
    most_bytes = broker.config.group_member_max_metadata_bytes
    if sum(map(len, body.subscribed_topic_names or ())) > most_bytes:
        return _invalid(f"The topic names exceed {most_bytes} characters (group.member.max.metadata.bytes).")
    served = broker.groups.consumer_groups.assignors
    if body.server_assignor is not None and body.server_assignor not in served:
        return Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {body.server_assignor} is not supported. Supported assignors: {', '.join(served)}.",
        )
    return None


def _may_describe(broker: Broker, request: Request) -> Callable[[str], bool]:
    """Return the check of a topic that a regular expression matches. It outlives the request, but not its body."""
    authorizer, session = broker.authorizer, request.session
    if authorizer is None:
        return lambda _name: True
    return lambda name: authorizer.authorize(session, SEE_TOPIC, name)


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _heartbeat(request: Request) -> Heartbeat:
    body, version = request.body, request.api_version
    names = body.subscribed_topic_names
    return Heartbeat(
        group_id=body.group_id,
        member_id=body.member_id or _random_id(uuid4()),
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(names),
        topic_regex=body.subscribed_topic_regex if version >= 1 else None,
        server_assignor=body.server_assignor,
        owned=None if body.topic_partitions is None else _read_topics(body.topic_partitions),
        client_id=request.client_id,
        client_host=f"/{request.session.host}",
    )


def _random_id(value: UUID) -> str:
    """Return an id as Kafka writes one (`Uuid.toString`)."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def _read_topics(topics: Any) -> Assignment:
    owned: dict[bytes, tuple[int, ...]] = {}
    for topic in topics:
        topic_id = b"\0" * 16 if topic.topic_id is None else topic.topic_id.bytes
        owned[topic_id] = owned.get(topic_id, ()) + tuple(topic.partitions)
    return owned


def _assignment(assigned: OwnedPartitions) -> tuple[list[tuple[bytes, list[int]]]]:
    return ([(topic_id, [*indexes]) for topic_id, indexes in assigned.items()],)


def _refuse(request: Request, refusal: Refusal) -> Reply:
    return encode_reply(
        request,
        error_code=refusal.error,
        error_message=refusal.message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )
