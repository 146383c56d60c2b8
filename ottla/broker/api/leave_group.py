"""LeaveGroup 0-5: one member (0-2) or several (3+) leave. free

Version notes: 3 takes a batch, static members by their instance id; 4 is flexible; 5 adds a reason, which is ignored.
"""

from ottla.broker.api import durability
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import encoded


async def handle(broker: Broker, request: Request) -> Reply:
    """Remove each member; an error of the group itself is the error of the request."""
    version, body = request.api_version, request.body
    who = [(body.member_id, None)]
    if version >= 3:
        who = [(member.member_id, member.group_instance_id) for member in body.members]
    error, errors = broker.groups.leave(body.group_id, who)
    error = error or await durability.of_group(broker, body.group_id)
    if version < 3:
        return encoded(request, error_code=error or errors[0])
    members = [(*member, member_error) for member, member_error in zip(who, errors, strict=False)]
    return encoded(request, error_code=error, members=members)
