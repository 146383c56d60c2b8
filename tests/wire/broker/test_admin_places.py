"""Connection limits of the admin port: clients that do not read or do not ask must not block a health check."""

import contextlib
import http.client
import socket

import pytest
from served import Served

from tests.timeout import EVENT_TIMEOUT_S

HEALTH = ("/livez", "/readyz", "/v1/status/ready")
GREEDY = {
    "page files": b"GET /page/main.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 60,
    "health checks": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 60,
    "metrics": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 60,
    "descriptions": b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 60,
    "exports": b"GET /v1/export HTTP/1.1\r\nHost: localhost\r\n\r\n" * 60,
    "traces": b"GET /v1/trace HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "events": b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "half a request": b"GET /v1/broker HTTP/1.1\r\nHost: localhost\r\n",
    "half a body": b"PUT /v1/loglevel/root HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
    "nothing": b"",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("places") / "data", "--admin-listen", "127.0.0.1:0").ready()
    served.admin_port = int(served.process.stdout.readline().rpartition(":")[2])
    yield served
    code = served.end()
    log = served.process.stderr.read()
    served.process.communicate()
    assert code == 0
    assert "Traceback" not in log


@pytest.mark.slow
@pytest.mark.parametrize("greedy", GREEDY.values(), ids=GREEDY)
def test_health_is_answered_despite_110_clients_that_read_nothing(broker, greedy):
    clients = []
    for _ in range(110):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.settimeout(EVENT_TIMEOUT_S)
        client.connect(("127.0.0.1", broker.admin_port))
        client.setblocking(False)
        with contextlib.suppress(OSError):  # it may have had to give way
            client.send(greedy)
        clients.append(client)
    try:
        for path in HEALTH * 2:
            connection = http.client.HTTPConnection("127.0.0.1", broker.admin_port, timeout=EVENT_TIMEOUT_S)
            connection.request("GET", path)
            assert connection.getresponse().status == 200, path
            connection.close()
    finally:
        for client in clients:
            client.close()
