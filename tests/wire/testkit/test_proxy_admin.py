"""The admin port of `ottla proxy`: faults are added and removed while clients work."""

import json
import subprocess
import sys
import threading
import uuid

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer

from ottla.cli.main import main
from ottla.demo.clients import own_broker
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.testkit.kit.admin import Admin, AdminFailed
from ottla.testkit.kit.fault_registries import BrokerFaultRegistry
from ottla.testkit.kit.faults import Faults
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S
from tests.unit.cli.test_terminal import check_document


class Steered:
    """`ottla proxy` in a process of its own, and `ctl` on its port."""

    def __init__(self, upstream):
        command = [sys.executable, "-m", "ottla.cli.main", "proxy", "--upstream", upstream]
        command += ["--admin-listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.bootstrap = self.process.stdout.readline().removeprefix("ready ").strip()
        self.url = self.process.stdout.readline().removeprefix("admin ").strip()
        self.admin = Admin(self.url)
        self.faults = Faults(BrokerFaultRegistry(lambda: self.admin))

    def ctl(self, *arguments):
        return CliRunner().invoke(main, ["ctl", *arguments, "--admin", self.url], catch_exceptions=False)

    def connect(self):
        host, _, port = self.bootstrap.rpartition(":")
        return BlockingConnection(host, int(port), timeout_s=EVENT_TIMEOUT_S)

    def end(self):
        self.process.terminate()
        _, said = self.process.communicate(timeout=EVENT_TIMEOUT_S)
        return self.process.returncode, said


@pytest.fixture(scope="module")
def upstream():
    with own_broker() as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def proxy_once(upstream):
    proxy = Steered(upstream)
    yield proxy
    code, said = proxy.end()
    assert code == 0 and "Traceback" not in said, said


@pytest.fixture
def proxy(proxy_once):
    yield proxy_once
    proxy_once.ctl("fault", "clear")


def heartbeat():
    return codec.request_class(ApiKey.HEARTBEAT)(group_id="nobody", generation_id=1, member_id="m")


@pytest.mark.slow
def test_a_commit_is_held_and_let_go_by_another_program(proxy):
    producer = KafkaProducer(bootstrap_servers=proxy.bootstrap, transactional_id=f"tx-{uuid.uuid4().hex[:8]}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(f"ledger-{uuid.uuid4().hex[:8]}", b"paid").get(timeout=EVENT_TIMEOUT_S)
    added = proxy.ctl("fault", "add", "hold", "--api", "EndTxn", "--format", "json")
    fault_id = json.loads(added.stdout)["faults"][0]["id"]
    committing = threading.Thread(target=producer.commit_transaction)
    committing.start()
    waited = proxy.admin.get(f"/v1/faults/{fault_id}?hits=1&wait_ms=60000")
    assert (waited["hits"], waited["held"]) == (1, 1)
    entries = proxy.admin.get("/v1/journal")["passages"]
    assert [entry["faults"] for entry in entries if entry["faults"]] == [[fault_id]]
    assert proxy.ctl("fault", "release", str(fault_id)).exit_code == 0
    committing.join(EVENT_TIMEOUT_S)
    assert not committing.is_alive()
    producer.close()
    assert proxy.ctl("fault", "clear", "--expect-hits").exit_code == 0


def test_the_faults_of_the_test_kit_are_planned_over_the_port(proxy):
    fault = proxy.faults.on("Heartbeat").reply("REBALANCE_IN_PROGRESS")
    with proxy.connect() as client:
        assert client.send(heartbeat(), 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert client.send(heartbeat(), 3).error_code != ErrorCode.REBALANCE_IN_PROGRESS
    fault.wait_hit()


def test_faults_and_clock_moves_that_need_an_ottla_broker_are_refused(proxy, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {at: request, do: drop}\n- {at: marker, do: lose}\n")
    refused = proxy.ctl("fault", "load", str(plan))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("ottla: 'lose' at 'marker' needs an Ottla broker")
    assert proxy.admin.get("/v1/faults") == []
    time = proxy.ctl("clock", "advance", "7d")
    assert (time.exit_code, time.stderr) == (
        1,
        f"ottla: {proxy.url} cannot do that: a proxy cannot move the time of a broker\n",
    )


def test_status_describes_the_proxy_and_counts_its_requests(proxy, upstream):
    with proxy.connect() as client:
        client.send(heartbeat(), 3)
    told = proxy.ctl("status").stdout
    assert f", a proxy at {proxy.bootstrap} in front of {upstream}. It has accepted " in told.splitlines()[0]
    document = json.loads(proxy.ctl("status", "--format", "json").stdout)
    check_document("ottla ctl status", document)
    assert document["brokers"][0]["address"] == upstream
    assert {"api": "Heartbeat", "count": proxy.admin.get("/v1/proxy")["requests"]["Heartbeat"]} in document["requests"]


def test_clients_are_hung_up_on_for_a_while(proxy):
    with proxy.connect() as client:
        client.send(heartbeat(), 3)
        assert proxy.admin.post("/v1/proxy/hang-up", {"for_ms": 3_600_000})["connections"]
        with pytest.raises(ConnectionError):
            client.send(heartbeat(), 3)
    with pytest.raises(ConnectionError), proxy.connect() as client:
        client.send(heartbeat(), 3)
    proxy.admin.post("/v1/proxy/hang-up")
    with proxy.connect() as client:
        assert client.send(heartbeat(), 3).error_code


def test_the_port_describes_itself_and_refuses_web_pages(proxy):
    described = proxy.admin.get("/openapi.json")["paths"]
    assert {"/v1/proxy", "/v1/proxy/hang-up", "/v1/faults", "/v1/journal", "/openapi.json"} <= set(described)
    with pytest.raises(AdminFailed, match="for_ms"):
        proxy.admin.post("/v1/proxy/hang-up", {"for_ms": -1})
    assert proxy.admin.get("/v1/faults") == []


def test_a_port_that_others_can_reach_needs_a_token(upstream):
    command = [sys.executable, "-m", "ottla.cli.main", "proxy", "--upstream", upstream, "--admin-listen", "0.0.0.0:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert done.returncode != 0
    assert "set --admin-token-file" in done.stderr
