"""Replies of a group to waiting members, and the outcome of an event. pure"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.group.lines import Line
from ottla.broker.group.members import Protocols, Timeouts
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.offsets_records import GroupValue


class JoinReply(NamedTuple):
    """The reply to JoinGroup; `members` is only for the leader: (member id, instance id, subscription)."""

    error: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


class SyncReply(NamedTuple):
    """The reply to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Assigned(NamedTuple):
    """The leader has sent the assignments, by member id: the group becomes Stable."""

    record: GroupValue
    leader_id: str
    assignments: Mapping[str, bytes]


class Restarted(NamedTuple):
    """A static member of a stable group gets a new member id; the generation stays."""

    record: GroupValue
    old_id: str
    new_id: str
    protocols: Protocols
    timeouts: Timeouts
    can_skip_assignment: bool


class Emptied(NamedTuple):
    """The last member has left: the next generation has no members."""

    record: GroupValue


Step = Assigned | Restarted | Emptied
"""A decision of a group that must be logged first: `record` is the group after it. `ClassicGroup.apply_step` applies
it."""


@dataclass(slots=True)
class Outcome:
    """The outcome of an event: replies by member id, the step to log, if any, and lines for the log."""

    joined: dict[str, JoinReply] = field(default_factory=dict)
    synced: dict[str, SyncReply] = field(default_factory=dict)
    step: Step | None = None
    lines: list[Line] = field(default_factory=list, compare=False)

    def add_line(self, line: Line) -> "Outcome":
        """Add a line for the log, and return this outcome."""
        self.lines.append(line)
        return self

    def add(self, more: "Outcome") -> "Outcome":
        """Add another outcome, and return this one."""
        self.joined |= more.joined
        self.synced |= more.synced
        self.step = more.step or self.step
        self.lines += more.lines
        return self
