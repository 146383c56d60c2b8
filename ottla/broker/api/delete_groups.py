"""DeleteGroups 0-2: groups without members, with all their offsets. free

Version notes: 2 is flexible. A group that is named twice is deleted once and answered once. Offsets that are pending in
an open transaction go as well: its commit brings none of them back.
"""

from ottla.broker.api import durability
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import ReplyBuilder


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete each group; one row per group."""
    reply = ReplyBuilder(broker, request)
    results = reply.rows("results")
    for group_id in dict.fromkeys(request.body.groups_names):
        error = await broker.groups.deletion.delete_group(group_id) or await durability.wait_group_durable(
            broker, group_id
        )
        await broker.turns.share()
        await results.add(group_id, error)
    return reply.finish(results=results)
