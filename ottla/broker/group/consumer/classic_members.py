"""Members of the classic protocol in a consumer group: their JoinGroup, SyncGroup and Heartbeat. pure

Such a member joins and waits for nothing: it gets its epoch as the generation, and its assignment with SyncGroup. It
gives partitions up, and takes others, whenever it joins again. Heartbeat answers REBALANCE_IN_PROGRESS when it has to.

Source: `GroupMetadataManager` (classicGroup...ToConsumerGroup), `ConsumerGroup` of Kafka 4.3.1.
"""

from typing import NamedTuple

from ottla.broker.costs import LOOKUP_US
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.consumer.decisions import Heartbeat
from ottla.broker.group.consumer.members import ConsumerGroupMember, MemberState
from ottla.broker.group.consumer.migration import MigrationPolicy, find_partitions
from ottla.broker.group.consumer.topics import FindTopic
from ottla.broker.group.members import Caller, JoinAsk, Protocols
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics import consumer_protocol
from ottla.protocol.internal_topics.consumer_group_records import ClassicMemberMetadata
from ottla.protocol.steps import Steps


class ClassicMember(NamedTuple):
    """A member of the classic protocol, with what it sent in JoinGroup."""

    member: ConsumerGroupMember
    classic: ClassicMemberMetadata

    @property
    def protocol(self) -> str:
        """The protocol that its reply to JoinGroup names: the first of its own."""
        return self.classic.protocols[0][0]

    @property
    def subscription(self) -> bytes:
        return self.classic.protocols[0][1]


def refuse_join(
    group: ConsumerGroup, ask: JoinAsk, protocols: Protocols, policy: MigrationPolicy, max_size: int
) -> ErrorCode:
    """Return the error of a JoinGroup that no member of the classic protocol may send to this group, else NONE."""
    if policy is MigrationPolicy.DISABLED:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if len(group.members) >= max_size and ask.member_id not in group.members:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if ask.protocol_type != consumer_protocol.TYPE or not group.supports(name for name, _ in protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def read_join(ask: JoinAsk, member_id: str, protocols: Protocols, find_topic: FindTopic) -> Steps[Heartbeat]:
    """Return a JoinGroup as a heartbeat. Raises ProtocolError for a malformed subscription.

    The subscription is that of the first protocol: consumers send the same for all. A dynamic member may join with any
    id, a static one only with its own, or without one.
    """
    subscription = yield from consumer_protocol.read_subscription(protocols[0][1])
    owned = yield from find_partitions(subscription.owned, find_topic)
    is_known = ask.group_instance_id is not None and ask.member_id != ""
    return Heartbeat(
        group_id=ask.group_id,
        member_id=member_id,
        member_epoch=int(is_known),
        instance_id=ask.group_instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=ask.timeouts.rebalance_ms,
        topic_names=subscription.topics,
        topic_regex="",
        server_assignor=None,
        owned=owned,
        client_id=ask.client_id,
        client_host=ask.client_host,
        classic=ClassicMemberMetadata(ask.timeouts.session_ms, protocols),
    )


def find_consumer_holder(group: ConsumerGroup, instance_id: str | None) -> ConsumerGroupMember | None:
    """Return the static member of the consumer protocol whose place a joining member takes; None if there is none."""
    holder = group.members.get(group.static_members.get(instance_id or "", ""))
    return None if holder is None or holder.metadata.classic is not None else holder


def find_classic(group: ConsumerGroup, caller: Caller) -> ClassicMember | ErrorCode:
    """Return the member that sends SyncGroup or Heartbeat, or the error of a caller that is none of this epoch."""
    member_id = caller.member_id
    if caller.group_instance_id is not None:
        holder = group.static_members.get(caller.group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(member_id)
    classic = None if member is None else member.metadata.classic
    if member is None or classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.ILLEGAL_GENERATION if caller.generation != member.epoch else ClassicMember(member, classic)


def refuse_sync(
    group: ConsumerGroup, caller: ClassicMember, protocol_type: str | None, protocol: str | None
) -> ErrorCode:
    """Return the error of a SyncGroup, else NONE. A member that must give partitions up gets the rest first."""
    if protocol_type not in (None, consumer_protocol.TYPE) or protocol not in (None, caller.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member = caller.member
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def must_join(group: ConsumerGroup, member: ConsumerGroupMember) -> Steps[bool]:
    """Return whether a member has to join again: for a new target, or to give up or take partitions."""
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    for topic_id, indexes in [*group.targets.get(member.member_id, {}).items()]:
        assigned = member.current.assigned.get(topic_id, {})
        for index in indexes:
            if index not in assigned and group.partition_epoch(topic_id, index) != -1:
                return False
        yield LOOKUP_US * (1 + len(indexes))
    return True
