"""DescribeGroups 0-5: state and members of groups. free

Version notes: 3 asks for authorized operations (all of them: there is no authorizer); 4 adds instance ids; 5 is
flexible. A group that does not exist is Dead, as in Kafka below v6.
"""

from typing import Any

from ottla.broker.api import operations
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.group.states import GroupState
from ottla.broker.group.store import Entry
from ottla.protocol import codec

DESCRIBE_GROUPS = 15


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe each group asked for."""
    version = request.api_version
    rows = [_row(broker, request, group_id) for group_id in request.body.groups]
    return codec.response_class(DESCRIBE_GROUPS)(version=version, throttle_time_ms=0, groups=rows)


def _row(broker: Broker, request: Request, group_id: str) -> Any:
    version = request.api_version
    described = codec.response_class(DESCRIBE_GROUPS).DescribedGroup
    entry, error = broker.groups.describe(group_id)
    row = described(
        version=version,
        error_code=error,
        group_id=group_id,
        group_state="" if error else GroupState.DEAD.value,
        protocol_type="",
        protocol_data="",
        members=[],
    )
    if version >= 3 and request.body.include_authorized_operations and not error:
        row.authorized_operations = operations.OF_GROUP
    if entry is not None:
        group = entry.group
        row.group_state = group.state.value
        row.protocol_type = group.protocol_type or ""
        row.protocol_data = (group.protocol or "") if group.state is GroupState.STABLE else ""
        row.members = _members(described.DescribedGroupMember, version, entry)
    return row


def _members(row: Any, version: int, entry: Entry) -> list[Any]:
    """Subscriptions are shown in a stable group only: before, the protocol is not settled."""
    group = entry.group
    stable = group.state is GroupState.STABLE
    return [
        row(
            version=version,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.subscription(group.protocol) if stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]
