"""SyncGroup 0-5: the leader sends the assignment, and every member gets its part. free

Version notes: 3 adds static members; 4 is flexible; 5 names protocol type and protocol, which must match the group's.
"""

from collections.abc import Sequence
from typing import Any

from ottla.broker.api import durability
from ottla.broker.api.authorization import READ_GROUP
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import LOOKUP_US
from ottla.broker.group.members import Caller
from ottla.broker.group.replies import SyncReply
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Answer when the leader's assignment is logged."""
    version, body = request.api_version, request.body
    if version >= 5 and (body.protocol_type is None or body.protocol_name is None):
        return _reply(request, SyncReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if not broker.may(request, READ_GROUP, body.group_id):
        return _reply(request, SyncReply(READ_GROUP.error))
    caller = Caller(body.group_id, body.generation_id, body.member_id, body.group_instance_id if version >= 3 else None)
    protocol = (body.protocol_type, body.protocol_name) if version >= 5 else (None, None)
    sync = broker.groups.sync(caller, protocol, await _assignments(broker, body.assignments))
    del body
    request.forget_body()
    reply = await sync
    error = reply.error or await durability.wait_group_durable(broker, caller.group_id)
    return _reply(request, SyncReply(error) if error else reply)


async def _assignments(broker: Broker, given: Sequence[Any]) -> list[tuple[str, bytes]]:
    """Return the members' assignments. Works in turns, because a client may name any number of members."""
    assignments = []
    for item in given:
        assignments.append((item.member_id, bytes(item.assignment)))
        await broker.turns.spend(LOOKUP_US)
    return assignments


def _reply(request: Request, reply: SyncReply) -> Reply:
    return encode_reply(
        request,
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
