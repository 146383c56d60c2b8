"""What a group answers to members that wait, and what follows from an event. pure"""

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode


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


@dataclass(slots=True)
class Outcome:
    """What follows from an event: replies by member id, and whether the group's record must be logged.

    With `save`, the replies are due once the record is in the log: `Group.logged` has the last word on them.
    """

    joined: dict[str, JoinReply] = field(default_factory=dict)
    synced: dict[str, SyncReply] = field(default_factory=dict)
    save: bool = False

    def add(self, more: "Outcome") -> "Outcome":
        """This outcome, with what else follows."""
        self.joined |= more.joined
        self.synced |= more.synced
        self.save = self.save or more.save
        return self
