"""ConsumerGroupHeartbeat 0-1: always answered UNSUPPORTED_VERSION. free

The consumer protocol (KIP-848) is not served. Kafka lists this API also where it is disabled (`group.version` 0, or
`group.coordinator.rebalance.protocols` without it), and answers UNSUPPORTED_VERSION (`KafkaApis`): Java's consumer then
throws and librdkafka has a fatal error. If the API is not listed, librdkafka waits for it and reports nothing.
"""

import logging
from typing import Final

from ottla.broker.api.context import Api, Broker, Reply, Request
from ottla.broker.api.reply import encode_reply
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

REMEDY: Final = "the consumer protocol (KIP-848) is not served: set group.protocol=classic"


async def handle(broker: Broker, request: Request) -> Reply:
    """Answer UNSUPPORTED_VERSION to every request."""
    log.warning(
        "Refused ConsumerGroupHeartbeat of group %(group).100s from client %(client_id).100s at %(peer)s: %(remedy)s",
        request.about | {"group": request.body.group_id, "remedy": REMEDY},
    )
    return encode_reply(
        request,
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message=REMEDY,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )


API: Final = Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, handle, ())
