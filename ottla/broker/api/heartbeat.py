"""Heartbeat 0-4: keep the session of a member. free

Version notes: 3 adds static members; 4 is flexible.
"""

from ottla.broker.api.authorization import READ_GROUP
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.group.members import Caller


async def handle(broker: Broker, request: Request) -> Reply:
    """Extend the member's session. REBALANCE_IN_PROGRESS asks it to join again."""
    version, body = request.api_version, request.body
    if not broker.may(request, READ_GROUP, body.group_id):
        return encode_reply(request, error_code=READ_GROUP.error)
    instance_id = body.group_instance_id if version >= 3 else None
    error = await broker.groups.heartbeat(Caller(body.group_id, body.generation_id, body.member_id, instance_id))
    return encode_reply(request, error_code=error)
