"""FindCoordinator 0-6: the leader of the partition that holds a group or a transactional id. free

Version notes: 1 adds the key type; 3 is flexible; 4 asks for several keys; 6 adds share groups (key type 2), which are
not served: INVALID_REQUEST, as for every unknown type. The internal topic of a coordinator is created at the first
authorized request.
"""

from typing import Any, Final

from ottla.broker.api.authorization import CLUSTER_ACTION, DESCRIBE_GROUP, DESCRIBE_ID, MESSAGES, find_denials
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import ReplyBuilder, encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import ErrorCode

FIRST_VERSION_WITH_KEYS: Final = 4
FIRST_VERSION_WITH_SHARE: Final = 6
SHARE: Final = 2
NO_ERROR_MESSAGE: Final = "NONE"
_PLACE: Final = ("node_id", "host", "port", "error_code", "error_message")
_OF_TYPE: Final = {0: (CONSUMER_OFFSETS_TOPIC, DESCRIBE_GROUP), 1: (TRANSACTION_STATE_TOPIC, DESCRIBE_ID)}


async def handle(broker: Broker, request: Request) -> Reply:
    """Name the coordinator of each key."""
    version, body = request.api_version, request.body
    keys = dict.fromkeys(body.coordinator_keys if version >= FIRST_VERSION_WITH_KEYS else (body.key,))
    topic, need = _OF_TYPE.get(body.key_type if version >= 1 else 0, ("", None))
    refused = await find_denials(broker, request, need, keys) if need is not None else ()
    unserved = await _refuse_keys(broker, request, topic) if len(refused) < len(keys) else {}
    if version < FIRST_VERSION_WITH_KEYS:
        if need is not None and refused:
            return encode_reply(request, **_nowhere(need.error, MESSAGES[need.error]))
        return encode_reply(request, **(unserved or _place(broker, request, topic, body.key)))
    reply = ReplyBuilder(broker, request)
    coordinators = reply.rows("coordinators")
    for key in keys:
        is_denied = need is not None and key in refused
        denied = _nowhere(need.error, "") if need is not None and is_denied else {}
        await coordinators.add(key=key, **(denied or unserved or _place(broker, request, topic, key)))
    return reply.finish(coordinators=coordinators)


async def _refuse_keys(broker: Broker, request: Request, topic: str) -> dict[str, Any]:
    """Return the answer for every key if no coordinator can be named; else create the internal topic."""
    version, key_type = request.api_version, request.body.key_type
    if not topic:
        if key_type == SHARE and version >= FIRST_VERSION_WITH_SHARE and not broker.may(request, CLUSTER_ACTION):
            return _nowhere(CLUSTER_ACTION.error, MESSAGES[CLUSTER_ACTION.error])
        return _nowhere(ErrorCode.INVALID_REQUEST, f"Key type {key_type} is not served")
    try:
        await broker.cluster.ensure_internal_topic(topic)
    except OSError as failed:
        return _nowhere(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(failed))
    return {}


def _place(broker: Broker, request: Request, topic: str, key: str) -> dict[str, Any]:
    """Return the address of the coordinator of a key whose state is in `topic`."""
    coordinator = broker.find_coordinator(topic, key)
    if coordinator is None:
        return _nowhere(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The partition of the coordinator has no leader")
    endpoint = coordinator.endpoints.get(request.session.listener_name)
    if endpoint is None:
        return _nowhere(ErrorCode.COORDINATOR_NOT_AVAILABLE, "This listener is not advertised")
    message = NO_ERROR_MESSAGE if request.api_version < FIRST_VERSION_WITH_KEYS else ""
    return dict(zip(_PLACE, (*endpoint[:3], ErrorCode.NONE, message), strict=True))


def _nowhere(error: ErrorCode, message: str) -> dict[str, Any]:
    return dict(zip(_PLACE, (-1, "", -1, error, message), strict=True))
