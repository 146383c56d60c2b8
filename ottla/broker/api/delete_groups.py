"""DeleteGroups 0-2: groups without members, with all their offsets. free

Version notes: 2 is flexible. A group that is named twice is deleted once and answered once. Offsets that are pending in
an open transaction go as well: its commit brings none of them back.
"""

from ottla.broker.api import durability
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.costs import ROW_US
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete each group; one row per group."""
    version = request.api_version
    response = codec.response_class(ApiKey.DELETE_GROUPS)
    rows = []
    for group_id in dict.fromkeys(request.body.groups_names):
        error = await broker.groups.removal.delete_group(group_id) or await durability.of_group(broker, group_id)
        rows.append(response.DeletableGroupResult(version=version, group_id=group_id, error_code=error))
        broker.turns.charge(ROW_US)
        await broker.turns.share()
    return response(version=version, throttle_time_ms=0, results=rows)
