"""ListGroups 0-4: every group of this broker. free

Version notes: 3 is flexible; 4 adds states and a filter by them.
"""

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.costs import REPLY_ROW_US


async def handle(broker: Broker, request: Request) -> Reply:
    """List the groups, filtered by state where the version can."""
    wanted = {state.strip().lower() for state in request.body.states_filter} if request.api_version >= 4 else set()
    error, listed = broker.groups.listed()
    reply = ReplyBuilder(broker, request)
    groups = reply.rows("groups")
    for metadata in listed:
        state = metadata.group.state.value
        if not wanted or state.lower() in wanted:
            await groups.add(metadata.group.group_id, metadata.group.protocol_type or "", state)
        else:
            broker.turns.charge(REPLY_ROW_US)
            await broker.turns.share()
    return reply.finish(error_code=error, groups=groups)
