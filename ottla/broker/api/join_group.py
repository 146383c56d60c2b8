"""JoinGroup 0-9: become a member, and wait for the group's next generation. free

Version notes: 1 adds the rebalance timeout (before, the session timeout is used); 4 returns a new member's id first
(KIP-394); 5 adds static members (KIP-345); 6 is flexible; 7 names the protocol type; 9 can skip the assignment
(KIP-814).
"""

from ipaddress import IPv4Address, ip_address

from ottla.broker.api import durability
from ottla.broker.api.authorization import READ_GROUP
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.group.members import JoinAsk, Timeouts
from ottla.broker.group.replies import JoinReply


async def handle(broker: Broker, request: Request) -> Reply:
    """Answer when the generation is known."""
    group_id = request.body.group_id
    if not broker.may(request, READ_GROUP, group_id):
        return await _reply(broker, request, JoinReply(READ_GROUP.error))
    join = broker.groups.join(_read_request(request))
    request.forget_body()
    joined = await join
    error = joined.error or await durability.wait_group_durable(broker, group_id)
    return await _reply(broker, request, joined._replace(error=error))


async def _reply(broker: Broker, request: Request, joined: JoinReply) -> Reply:
    reply = ReplyBuilder(broker, request)
    members = reply.rows("members")
    for member_id, instance_id, subscription in joined.members:
        await members.add(member_id, instance_id, subscription)
    return reply.finish(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol if request.api_version >= 7 else joined.protocol or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=members,
    )


def _read_request(request: Request) -> JoinAsk:
    version, body = request.api_version, request.body
    rebalance_timeout_ms = body.rebalance_timeout_ms if version >= 1 else body.session_timeout_ms
    return JoinAsk(
        group_id=body.group_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id if version >= 5 else None,
        client_id=request.client_id,
        client_host=_client_host(request.peer),
        timeouts=Timeouts(rebalance_timeout_ms, body.session_timeout_ms),
        protocol_type=body.protocol_type,
        protocols=((item.name, bytes(item.metadata)) for item in body.protocols),
        known_id_needed=version >= 4,
        can_skip_assignment=version >= 9,
        reason=body.reason if version >= 8 else None,
    )


def _client_host(peer: str) -> str:
    """Return the address of a peer `host:port` as Java's `InetAddress.toString` formats it."""
    host = peer.rpartition(":")[0]
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return f"/{host}"
    if isinstance(address, IPv4Address):
        return f"/{address}"
    if address.ipv4_mapped is not None:
        return f"/{address.ipv4_mapped}"
    return "/" + ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))
