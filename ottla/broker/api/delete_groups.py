"""DeleteGroups 0-2: groups without members, with all their offsets. free

Version notes: 2 is flexible. A group that is named twice is deleted once and answered once. Offsets that are pending in
an open transaction go as well: its commit brings none of them back.
"""

from ottla.broker.api import durability
from ottla.broker.api.context import Broker, Reply, Request
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey

SLICE_MS = 5.0


async def handle(broker: Broker, request: Request) -> Reply:
    """Delete each group; one row per group."""
    version = request.api_version
    response = codec.response_class(ApiKey.DELETE_GROUPS)
    rows = []
    until_ms = broker.clock.monotonic_ms() + SLICE_MS
    for group_id in dict.fromkeys(request.body.groups_names):
        error = broker.groups.removal.delete_group(group_id) or await durability.of_group(broker, group_id)
        rows.append(response.DeletableGroupResult(version=version, group_id=group_id, error_code=error))
        if broker.clock.monotonic_ms() > until_ms:
            await broker.turns.pause()
            until_ms = broker.clock.monotonic_ms() + SLICE_MS
    return response(version=version, throttle_time_ms=0, results=rows)
