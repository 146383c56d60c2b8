"""ListGroups 0-5: every group of this broker. free

Version notes: 3 is flexible; 4 adds states and a filter by them; 5 does so with types (KIP-848). A client that may not
describe the cluster gets only the groups that it may describe.
"""

from ottla.broker.api.authorization import SEE_CLUSTER, SEE_GROUP
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import REPLY_ROW_US
from ottla.broker.group.consumer.consumer_group import ConsumerGroup


async def handle(broker: Broker, request: Request) -> Reply:
    """List the groups, filtered by state where the version can."""
    states = {state.strip().lower() for state in request.body.states_filter} if request.api_version >= 4 else set()
    types = {kind.lower() for kind in request.body.types_filter} if request.api_version >= 5 else set()
    sees_all = broker.may(request, SEE_CLUSTER)
    error, listed = broker.groups.list_groups()
    reply = ReplyBuilder(broker, request)
    groups = reply.rows("groups")
    for metadata in listed:
        group = metadata.group
        state, group_id = group.state.value, group.group_id
        kind = "consumer" if isinstance(group, ConsumerGroup) else "classic"
        is_chosen = (not states or state.lower() in states) and (not types or kind in types)
        if is_chosen and (sees_all or broker.may(request, SEE_GROUP, group_id)):
            await groups.add(
                group_id=group_id, protocol_type=group.protocol_type or "", group_state=state, group_type=kind
            )
        else:
            await broker.turns.spend(REPLY_ROW_US)
    return reply.finish(error_code=error, groups=groups)
