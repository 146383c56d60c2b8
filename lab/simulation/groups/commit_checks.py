"""Check of a commit against the group that it belongs to, in the moment before its coordinator decides. pure"""

from lab.simulation.groups.membership import GroupPartition
from ottla.broker.api.context import Broker
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.consumer.members import ConsumerGroupMember
from ottla.broker.group.members import Caller


def commit_problem(broker: Broker, caller: Caller, row: CommitRow, is_transactional: bool) -> str | None:
    """Return why a commit must be refused; None if it may be accepted."""
    metadata = broker.groups.describe(caller.group_id)[0]
    if metadata is None:
        return None
    group = metadata.group
    title = f"{caller.member_id} of group {caller.group_id} commits {row.topic}-{row.partition} at {caller.generation}"
    if not caller.is_member and (is_transactional or not group.members):
        return None
    if isinstance(group, ClassicGroup):
        is_of_generation = caller.member_id in group.members and caller.generation == group.generation
        return None if is_of_generation else f"{title}, and the generation is {group.generation}"
    member = group.members.get(caller.member_id)
    if member is None:
        return f"{title}, and is no member" if group.members or caller.generation >= 0 else None
    if caller.generation == member.epoch:
        return None
    topic = broker.cluster.topics.get(row.topic)
    since = None if topic is None else partitions_of(member).get((topic.topic_id, row.partition))
    is_owner = since is not None and since <= caller.generation < member.epoch
    return None if is_owner else f"{title}, and is {member}"


def partitions_of(member: ConsumerGroupMember) -> dict[GroupPartition, int]:
    """Return the partitions that a member has or must give up, with the epoch at which it got each."""
    parts = member.current.assigned, member.current.pending_revocation
    return {(topic_id, index): epochs[index] for part in parts for topic_id, epochs in part.items() for index in epochs}
