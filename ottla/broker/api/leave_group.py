"""LeaveGroup 0-5: one member (0-2) or several (3+) leave. free

Version notes: 3 takes a batch, static members by their instance id; 4 is flexible; 5 adds a reason, which is logged
(KIP-800).
"""

from typing import Final

from ottla.broker.api import durability
from ottla.broker.api.authorization import READ_GROUP
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder, encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.protocol.errors import NO_ERROR

MEMBERS_AT_ONCE: Final = 400


async def handle(broker: Broker, request: Request) -> Reply:
    """Remove each member; an error of the group itself is the error of the request.

    `MEMBERS_AT_ONCE` members leave at a time; the group is looked up again each time, as for successive requests.
    """
    version, body = request.api_version, request.body
    if not broker.may(request, READ_GROUP, body.group_id):
        return encode_reply(request, error_code=READ_GROUP.error)
    if version < 3:
        error, errors = await broker.groups.leave(body.group_id, [(body.member_id, None)])
        return encode_reply(
            request, error_code=error or await durability.wait_group_durable(broker, body.group_id) or errors[0]
        )
    reply = ReplyBuilder(broker, request)
    members = reply.rows("members")
    error = NO_ERROR
    for start in range(0, max(1, len(body.members)), MEMBERS_AT_ONCE):
        some = body.members[start : start + MEMBERS_AT_ONCE]
        who = [(each.member_id, each.group_instance_id) for each in some]
        reason = some[0].reason if version >= 5 and some else None
        error, errors = await broker.groups.leave(body.group_id, who, reason)
        if error:
            break
        await members.extend((*member, its_error) for member, its_error in zip(who, errors, strict=True))
        await broker.turns.yield_if_due()
    error = error or await durability.wait_group_durable(broker, body.group_id)
    return reply.finish(error_code=error, members=members)
