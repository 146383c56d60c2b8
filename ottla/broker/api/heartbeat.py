"""Heartbeat 0-4: the member lives. free

Version notes: 3 adds static members; 4 is flexible.
"""

from ottla.broker.api.context import Broker, Encoded, Reply, Request
from ottla.broker.group.members import Caller
from ottla.protocol import codec
from ottla.protocol.reply_wire import encode_error_reply

HEARTBEAT = 12


async def handle(broker: Broker, request: Request) -> Reply:
    """Prolong the member's session; REBALANCE_IN_PROGRESS asks it to join again."""
    version, body = request.api_version, request.body
    instance_id = body.group_instance_id if version >= 3 else None
    error = broker.groups.heartbeat(Caller(body.group_id, body.generation_id, body.member_id, instance_id))
    if version >= 1:
        return Encoded([encode_error_reply(HEARTBEAT, version, request.correlation_id, error)])
    return codec.response_class(HEARTBEAT)(version=version, error_code=error)
