"""Heartbeat 0-4: the member lives. free

Version notes: 3 adds static members; 4 is flexible.
"""

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import encoded
from ottla.broker.group.members import Caller


async def handle(broker: Broker, request: Request) -> Reply:
    """Prolong the member's session; REBALANCE_IN_PROGRESS asks it to join again."""
    version, body = request.api_version, request.body
    instance_id = body.group_instance_id if version >= 3 else None
    error = broker.groups.heartbeat(Caller(body.group_id, body.generation_id, body.member_id, instance_id))
    return encoded(request, error_code=error)
