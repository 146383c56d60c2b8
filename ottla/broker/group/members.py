"""The members of a classic group and the protocol they agree on. pure"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.protocol.state_records import GroupMember

Protocols = tuple[tuple[str, bytes], ...]
"""(assignor name, subscription) in the member's order of preference."""


@dataclass(slots=True)
class Member:
    """One member. The last four fields live in memory only; a loaded member starts with a fresh session."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    session_deadline_ms: float = field(default=0.0)
    awaiting_join: bool = False
    awaiting_sync: bool = False
    synced: bool = False

    def subscription(self, protocol: str | None) -> bytes:
        """The metadata that the member gave for `protocol`; empty when it has none."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def touch(self, now_ms: float) -> None:
        """The member gave a sign of life."""
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def saved(self, protocol: str | None) -> GroupMember:
        """What the group's record keeps of the member."""
        return GroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.subscription(protocol),
            assignment=self.assignment,
        )


class Caller(NamedTuple):
    """Who in a group calls; generation -1 and an empty member id: nobody in particular."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        return self.generation >= 0 or self.member_id != "" or self.group_instance_id is not None


def common_protocols(members: Iterable[Member]) -> set[str]:
    """The assignors that every member knows."""
    known = [{name for name, _metadata in member.protocols} for member in members]
    return set.intersection(*known) if known else set()


def choose_protocol(members: Iterable[Member]) -> str:
    """The one with most votes: each member's is the first of its own that all know (`ClassicGroup.selectProtocol`)."""
    everyone = list(members)
    candidates = common_protocols(everyone)
    votes = Counter(next(name for name, _metadata in member.protocols if name in candidates) for member in everyone)
    return max(votes, key=lambda name: votes[name])
