"""DescribeCluster 0-2: the brokers of the cluster. free

Version notes: 1 adds the endpoint type: 1 brokers; 2 controllers, MISMATCHED_ENDPOINT_TYPE here; anything else
UNSUPPORTED_ENDPOINT_TYPE. 2 can ask for fenced brokers (KIP-1073): those of this process that are stopped. Every
client gets the brokers' addresses. Clients with DESCRIBE on the cluster get its authorized operations, others 0
(`AuthHelper.computeDescribeClusterResponse`).
"""

from typing import Final

from ottla.broker.api import operations
from ottla.broker.api.authorization import DESCRIBE_CLUSTER
from ottla.broker.api.context import Broker
from ottla.broker.api.reply import encode_reply
from ottla.broker.api.request import Reply, Request
from ottla.protocol.errors import ErrorCode

BROKERS: Final = 1
CONTROLLERS: Final = 2


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe the brokers."""
    if request.api_version >= 1 and request.body.endpoint_type != BROKERS:
        mismatch = request.body.endpoint_type == CONTROLLERS
        return encode_reply(
            request,
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if mismatch else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="Only brokers can be described: this is not a controller listener",
            endpoint_type=BROKERS,
        )
    listener = request.session.listener_name
    brokers = [(*endpoint, False) for endpoint in broker.endpoints_of(listener)]
    if request.api_version >= 2 and request.body.include_fenced_brokers:
        brokers += [(*endpoint, True) for endpoint in broker.stopped_endpoints_of(listener)]
    return encode_reply(
        request,
        endpoint_type=BROKERS,
        cluster_id=broker.logs.properties.cluster_id,
        controller_id=broker.brokers[0].cluster.node_id,
        brokers=brokers,
        authorized_operations=_operations(broker, request),
    )


def _operations(broker: Broker, request: Request) -> int:
    if not request.body.include_cluster_authorized_operations:
        return operations.NOT_REQUESTED
    if not broker.may(request, DESCRIBE_CLUSTER):
        return 0
    return operations.of_cluster(broker, request)
