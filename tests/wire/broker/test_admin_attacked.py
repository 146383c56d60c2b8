"""The admin port under bad clients: requests are still answered, and the broker's own clients are not affected."""

import http.client
import json
import resource
import socket

import pytest
from served import Served, create, fetch, produce

from ottla.protocol.errors import ErrorCode
from tests.timeout import EVENT_TIMEOUT_S

HEAD = b"GET /v1/broker HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/broker HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("admin") / "data", "--admin-listen", "127.0.0.1:0").ready()
    served.admin_port = int(served.process.stdout.readline().rpartition(":")[2])
    with served.connect() as connection:
        create(connection, "ledger")
    yield served
    code = served.end()
    log = served.process.stderr.read()
    served.process.communicate()
    assert code == 0
    assert "Traceback" not in log


@pytest.fixture(scope="module", autouse=True)
def many_sockets():
    """A shell often allows 1,024 descriptors or fewer, where the system would allow more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4_096 if hard == resource.RLIM_INFINITY else min(4_096, hard)
    wanted = max(soft, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield min(1_000, wanted // 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def attackers(broker):
    """Return a function that opens connections. After each test, check the admin port, produce and fetch a record."""
    opened = []

    def attack(data=b""):
        client = socket.create_connection(("127.0.0.1", broker.admin_port), timeout=EVENT_TIMEOUT_S)
        opened.append(client)
        try:
            client.sendall(data)
        except ConnectionError:
            assert data  # it may be refused before all of it is sent
        return client

    yield attack
    assert ask(broker)["listeners"] == [{"name": "PLAINTEXT", "host": "127.0.0.1", "port": broker.port}]
    with broker.connect() as connection:
        row = produce(connection, "ledger", b"one")
        assert row.error_code == ErrorCode.NONE
        read = connection.send(fetch("ledger", row.base_offset), version=4)
        assert read.responses[0].partitions[0].high_watermark == row.base_offset + 1
    for client in opened:
        client.close()


def ask(broker):
    connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=EVENT_TIMEOUT_S)
    connection.request("GET", "/v1/broker")
    return json.loads(connection.getresponse().read())


def is_refused(client):
    """Return whether the client gets a refusal, or is disconnected while it still sends."""
    data = b""
    try:
        while piece := client.recv(65_536):
            data += piece
    except ConnectionError:
        return True
    return data.startswith(b"HTTP/1.1 4")


@pytest.mark.slow
def test_a_thousand_connections_that_ask_nothing(broker, attackers, many_sockets):
    for number in range(many_sockets):
        attackers()
        if not number % 100:
            ask(broker)


@pytest.mark.slow
def test_a_thousand_requests_that_never_end(broker, attackers, many_sockets):
    for number in range(many_sockets):
        attackers(HEAD[: number % len(HEAD)])
        if not number % 100:
            ask(broker)


def test_requests_that_go_on_for_ever_give_way_to_one_that_does_not(broker, attackers):
    trickling = [attackers(HEAD) for _ in range(120)]
    for _ in range(5):
        for client in trickling:
            try:
                client.sendall(b"x: y\r\n")
            except ConnectionError:
                continue  # it had to give way
        ask(broker)


def test_clients_that_never_read_replies_do_not_block_the_admin_port(broker, attackers):
    for _ in range(20):
        client = attackers()
        client.setblocking(False)
        try:
            while True:
                client.send((HEAD + b"\r\n") * 1_000)
        except (BlockingIOError, ConnectionError):
            pass
        ask(broker)


def test_disconnects_within_a_request_do_no_harm(broker, attackers):
    for end in range(1, len(HEAD), 3):
        client = attackers(HEAD[:end])
        client.close()
