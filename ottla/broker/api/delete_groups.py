"""DeleteGroups 0-3: delete groups without members, with all their offsets. free

Version notes: 2 is flexible; 3 has a message for the failure of a plugin of streams groups. Ottla has none, and sends
null. A group that is named twice is deleted once and answered once. Pending offsets of an open transaction are
deleted as well: its commit does not restore them.
"""

from ottla.broker.api import durability
from ottla.broker.api.authorization import DELETE_GROUP
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete each group; one row per group."""
    reply = ReplyBuilder(broker, request)
    results = reply.rows("results")
    for group_id in dict.fromkeys(request.body.groups_names):
        error = await _delete(broker, group_id) if broker.may(request, DELETE_GROUP, group_id) else DELETE_GROUP.error
        await broker.turns.yield_if_due()
        await results.add(group_id, error, None)
    return reply.finish(results=results)


async def _delete(broker: Broker, group_id: str) -> ErrorCode:
    error = await broker.groups.deletion.delete_group(group_id)
    return error or await durability.wait_group_durable(broker, group_id)
