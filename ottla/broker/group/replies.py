"""What a group answers to members that wait, and what follows from an event. pure"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.group.lines import Line
from ottla.broker.group.members import Protocols, Timeouts
from ottla.protocol.errors import ErrorCode
from ottla.protocol.offsets_records import GroupValue


class JoinReply(NamedTuple):
    """What JoinGroup answers; `members` is filled for the leader alone: (member id, instance id, subscription)."""

    error: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


class SyncReply(NamedTuple):
    """What SyncGroup answers."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Assigned(NamedTuple):
    """The leader has brought everybody's assignment, by member id: the group is Stable with it."""

    record: GroupValue
    leader_id: str
    assignments: Mapping[str, bytes]


class Restarted(NamedTuple):
    """A static member of a stable group goes on under a new member id, and the group with its generation."""

    record: GroupValue
    old_id: str
    new_id: str
    protocols: Protocols
    timeouts: Timeouts
    can_skip_assignment: bool


class Emptied(NamedTuple):
    """The last member is gone: a generation of nobody."""

    record: GroupValue


Step = Assigned | Restarted | Emptied
"""What a group has decided and must log first: `record` is the group as it will be. `logged` applies it."""


@dataclass(slots=True)
class Outcome:
    """What follows from an event: replies by member id, the step that must be logged, if it came to one, and what is
    told of it."""

    joined: dict[str, JoinReply] = field(default_factory=dict)
    synced: dict[str, SyncReply] = field(default_factory=dict)
    step: Step | None = None
    told: list[Line] = field(default_factory=list, compare=False)

    def tell(self, line: Line) -> "Outcome":
        """This outcome, with a line about it."""
        self.told.append(line)
        return self

    def add(self, more: "Outcome") -> "Outcome":
        """This outcome, with what else follows."""
        self.joined |= more.joined
        self.synced |= more.synced
        self.step = more.step or self.step
        self.told += more.told
        return self
