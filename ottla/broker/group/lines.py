"""Log lines about groups at INFO: members that join or leave, the reasons, and rebalances. pure

A line is a text and its values by name. Clients choose the names, so each name is cut, and only some of many members
are named.

Source of the lines: `GroupMetadataManager` of Kafka 4.3.1 (`log.info`); KIP-800 for the reasons that clients give.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from ottla.broker.group.members import Member, Roster
from ottla.broker.group.states import ClassicGroupState

Line = tuple[str, dict[str, object]]

MOST_NAMED: Final = 5


class LoggedGroup(Protocol):
    """A classic group, as far as log lines name it. Its module imports this one."""

    group_id: str
    generation: int
    state: ClassicGroupState
    roster: Roster

    @property
    def members(self) -> dict[str, Member]: ...


def preparing(group: LoggedGroup, why: str) -> Line:
    text = (
        "Group %(group).100s: preparing to rebalance in state %(state)s with old generation %(generation)d "
        "(reason: %(why)s)"
    )
    return _line(group, text, state=group.state.value, why=why)


def describe_generation(group: LoggedGroup) -> Line:
    return _line(
        group,
        "Group %(group).100s: stabilized generation %(generation)d with %(members)d members",
        members=len(group.members),
    )


def describe_assignment(group: LoggedGroup) -> Line:
    text = (
        "Group %(group).100s: assignment of generation %(generation)d received from leader %(leader).100s for "
        "%(members)d members, %(static)d of which are static"
    )
    roster = group.roster
    return _line(group, text, leader=roster.leader, members=len(group.members), static=len(roster.static))


def describe_empty_generation(group: LoggedGroup) -> Line:
    return _line(group, "Group %(group).100s: generation %(generation)d is empty")


def describe_restart(group: LoggedGroup, member: Member, old_id: str) -> Line:
    text = "Group %(group).100s: %(what)s in generation %(generation)d, without a rebalance"
    return _line(group, text, what=describe_replacement(member, old_id))


def describe_event(group: LoggedGroup, what: str) -> Line:
    return _line(group, "Group %(group).100s: %(what)s", what=what)


def _line(group: LoggedGroup, text: str, **values: object) -> Line:
    return text, {
        "group": group.group_id,
        "generation": group.generation,
        **values,
    }


# -- reasons


def describe_new_member(member: Member, client_reason: str | None) -> str:
    return f"adding new member {_member_text(member)}{_reason_suffix(client_reason)}"


def joined_again(member: Member, leads: bool, changed: bool, client_reason: str | None) -> str:
    what = " with other protocols" if changed else ""
    return f"{'leader' if leads else 'member'} {_member_text(member)} joins again{what}{_reason_suffix(client_reason)}"


def describe_replacement(member: Member, old_id: str) -> str:
    return f"member {_member_text(member)} takes the place of {old_id:.100}"


def left(member_ids: Sequence[str], client_reason: str | None) -> str:
    return f"{_some(member_ids)} left on LeaveGroup{_reason_suffix(client_reason)}"


def describe_silence(member_ids: Sequence[str]) -> str:
    return f"{_some(member_ids)} sent no heartbeat in time, and failed"


def late_to_join(member_ids: Sequence[str]) -> str:
    return f"removed {_some(member_ids)}, which did not join again in time"


def late_to_sync(member_ids: Sequence[str]) -> str:
    return f"removed {_some(member_ids)}, which did not send SyncGroup in time"


def _some(member_ids: Sequence[str]) -> str:
    named = ", ".join(f"{each:.100}" for each in member_ids[:MOST_NAMED])
    more = f" and {len(member_ids) - MOST_NAMED} more" if len(member_ids) > MOST_NAMED else ""
    return f"{'members' if len(member_ids) > 1 else 'member'} {named}{more}"


def _member_text(member: Member) -> str:
    instance = "" if member.group_instance_id is None else f" with instance id {member.group_instance_id:.100}"
    return f"{member.member_id:.100} of {member.client_host}{instance}"


def _reason_suffix(client_reason: str | None) -> str:
    return f"; client reason: {client_reason:.100}" if client_reason else ""
