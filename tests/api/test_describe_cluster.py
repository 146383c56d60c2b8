"""DescribeCluster: this broker is the cluster."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.memory_broker import MemoryBroker

BROKERS, CONTROLLERS = 1, 2


@pytest.fixture(scope="module")
def broker():
    return MemoryBroker()


@pytest.mark.parametrize("version", [0, 1])
def test_the_cluster_has_one_broker_which_is_its_controller(broker, version):
    reply = broker.call(K.DESCRIBE_CLUSTER, version, endpoint_type=BROKERS)
    parts = broker.assembly.broker
    assert (reply.error_code, reply.error_message, reply.cluster_id) == (
        E.NONE,
        None,
        parts.logs.properties.cluster_id,
    )
    (row,) = reply.brokers
    assert (row.broker_id, row.host, row.port, row.rack) == parts.endpoints["PLAINTEXT"]
    assert reply.controller_id == 1 and (version == 0 or reply.endpoint_type == BROKERS)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("asked_for", [False, True])
def test_authorized_operations_are_returned_on_request(broker, version, asked_for):
    reply = broker.call(K.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=asked_for)
    assert reply.authorized_operations == ({5, 7, 8, 9, 10, 11, 12} if asked_for else None)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (CONTROLLERS, E.MISMATCHED_ENDPOINT_TYPE),
        (0, E.UNSUPPORTED_ENDPOINT_TYPE),
        (3, E.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_an_endpoint_type_other_than_brokers_is_refused(broker, kind, error):
    reply = broker.call(K.DESCRIBE_CLUSTER, 1, endpoint_type=kind)
    assert (reply.error_code, reply.endpoint_type, reply.brokers) == (error, 1, [])
    assert reply.error_message and reply.cluster_id == ""
