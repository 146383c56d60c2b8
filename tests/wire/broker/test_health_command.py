"""`ottla health` against brokers that serve, brokers that are not ready yet, and ports of other programs."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner
from served import Served

from ottla.cli.main import main
from tests.timeout import EVENT_TIMEOUT_S

WAIT = f"{EVENT_TIMEOUT_S:.0f}s"


def health(*arguments, **environment):
    return CliRunner().invoke(main, ["health", *arguments], env=environment, catch_exceptions=False)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("health")
    served = Served(folder / "data", "--admin-listen", "127.0.0.1:0", "--test-control").ready()
    served.url = served.process.stdout.readline().removeprefix("admin ").strip()
    yield served
    assert served.end() == 0
    served.process.communicate()


@pytest.fixture
def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else gets it
        yield taken.getsockname()[1]


def test_each_way_of_asking_finds_a_broker_ready(broker):
    for arguments in (
        ("--admin", broker.url),
        ("--admin", broker.url.removeprefix("http://")),
        ("-b", f"127.0.0.1:{broker.port}"),
        ("--ready-file", str(broker.ready_file)),
        ("--wait", WAIT, "--admin", broker.url),
    ):
        done = health(*arguments)
        assert (done.exit_code, done.stderr) == (0, ""), arguments
        assert done.stdout.endswith(": ready\n")
    assert health(OTTLA_ADMIN=broker.url).exit_code == 0


@pytest.mark.slow
def test_waiting_ends_when_the_broker_serves(tmp_path):
    starting = Served(tmp_path / "data", "--admin-listen", "127.0.0.1:0")
    done = health("--wait", WAIT, "--ready-file", str(starting.ready_file))
    assert (done.exit_code, done.stderr) == (0, "")
    assert starting.end() == 0
    starting.process.communicate()
    done = health("--ready-file", str(starting.ready_file))
    assert done.exit_code == 1
    assert "not ready: the broker has not written the file: No such file" in done.stderr


def test_a_refused_connection_is_not_ready(free_port):
    for arguments in (("--admin", f"http://127.0.0.1:{free_port}"), ("-b", f"127.0.0.1:{free_port}")):
        done = health(*arguments, "--wait", "300ms")
        assert (done.exit_code, done.stdout) == (1, "")
        assert f"127.0.0.1:{free_port}: not ready: no answer: Connection refused" in done.stderr


def test_an_environment_for_the_admin_port_does_not_keep_from_asking_otherwise(broker, free_port):
    elsewhere = f"http://127.0.0.1:{free_port}"
    assert health("-b", f"127.0.0.1:{broker.port}", OTTLA_ADMIN=elsewhere).exit_code == 0
    assert health("--ready-file", str(broker.ready_file), OTTLA_ADMIN=elsewhere).exit_code == 0
    assert health(OTTLA_ADMIN=elsewhere).exit_code == 1


@pytest.mark.parametrize(("api", "who"), [("ListGroups", "group"), ("ListTransactions", "transaction")])
def test_a_coordinator_that_loads_is_not_ready(broker, api, who):
    ctl = ["ctl", "fault", "--admin", broker.url]
    plan = ["add", "reply", "--api", api, "--error", "COORDINATOR_LOAD_IN_PROGRESS", "--times", "1"]
    done = CliRunner().invoke(main, [*ctl[:2], *plan, *ctl[2:]])
    assert done.exit_code == 0, done.output
    done = health("-b", f"127.0.0.1:{broker.port}")
    assert done.exit_code == 1
    assert done.stderr.endswith(f"not ready: its {who} coordinator still reads its logs\n")
    assert health("-b", f"127.0.0.1:{broker.port}").exit_code == 0


@pytest.fixture
def answering():
    """Open a port that answers every request with a status and a body."""
    servers = []

    def answer(status, body):
        class Page(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        server = HTTPServer(("127.0.0.1", 0), Page)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield answer
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_reason_of_a_503_is_printed_with_escape_codes_escaped(answering):
    error = "The broker recovers its logs: 2 partitions are left\x1b[2J"
    done = health("--admin", answering(503, json.dumps({"status": "not ready", "error": error}).encode()))
    assert done.exit_code == 1
    assert done.stderr.endswith("not ready: The broker recovers its logs: 2 partitions are left\\x1b[2J\n")


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (503, b""), (200, b"{}"), (404, b'{"error": "nothing"}')]
)
def test_another_server_is_no_broker(answering, status, body):
    done = health("--admin", answering(status, body))
    assert done.exit_code == 1
    assert "not an admin port of Ottla" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--admin", "https://127.0.0.1:1"),
        ("--admin", "127.0.0.1"),
        ("-b", "127.0.0.1"),
        ("--wait", "soon"),
        ("--wait", "10"),
        ("-b", "127.0.0.1:1", "--ready-file", "ready"),
        ("-b", "127.0.0.1:1", "--admin", "http://127.0.0.1:1"),
    ],
)
def test_invalid_options_of_health_are_a_usage_error(arguments):
    assert health(*arguments).exit_code == 2
