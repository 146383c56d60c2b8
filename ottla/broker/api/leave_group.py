"""LeaveGroup 0-5: one member (0-2) or several (3+) leave. free

Version notes: 3 takes a batch, static members by their instance id; 4 is flexible; 5 adds a reason, which is ignored.
"""

from ottla.broker.api.context import Broker, Reply, Request
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

LEAVE_GROUP = 13
_WHOLE_REQUEST = (
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


async def handle(broker: Broker, request: Request) -> Reply:
    """Remove each member; an error of the group itself is the error of the request."""
    version, body = request.api_version, request.body
    response = codec.response_class(LEAVE_GROUP)
    if version < 3:
        error, _member_id = broker.groups.leave(body.group_id, body.member_id, None)
        return response(version=version, throttle_time_ms=0, error_code=error)
    rows = []
    for member in body.members:
        error, member_id = broker.groups.leave(body.group_id, member.member_id, member.group_instance_id)
        if error in _WHOLE_REQUEST:
            return response(version=version, throttle_time_ms=0, error_code=error, members=[])
        rows.append(
            response.MemberResponse(
                version=version,
                member_id=member_id,
                group_instance_id=member.group_instance_id,
                error_code=error,
            )
        )
    return response(version=version, throttle_time_ms=0, error_code=ErrorCode.NONE, members=rows)
