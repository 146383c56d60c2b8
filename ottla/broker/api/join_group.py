"""JoinGroup 0-9: become a member, and wait for the group's next generation. free

Version notes: 1 adds the rebalance timeout (before, the session timeout serves); 4 tells a new member its id first
(KIP-394); 5 adds static members (KIP-345); 6 is flexible; 7 names the protocol type; 9 can skip the assignment
(KIP-814).
"""

from ipaddress import ip_address

from ottla.broker.api import durability
from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.group.coordinator import JoinAsk
from ottla.broker.group.members import Timeouts
from ottla.protocol import codec

JOIN_GROUP = 11


async def handle(broker: Broker, request: Request) -> Reply:
    """Answer when the generation is known."""
    version, body = request.api_version, request.body
    rebalance_timeout_ms = body.rebalance_timeout_ms if version >= 1 else body.session_timeout_ms
    reply = await broker.groups.join(
        JoinAsk(
            group_id=body.group_id,
            member_id=body.member_id,
            group_instance_id=body.group_instance_id if version >= 5 else None,
            client_id=request.client_id,
            client_host=_client_host(request.peer),
            timeouts=Timeouts(rebalance_timeout_ms, body.session_timeout_ms),
            protocol_type=body.protocol_type,
            protocols=tuple((item.name, bytes(item.metadata)) for item in body.protocols),
            known_id_needed=version >= 4,
            can_skip_assignment=version >= 9,
        )
    )
    reply = reply._replace(error=reply.error or await durability.of_group(broker, body.group_id))
    response = codec.response_class(JOIN_GROUP)
    return response(
        version=version,
        throttle_time_ms=0,
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol if version >= 7 else reply.protocol or "",
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            response.JoinGroupResponseMember(
                version=version, member_id=member_id, group_instance_id=instance_id, metadata=subscription
            )
            for member_id, instance_id, subscription in reply.members
        ],
    )


def _client_host(peer: str) -> str:
    """The address of a peer `host:port` as Java's `InetAddress.toString` shows it."""
    host = peer.rpartition(":")[0]
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return f"/{host}"
    if address.version == 4:
        return f"/{address}"
    if address.ipv4_mapped is not None:
        return f"/{address.ipv4_mapped}"
    return "/" + ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))
