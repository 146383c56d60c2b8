"""ListGroups 0-4: every group of this broker. free

Version notes: 3 is flexible; 4 adds states and a filter by them.
"""

from ottla.broker.api.context import Broker, Reply, Request
from ottla.protocol import codec

LIST_GROUPS = 16


async def handle(broker: Broker, request: Request) -> Reply:
    """List the groups, filtered by state where the version can."""
    version = request.api_version
    response = codec.response_class(LIST_GROUPS)
    wanted = {state.strip().lower() for state in request.body.states_filter} if version >= 4 else set()
    error, entries = broker.groups.listed()
    rows = [
        response.ListedGroup(
            version=version,
            group_id=entry.group.group_id,
            protocol_type=entry.group.protocol_type or "",
            group_state=entry.group.state.value,
        )
        for entry in entries
        if not wanted or entry.group.state.value.lower() in wanted
    ]
    return response(version=version, throttle_time_ms=0, error_code=error, groups=rows)
