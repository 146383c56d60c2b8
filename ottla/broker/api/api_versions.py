"""ApiVersions 0-5: the served APIs and the finalized features. free

Version notes: 3 is flexible, names the client software and carries features; 4 lists supported features whose minimum
is 0; 5 names the cluster and the node that the client means. Others answer REBOOTSTRAP_REQUIRED, except before a login
(KIP-1242, of Kafka 4.4). A version above the range is answered by `dispatch.py` with body v0 and
UNSUPPORTED_VERSION (KIP-511). Produce is listed from 0 although 0-2 are refused, because librdkafka derives features
from it (KAFKA-18659).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply
from ottla.broker.api.request import Encoded, Reply, Request
from ottla.broker.cluster.features import SUPPORTED_FEATURES
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

NO_NODE: Final = -1
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


async def handle(broker: Broker, request: Request) -> Reply:
    """List the served APIs; INVALID_REQUEST for a malformed software name or version, or half a cluster and node."""
    authenticator = request.session.authenticator
    reply = answer(broker, request, broker.served_apis, broker.cluster.image.features)
    is_login = authenticator is not None and authenticator.is_login(ApiKey.API_VERSIONS)
    if not (reply.error_code or is_login) and _means_another(broker, request):
        return encode_reply(request, error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    if authenticator is not None and not reply.error_code:
        authenticator.on_api_versions()
    return reply


def answer(
    broker: Broker, request: Request, served: Sequence[tuple[int, int, int]], finalized: Mapping[str, int]
) -> Encoded:
    """Return the reply that lists these APIs, as (key, lowest, highest version), and these feature levels."""
    version, body = request.api_version, request.body
    is_named = _SOFTWARE.fullmatch(body.client_software_name) and _SOFTWARE.fullmatch(body.client_software_version)
    if (version >= 3 and not is_named) or (body.cluster_id is None) != (body.node_id == NO_NODE):
        return encode_reply(request, error_code=ErrorCode.INVALID_REQUEST)
    supported = SUPPORTED_FEATURES.items()
    return encode_reply(
        request,
        api_keys=served,
        supported_features=[(name, low, high) for name, (low, high) in supported if low > 0 or version >= 4],
        finalized_features_epoch=broker.cluster.metadata_log.end_offset,
        finalized_features=[(name, level, level) for name, level in finalized.items()],
    )


def _means_another(broker: Broker, request: Request) -> bool:
    """Return whether the client names another cluster or node."""
    named = request.body.cluster_id, request.body.node_id
    return named not in ((None, NO_NODE), (broker.logs.properties.cluster_id, broker.cluster.node_id))
