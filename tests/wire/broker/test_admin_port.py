"""The admin port of `ottla serve`: how it is opened, and where its address is printed."""

import http.client
import json
import socket
import subprocess
import sys

import pytest
from served import SERVE

from tests.timeout import EVENT_TIMEOUT_S

TOKEN = "correct-horse-battery-staple"


def admin_of(served):
    """Return host and port from the line after the `ready` lines."""
    line = served.process.stdout.readline()
    assert line.startswith("admin http://"), line
    return line.removeprefix("admin http://").strip().strip("[]").replace("]", "").rsplit(":", 1)


def get(address, path, **headers):
    connection = http.client.HTTPConnection(address[0], int(address[1]), timeout=EVENT_TIMEOUT_S)
    connection.request("GET", path, headers=headers)
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


@pytest.mark.slow
def test_the_admin_port_is_printed_and_describes_its_broker(serve):
    served = serve("--admin-listen", "127.0.0.1:0").ready()
    address = admin_of(served)
    lines = served.ready_file.read_text().splitlines()
    assert lines == [f"ready PLAINTEXT://127.0.0.1:{served.port}", "admin http://" + ":".join(address)]
    status, broker = get(address, "/v1/broker")
    assert status == 200
    assert broker["listeners"] == [{"name": "PLAINTEXT", "host": "127.0.0.1", "port": served.port}]
    assert broker["features"]["transaction.version"] == 2
    assert broker["data_dir"] == str(served.data_dir)
    assert served.end() == 0


@pytest.mark.slow
def test_the_port_may_be_an_ipv6_address(serve):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    served = serve("--admin-listen", "[::1]:0").ready()
    line = served.process.stdout.readline().strip()
    assert line.startswith("admin http://[::1]:")
    port = line.rpartition(":")[2]
    assert get(("::1", port), "/v1/broker")[0] == 200
    assert get(("::1", port), "/v1/broker", Host="evil.example")[0] == 403
    assert served.end() == 0


@pytest.mark.slow
def test_the_admin_port_is_closed_by_default(serve):
    served = serve().ready()
    assert served.ready_file.read_text().splitlines() == [served.line.strip()]
    assert served.end() == 0
    assert served.process.stdout.read() == ""


@pytest.mark.slow
def test_variables_open_it_too(serve, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    (tmp_path / "token").chmod(0o600)
    served = serve(OTTLA_ADMIN_LISTEN="0.0.0.0:0", OTTLA_ADMIN_TOKEN_FILE=str(tmp_path / "token")).ready()
    address = admin_of(served)
    assert get(address, "/v1/broker")[0] == 401
    assert get(address, "/v1/broker", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert served.end() == 0
    log = served.process.stderr.read()
    assert "others than its owner" not in log and TOKEN not in log
    assert log.count("WARN") == log.count("WARN Refused requests to the admin port, the last one: 127.0.0.1:") == 1


def test_a_token_file_readable_by_others_is_logged(serve, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o644)
    served = serve("--admin-listen", "127.0.0.1:0", "--admin-token-file", str(tmp_path / "token")).ready()
    assert served.end() == 0
    log = served.process.stderr.read()
    assert f"--admin-token-file {tmp_path / 'token'}: other users may read it" in log
    assert TOKEN not in log


def test_a_start_on_a_taken_admin_port_creates_no_data_directory(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*SERVE, "--admin-listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "other")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert done.returncode == 1
    assert f"Cannot listen on http://127.0.0.1:{port}: " in done.stderr
    assert not (tmp_path / "other").exists()


def test_without_the_port_nothing_of_http_is_loaded():
    script = (
        "import sys; import ottla.broker.server, ottla.cli.serve; "
        "print([name for name in sys.modules if name.startswith(('h11', 'http', 'ottla.admin.'))])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told == "[]\n"
