"""`ottla trace` next to clients of a broker, while a fault of a test fires."""

import json
import subprocess
import sys

import pytest
from served import Served, create, fetch, produce

from ottla.protocol.api_keys import ApiKey
from ottla.testkit.in_memory.wire import message
from ottla.testkit.kit.admin import Admin
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

TRACE = [sys.executable, "-m", "ottla.cli.main", "trace"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("traced") / "data"
    served = Served(data_dir, "--admin-listen", "127.0.0.1:0", "--test-control").ready()
    served.url = served.process.stdout.readline().removeprefix("admin ").strip()
    yield served
    served.end()
    served.process.communicate()


@pytest.fixture
def trace(broker):
    """Return a function that starts `ottla trace` and returns it as soon as it listens."""
    started = []

    def start(*arguments):
        command = [*TRACE, "--admin", broker.url, *arguments]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(running)
        assert running.stderr.readline() == f"listening at {broker.url}\n"
        return running

    yield start
    for running in started:
        running.kill()
        running.communicate()


def client(served, name):
    return BlockingConnection("127.0.0.1", served.port, client_id=name, timeout_s=EVENT_TIMEOUT_S)


@pytest.mark.slow
def test_a_trace_prints_the_requests_and_replies_of_one_client(broker, trace):
    tracing = trace("--client-id", "orders", "--count", "6")
    with client(broker, "orders") as own, client(broker, "else") as other:
        for connection in (other, own):
            create(connection, "traced")
            produce(connection, "traced", b"x")
        own.send(fetch("traced", 0), version=11)
    shown, _ = tracing.communicate(timeout=EVENT_TIMEOUT_S)
    lines = [line.split(" ", 3)[2:] for line in shown.splitlines()]
    assert tracing.returncode == 0 and len(lines) == 6
    assert {who for who, _ in lines} == {"orders"}
    assert [" ".join(rest.split(" ")[:3]) for _, rest in lines] == [
        *("> Metadata v4", "< Metadata v4"),
        *("> Produce v9", "< Produce v9"),
        *("> Fetch v11", "< Fetch v11"),
    ]
    assert "topic_data=[traced-0(records=(size_bytes=" in lines[2][1]
    assert "responses=[traced-0(high_watermark=2 last_stable_offset=2 " in lines[5][1]


def test_faults_are_seen_as_clients_see_them(broker, trace):
    Admin(broker.url).post("/v1/faults", {"do": "reply", "api": "EndTxn", "error": "COORDINATOR_NOT_AVAILABLE"})
    Admin(broker.url).post("/v1/faults", {"at": "reply", "do": "drop", "api": "EndTxn"})
    tracing = trace("--transactional-id", "tx-1", "--api", "endtxn", "--count", "4", "--format", "json")
    ended = {"transactional_id": "tx-1", "producer_id": 0, "producer_epoch": 0, "committed": True}
    with client(broker, "orders") as connection:
        connection.send(message(ApiKey.END_TXN, 3, **ended), version=3)
        with pytest.raises(ConnectionError):
            connection.send(message(ApiKey.END_TXN, 3, **ended), version=3)
    shown, _ = tracing.communicate(timeout=EVENT_TIMEOUT_S)
    told = [json.loads(line) for line in shown.splitlines()]
    assert [each["kind"] for each in told] == ["request", "reply", "request", "closed"]
    assert told[0]["fields"] == ended
    assert told[1]["errors"] == ["COORDINATOR_NOT_AVAILABLE"]
    assert "fault" in told[3]["reason"]


@pytest.mark.slow
def test_a_broker_that_ends_ends_its_traces(tmp_path):
    served = Served(tmp_path / "data", "--admin-listen", "127.0.0.1:0").ready()
    url = served.process.stdout.readline().removeprefix("admin ").strip()
    command = [*TRACE, "--admin", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tracing:
        assert tracing.stderr.readline() == f"listening at {url}\n"
        assert served.end() == 0
        assert tracing.wait(EVENT_TIMEOUT_S) == 1
        assert tracing.stderr.read() == f"ottla: {url} has ended the stream\n"
    assert "Traceback" not in served.process.communicate()[1]


@pytest.mark.slow
def test_an_api_that_there_is_not_is_one_line(broker):
    command = [*TRACE, "--admin", broker.url, "--api", "EndTx"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "ottla: There is no API EndTx: did you mean EndTxn?\n"
