"""Consumer groups as their coordinator describes them. pure"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from ottla.printable import printable
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.consumer_protocol import read_assignment, read_subscription
from ottla.protocol.steps import Steps, to_the_end

STABLE: Final = "Stable"
DEAD: Final = "Dead"
"""The state of a group that does not exist, or has another protocol than the request."""
CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"
_TYPES: Final = {0: CLASSIC, 1: CONSUMER}

T = TypeVar("T")

Partitions = tuple[tuple[str, int], ...]
"""Partitions, as (topic, index)."""


class GroupMember(NamedTuple):
    """A member of a group.

    `assigned` has the partitions that it owns, also those that it must give up. `target` has those that it is to have;
    in a classic group it is the same. `epoch` is -1 in a classic group, `type` is that of the member's protocol.
    """

    member_id: str
    client_id: str
    instance_id: str | None
    type: str
    epoch: int
    topics: tuple[str, ...]
    regex: str
    assigned: Partitions
    target: Partitions


class Group(NamedTuple):
    """A group of the consumer protocol (`type` is "consumer") or a classic one ("classic").

    `assignor` is the protocol that the members of a classic group have agreed on. The epochs are -1 in a classic group.
    """

    group_id: str
    type: str
    protocol_type: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[GroupMember, ...]

    @property
    def is_stable(self) -> bool:
        """Return whether each member has all partitions of its target, and no others."""
        return self.state == STABLE

    def member(self, client_id: str) -> GroupMember:
        """Return the only member with this client id. LookupError if there is none, or more than one."""
        found = [member for member in self.members if member.client_id == client_id]
        if len(found) != 1:
            raise LookupError(f"{len(found)} members have the client id {printable(client_id)}: {self.describe()}")
        return found[0]

    def describe(self) -> str:
        """Return the group as text, with a line for each member."""
        epochs = f", epoch {self.epoch}, assignment epoch {self.assignment_epoch}" * (self.type == CONSUMER)
        lines = "".join(map(_member_line, self.members))
        return printable(f"{self.group_id}: {self.state}{epochs}, {len(self.members)} members") + lines


def consumer_group(row: Any) -> Group:
    """Return the group of a row of ConsumerGroupDescribe."""
    members = tuple(sorted(map(_consumer_member, row.members), key=_order))
    epochs = row.group_epoch, row.assignment_epoch
    return Group(row.group_id, CONSUMER, CONSUMER, row.group_state, *epochs, row.assignor_name, members)


def classic_group(row: Any) -> Group:
    """Return the group of a row of DescribeGroups."""
    members = tuple(sorted(map(_classic_member, row.members), key=_order))
    return Group(row.group_id, CLASSIC, row.protocol_type, row.group_state, -1, -1, row.protocol_data, members)


def _consumer_member(row: Any) -> GroupMember:
    return GroupMember(
        row.member_id,
        row.client_id,
        row.instance_id,
        _TYPES[getattr(row, "member_type", 1)],
        row.member_epoch,
        tuple(sorted(row.subscribed_topic_names)),
        row.subscribed_topic_regex or "",
        _partitions((topic.topic_name, topic.partitions) for topic in row.assignment.topic_partitions),
        _partitions((topic.topic_name, topic.partitions) for topic in row.target_assignment.topic_partitions),
    )


def _classic_member(row: Any) -> GroupMember:
    subscription = _read(read_subscription, row.member_metadata)
    assignment = _read(read_assignment, row.member_assignment)
    topics = () if subscription is None else tuple(sorted({*subscription.topics}))
    assigned = () if assignment is None else _partitions(assignment.partitions.items())
    return GroupMember(row.member_id, row.client_id, row.group_instance_id, CLASSIC, -1, topics, "", assigned, assigned)


def _read(read: Callable[[bytes], Steps[T]], content: bytes) -> T | None:
    """Return what a member of a classic group sent or got; None for bytes that are not of Kafka's consumers."""
    try:
        return to_the_end(read(bytes(content)))
    except ProtocolError:
        return None


def _partitions(topics: Iterable[tuple[str, Iterable[int]]]) -> Partitions:
    return tuple(sorted((topic, index) for topic, indexes in topics for index in indexes))


def _order(member: GroupMember) -> tuple[str, str]:
    return member.client_id, member.member_id


def _member_line(member: GroupMember) -> str:
    assigned = ", ".join(f"{topic}-{index}" for topic, index in member.assigned)
    epoch = f"epoch {member.epoch}, " if member.type == CONSUMER else ""
    return "\n  " + printable(f"{member.client_id} {member.member_id}: {epoch}{assigned or 'no partitions'}")
