"""Limits of connections on real sockets."""

import contextlib
import socket

import pytest
from served import create, produce

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.wire import message
from tests.timeout import EVENT_TIMEOUT_S


def connect(served, number):
    clients = []
    for _ in range(number):
        client = socket.create_connection(("127.0.0.1", served.port), timeout=EVENT_TIMEOUT_S)
        clients.append(client)
    return clients


def asks(client):
    """Ask for the served versions and return whether there was an answer."""
    message = codec.request_class(ApiKey.API_VERSIONS)()
    try:
        client.sendall(codec.encode_request(message, 0, 1, "test"))
        return len(client.recv(4)) == 4
    except ConnectionError:
        return False


def test_more_connections_than_descriptors_are_refused_and_logs_stay_online(serve):
    served = serve(descriptors=128).ready()  # 48 of them for connections
    healthy = served.connect()
    create(healthy, "ledger")
    clients = connect(served, 100)
    answered = sum(map(asks, clients))
    assert 40 <= answered < 60
    for number in range(10):
        create(healthy, f"more-{number}")
    assert produce(healthy, "ledger", b"value").error_code == 0
    for client in clients:
        client.close()
    for _ in range(1000):  # until the broker has seen that they are gone
        with contextlib.suppress(ConnectionError), contextlib.closing(served.connect()) as later:
            assert produce(later, "ledger", b"value").error_code == 0
            break
        assert produce(healthy, "ledger", b"value").error_code == 0
    else:
        pytest.fail("nobody comes in any more")
    healthy.close()
    assert served.end() == 0
    log = served.process.stderr.read()
    assert "Refused connections" in log
    assert "RLIMIT_NOFILE" in log and "Traceback" not in log


def change(connection, name, value):
    """Send IncrementalAlterConfigs for the broker."""
    request = codec.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    resource = request.AlterConfigsResource
    config = resource.AlterableConfig(name=name, config_operation=0, value=value)
    row = resource(resource_type=4, resource_name="", configs=[config])
    return connection.send(request(resources=[row], validate_only=False), 1).responses[0].error_code


@pytest.mark.slow
def test_limits_change_while_the_broker_runs_and_stay_after_a_restart(serve):
    served = serve("--override", "max.connections=2").ready()
    control = served.connect()
    assert change(control, "max.connections.per.ip.overrides", "nonsense") == 42
    first, second = connect(served, 2)
    assert asks(first)
    second.settimeout(0.3)
    with pytest.raises(TimeoutError):
        asks(second)
    assert change(control, "max.connections", "3") == 0
    second.settimeout(EVENT_TIMEOUT_S)
    assert len(second.recv(4)) == 4  # what it asked is answered when it comes in
    assert change(control, "max.connections.per.ip", "3") == 0
    assert change(control, "max.connections", "100") == 0
    (refused,) = connect(served, 1)
    assert not asks(refused)
    for client in (control, first, second, refused):
        client.close()
    assert served.end() == 0
    again = serve("--override", "max.connections=2").ready()
    clients = connect(again, 4)
    assert [asks(client) for client in clients] == [True, True, True, False]
    for client in clients:
        client.close()


def quota(connection, address, per_second):
    """Send AlterClientQuotas for an address; None removes the quota."""
    ops = [{"key": "connection_creation_rate", "value": per_second or 0.0, "remove": per_second is None}]
    entity = [{"entity_type": "ip", "entity_name": address}]
    asked = message(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": ops}], validate_only=False)
    return connection.send(asked, 1).entries[0].error_code


@pytest.mark.slow
def test_beyond_the_quota_of_its_address_a_connection_is_refused(serve):
    served = serve().ready()
    control = served.connect()
    assert quota(control, "10.0.0.1", 1.0) == quota(control, None, 1.0) == 0
    clients = connect(served, 100)
    answered = sum(map(asks, clients))
    assert 10 <= answered < 100  # a burst of ten seconds, and who came in while that lasted
    assert quota(control, "127.0.0.1", 1_000_000.0) == 0
    clients += (more := connect(served, 10))
    assert all(map(asks, more))
    for client in (control, *clients):
        client.close()
    assert served.end() == 0
    assert "has reached its quota connection_creation_rate" in served.process.stderr.read()
