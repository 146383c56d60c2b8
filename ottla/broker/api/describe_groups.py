"""DescribeGroups 0-6: state and members of groups. free

Version notes: 3 asks for authorized operations; 4 adds instance ids; 5 is
flexible; 6 answers GROUP_ID_NOT_FOUND for a group that does not exist, or that is not a classic group. Below, it is
Dead without an error, as in Kafka.
"""

from ottla.broker.api import operations
from ottla.broker.api.authorization import DESCRIBE_GROUP
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder, ReplyRows
from ottla.broker.api.request import Reply, Request
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.states import ClassicGroupState
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe each requested group once."""
    asked_for_operations = request.api_version >= 3 and request.body.include_authorized_operations
    reply = ReplyBuilder(broker, request)
    groups = reply.rows("groups")
    for group_id in dict.fromkeys(request.body.groups):
        if not broker.may(request, DESCRIBE_GROUP, group_id):
            await groups.add(DESCRIBE_GROUP.error, None, group_id, "", "", "", (), operations.NOT_REQUESTED)
            continue
        metadata, error = broker.groups.describe(group_id)
        allowed = operations.NOT_REQUESTED
        if asked_for_operations and not error:
            allowed = operations.of_group(broker, request, group_id)
        group = None if metadata is None else metadata.group
        if not isinstance(group, ClassicGroup):
            dead, message = "" if error else ClassicGroupState.DEAD.value, None
            if not error and request.api_version >= 6:
                error = ErrorCode.GROUP_ID_NOT_FOUND
                message = f"Group {group_id} {'not found' if group is None else 'is not a classic group'}."
                allowed = operations.NOT_REQUESTED
            await groups.add(error, message, group_id, dead, "", "", (), allowed)
        else:
            await _add_group(reply, groups, group, allowed)
    return reply.finish(groups=groups)


async def _add_group(reply: ReplyBuilder, groups: ReplyRows, group: ClassicGroup, allowed: int) -> None:
    """Add a group. Subscriptions are shown only in a stable group, because before that the protocol is not chosen."""
    state, kind, protocol = group.state, group.protocol_type or "", group.protocol
    shown = (protocol or "") if state is ClassicGroupState.STABLE else ""
    members = reply.rows("groups", "members")
    for member in list(group.members.values()):
        await members.add(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.subscription(protocol) if state is ClassicGroupState.STABLE else b"",
            member.assignment,
        )
    await groups.add(ErrorCode.NONE, None, group.group_id, state.value, kind, shown, members, allowed)
