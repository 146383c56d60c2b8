"""DescribeGroups 0-5: state and members of groups. free

Version notes: 3 asks for authorized operations (not computed: no authorizer); 4 adds instance ids; 5 is flexible.
A group that does not exist is Dead, as in Kafka below v6.
"""

from typing import Any

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.group.states import GroupState
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

DESCRIBE_GROUPS = 15
_WITH_ASSIGNMENT = GroupState.STABLE


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe each group asked for."""
    version = request.api_version
    rows = [_row(broker, version, group_id) for group_id in request.body.groups]
    return codec.response_class(DESCRIBE_GROUPS)(version=version, throttle_time_ms=0, groups=rows)


def _row(broker: Broker, version: int, group_id: str) -> Any:
    described = codec.response_class(DESCRIBE_GROUPS).DescribedGroup
    error, entry = broker.groups.describe(group_id)
    if error or entry is None:
        return described(
            version=version,
            error_code=error,
            group_id=group_id,
            group_state="" if error else GroupState.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=[],
        )
    group = entry.group
    stable = group.state is _WITH_ASSIGNMENT
    members = [
        described.DescribedGroupMember(
            version=version,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.subscription(group.protocol) if stable else b"",
            member_assignment=member.assignment if stable else b"",
        )
        for member in group.members.values()
    ]
    return described(
        version=version,
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=members,
    )
