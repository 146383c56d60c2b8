"""FindCoordinator 0-6: this broker coordinates every group and every transactional id. free

Version notes: 1 adds the key type; 3 is flexible; 4 asks for several keys; 6 adds share groups (key type 2), which are
not served: INVALID_REQUEST, as for every unknown type. The internal topic behind a coordinator is created when
somebody asks for it first.
"""

from ottla.broker.api.context import Broker, Reply, Request
from ottla.broker.api.reply import ReplyBuilder, encoded
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import ErrorCode

_TOPIC_OF_TYPE = {0: CONSUMER_OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC}


async def handle(broker: Broker, request: Request) -> Reply:
    """Name the coordinator of each key."""
    version, body = request.api_version, request.body
    topic = _TOPIC_OF_TYPE.get(body.key_type if version >= 1 else 0)
    error, message = ErrorCode.NONE, None
    if topic is None:
        error, message = ErrorCode.INVALID_REQUEST, f"Key type {body.key_type} is not served"
    else:
        try:
            await broker.cluster.ensure_internal_topic(topic)
        except OSError as failed:
            error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(failed)
    endpoint = broker.endpoints.get(request.listener_name)
    if endpoint is None and not error:
        error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "This listener is not advertised"
    node_id, host, port = (-1, "", -1) if error or endpoint is None else endpoint[:3]
    place = {
        "node_id": node_id,
        "host": host,
        "port": port,
        "error_code": error,
        "error_message": message if error or version < 4 else "",
    }
    if version < 4:
        return encoded(request, **place)
    reply = ReplyBuilder(broker, request)
    coordinators = reply.rows("coordinators")
    for key in dict.fromkeys(body.coordinator_keys):
        await coordinators.add(key=key, **place)
    return reply.finish(coordinators=coordinators)
