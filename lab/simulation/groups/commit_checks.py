"""Checks of each commit: whether a group must refuse it, and whether it takes an offset back. free"""

from collections import Counter
from collections.abc import Iterator, Sequence

from lab.simulation.groups.membership import GroupPartition, Membership
from ottla.broker.api.context import Broker
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.consumer.members import ConsumerGroupMember
from ottla.broker.group.members import Caller


def find_commit_problem(broker: Broker, caller: Caller, row: CommitRow, is_transactional: bool) -> str | None:
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
    since = None if topic is None else map_partitions(member).get((topic.topic_id, row.partition))
    is_owner = since is not None and since <= caller.generation < member.epoch
    return None if is_owner else f"{title}, and is {member}"


def map_partitions(member: ConsumerGroupMember) -> dict[GroupPartition, int]:
    """Return the partitions that a member has or must give up, with the epoch at which it got each."""
    parts = member.current.assigned, member.current.pending_revocation
    return {(topic_id, index): epochs[index] for part in parts for topic_id, epochs in part.items() for index in epochs}


class CommittedOffsets:
    """The offsets that groups have committed. No other member may take them back."""

    def __init__(self, met: Counter[str]) -> None:
        self._met = met
        self.committed: dict[tuple[str, str, int], tuple[bytes, int, str]] = {}
        """Topic id, offset and member id of the last commit of a group in a partition that counts for others."""
        self.lost: set[tuple[Caller, int]] = set()
        """The callers and offsets of commits whose answer was lost: these commits may arrive late."""

    def follow(self, caller: Caller, row: CommitRow, clients: Sequence[Membership]) -> Iterator[str]:
        """Check that an accepted commit does not take back the offset of another member, which committed later.

        A client may give up partitions without a new epoch. A commit of this epoch that it has given up, and that
        arrives later, counts in Kafka as well. An overtaken client may commit for a partition that another member
        holds, which then goes on from its own position. `clients` are the members of the group.
        """
        if row.topic_id is None:
            return
        place = caller.group_id, row.topic, row.partition
        topic_id, offset, member_id = self.committed.get(place, (b"", 0, ""))
        if topic_id != row.topic_id:
            offset, member_id = 0, ""
        key = row.topic_id, row.partition
        member = next((each for each in clients if each.member_id == caller.member_id), None)
        is_overtaken = member is not None and member.is_overtaken
        if is_overtaken and row.offset > offset and any(key in each.owned for each in clients if each is not member):
            self._met["offsets moved on by members of a withdrawn assignment"] += 1
            self.committed[place] = row.topic_id, offset, member_id
            return
        self.committed[place] = row.topic_id, row.offset, caller.member_id
        if row.offset >= offset or caller.member_id == member_id:
            return
        if (caller, row.offset) in self.lost:
            self._met["offsets taken back by late commits"] += 1
        elif is_overtaken:
            self._met["offsets taken back by members of a withdrawn assignment"] += 1
        elif member is not None and key in member.owned_by_name:
            self._met["offsets taken back in a topic of the same name"] += 1
        else:
            yield (
                f"offset-went-back: {caller.member_id} of group {caller.group_id} commits {row.offset} in "
                f"{row.topic}-{row.partition} at {caller.generation}, and {member_id} has committed {offset}"
            )
