"""DescribeCluster 0-1: this broker is the cluster. free

Version notes: 1 adds the endpoint type: 1 brokers; 2 controllers, MISMATCHED_ENDPOINT_TYPE here; anything else
UNSUPPORTED_ENDPOINT_TYPE. Authorized operations are all there are (no authorizer).
"""

from ottla.broker.api import operations
from ottla.broker.api.context import Broker, Reply, Request
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode

DESCRIBE_CLUSTER = 60
BROKERS = 1
CONTROLLERS = 2


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe the one broker."""
    version = request.api_version
    response = codec.response_class(DESCRIBE_CLUSTER)
    if version >= 1 and request.body.endpoint_type != BROKERS:
        mismatch = request.body.endpoint_type == CONTROLLERS
        return response(
            version=version,
            throttle_time_ms=0,
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if mismatch else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="Only brokers are described here: this listener is not a controller's",
            endpoint_type=request.body.endpoint_type,
            cluster_id="",
            brokers=[],
        )
    me = response.DescribeClusterBroker(
        version=version, broker_id=broker.cluster.node_id, host=broker.host, port=broker.port, rack=None
    )
    return response(
        version=version,
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=broker.logs.cluster_id,
        controller_id=broker.cluster.node_id,
        brokers=[me],
        authorized_operations=operations.OF_CLUSTER if request.body.include_cluster_authorized_operations else None,
    )
