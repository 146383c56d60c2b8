"""Health of a broker: the remaining work of its start, and that it no longer serves requests."""

import asyncio
import dataclasses
import json
import subprocess
import sys

import pytest
import uvloop

from lab.metadata import create_topic
from ottla.admin.health import health_routes
from ottla.admin.serving import BrokerAdmin
from ottla.admin.settings import AdminSettings
from ottla.broker import server as server_module
from ottla.broker.config import Config, Listener
from ottla.broker.health import BrokerState, Health
from ottla.broker.log.remaining import Remaining
from ottla.broker.ports.disk import RealDisk
from ottla.broker.server import Server, StartGivenUp
from ottla.broker.storage import Storage
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.requests import codec
from ottla.protocol.requests.produced import check_produced_batch
from tests.async_connection import AsyncConnection
from tests.memory_broker import MemoryBroker
from tests.timeout import EVENT_TIMEOUT_S
from tests.unit.admin.web import Web

PARTITIONS = 4
SHARE_US = 3_000.0


@pytest.fixture
def config(tmp_path):
    return Config(log_dirs=str(tmp_path / "data"), listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),))


def produce(partition):
    data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=1_700_000_000_000))
    return partition.append_from_client(check_produced_batch(data), data)


@pytest.fixture
def killed_logs(config):
    """Return a directory with a record in each of some partitions, none of them recovered."""

    async def live():
        server = Server(config)
        await server.start()
        create_topic(server.broker.cluster, "ledger", PARTITIONS)
        for index in range(PARTITIONS):
            assert not produce(server.broker.cluster.partition("ledger", index)).error
        logs = server.broker.logs
        logs.close = logs.abandon
        await server.stop()

    uvloop.run(live())


@pytest.fixture
def held_start(monkeypatch):
    """Hold a start while this many logs are left, until the test releases it."""
    may_go_on = asyncio.Event()
    opened = Storage.open

    def open_until(storage):
        for step in opened(storage):
            yield step
            while storage.logs.remaining.logs == 2 and not may_go_on.is_set():
                yield SHARE_US

    monkeypatch.setattr(Storage, "open", open_until)
    return may_go_on


async def ask(address, path, **headers):
    reader, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


async def ask_until(holds, address, path="/readyz"):
    """Return the first answer that meets this condition."""
    while True:
        answer = await ask(address, path)
        if holds(answer):
            return answer


@pytest.mark.slow
def test_readyz_reports_remaining_work_during_recovery_and_then_ready(config, killed_logs, held_start):
    async def live():
        server = Server(config, admin=BrokerAdmin(AdminSettings("127.0.0.1", 0, token="correct-horse-battery")))
        start = asyncio.create_task(server.start())
        while server.admin_address is None:
            await asyncio.sleep(0)
        address = server.admin_address
        status, body = await ask_until(lambda answer: answer[1]["remaining_logs_to_recover"] == 2, address)
        assert (status, body["status"], body["broker_state"]) == (503, "not ready", "RECOVERY")
        assert body["error"].startswith("The broker recovers its logs: 2 partitions are left")
        assert body["remaining_bytes_to_recover"] > 0
        assert await ask(address, "/livez") == (200, {"status": "live"})
        assert await ask(address, "/v1/status/ready") == (503, {"status": "booting"})
        assert (await ask(address, "/v1/broker"))[0] == 401
        bearer = {"Authorization": "Bearer correct-horse-battery"}
        assert await ask(address, "/v1/broker", **bearer) == (
            503,
            {"error": "The broker is starting: GET /readyz shows what is left to do"},
        )
        assert not start.done()
        held_start.set()
        await start
        status, body = await ask_until(lambda answer: answer[0] == 200, address)
        assert body == {
            "status": "ready",
            "broker_state": "RUNNING",
            "remaining_logs_to_recover": 0,
            "remaining_bytes_to_recover": 0,
            "remaining_coordinators_to_load": 0,
        }
        assert await ask(address, "/v1/status/ready") == (200, {"status": "ready"})
        assert (await ask(address, "/v1/broker", **bearer))[0] == 200
        ends = [server.broker.cluster.partition("ledger", index).log_end_offset for index in range(PARTITIONS)]
        assert ends == [1] * PARTITIONS
        await server.stop()

    uvloop.run(asyncio.wait_for(live(), EVENT_TIMEOUT_S))


@pytest.mark.slow
def test_a_start_that_is_given_up_leaves_the_directory_to_the_next(config, killed_logs, held_start, tmp_path):
    async def live():
        server = Server(config)
        start = asyncio.create_task(server.start())
        await asyncio.sleep(0)
        server.is_stopping = True
        with pytest.raises(StartGivenUp):
            await start
        held_start.set()
        again = Server(config)
        await again.start()
        for index in range(PARTITIONS):
            assert produce(again.broker.cluster.partition("ledger", index)).base_offset == 1
        await again.stop()

    uvloop.run(asyncio.wait_for(live(), EVENT_TIMEOUT_S))
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_broker_that_lets_requests_end_before_it_stops_is_not_ready(config, monkeypatch):
    monkeypatch.setattr(server_module, "DRAIN_SECONDS", EVENT_TIMEOUT_S)
    request = codec.request_class(ApiKey.FETCH)
    topic = request.FetchTopic
    partition = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    waits = request(
        replica_id=-1,
        max_wait_ms=2_000 * EVENT_TIMEOUT_S,
        min_bytes=1,
        max_bytes=1000,
        topics=[topic(topic="ledger", partitions=[partition])],
        forgotten_topics_data=[],
    )

    async def live():
        server = Server(config, admin=BrokerAdmin(AdminSettings("127.0.0.1", 0)))
        (address,) = await server.start()
        create_topic(server.broker.cluster, "ledger", 1)
        client = await AsyncConnection.open(address.host, address.port)
        fetch = asyncio.create_task(client.send(waits, version=11))
        partition = server.broker.cluster.partition("ledger", 0)
        while not partition.waiting:
            await asyncio.sleep(0)
        stop = asyncio.create_task(server.stop())
        _, body = await ask_until(lambda answer: answer[0] == 503, server.admin_address)
        assert (body["error"], body["broker_state"]) == ("The broker is stopping", "SHUTTING_DOWN")
        assert (await ask(server.admin_address, "/livez"))[0] == 200
        assert not stop.done()
        await client.close()
        await stop
        with pytest.raises(ConnectionError):
            await fetch

    uvloop.run(asyncio.wait_for(live(), EVENT_TIMEOUT_S))


SIGNALLED = """
import os, signal, sys
from ottla.broker import server, storage
from ottla.broker.config import Config, Listener
opened = storage.Storage.open

def hold(self):
    for step in opened(self):
        yield step
        if self.logs.remaining.logs == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                yield 3_000.0

storage.Storage.open = hold
sys.exit(server.run(Config(log_dirs={directory!r}, listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),))))
"""


def test_a_signal_ends_a_recovery_in_the_middle(config, killed_logs, tmp_path):
    script = SIGNALLED.format(directory=config.log_dirs)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_log_that_is_recovered_in_steps_may_be_given_up_at_any_of_them(tmp_path):
    def start():
        broker = MemoryBroker()
        disk = RealDisk()
        disk.now_ns = lambda: 0
        return Storage(Config(log_dirs=str(tmp_path / "data")), broker.clock, disk, broker.turns)

    def count_steps(storage):
        return sum(1 for _ in storage.open())

    storage = start()
    count_steps(storage)
    create_topic(storage.cluster, "ledger", 2)
    for index in range(2):
        for _ in range(3):
            assert not produce(storage.cluster.partition("ledger", index)).error
    storage.logs.abandon()
    storage = start()
    count = count_steps(storage)
    storage.logs.abandon()
    assert count > 5
    for given_up in range(1, count):
        storage = start()
        steps = storage.open()
        for _ in range(given_up):
            next(steps)
        steps.close()
        storage = start()
        count_steps(storage)
        assert [storage.cluster.partition("ledger", index).log_end_offset for index in range(2)] == [3, 3]
        storage.logs.abandon()


class Parts:
    """The part of a broker that `Health` checks."""

    remaining_to_load = 0


def test_coordinators_must_have_read_their_logs_once():
    health, parts = Health(), Parts()
    assert health.problem() == "The broker reads its metadata"
    parts.remaining_to_load = 57
    health.running(parts)
    assert health.problem() == "The coordinators read their logs: 57 partitions are left"
    assert health.remaining()["remaining_coordinators_to_load"] == 57
    parts.remaining_to_load = 0
    assert health.problem() is None
    parts.remaining_to_load = 1  # a new partition
    assert health.problem() is None


def test_a_broker_that_stops_or_has_lost_its_directory_is_ready_no_more():
    broker = MemoryBroker()
    parts = broker.assembly.broker
    health = Health()
    health.starting(parts.logs)
    health.running(parts)
    broker.advance(1.0)
    assert health.problem() is None
    parts.logs.fail(OSError(5, "Input/output error", "/data/ledger-0"))
    assert health.problem() == "The log directory is offline: the broker's log has the reason"
    assert health.state is BrokerState.RUNNING
    health.stopping()
    assert health.problem() == "The broker is stopping"


def test_health_needs_no_token_but_is_for_no_page_of_another_site():
    health = Health()
    web = Web(health_routes(health), token="correct-horse-battery")
    assert web.ask("GET", "/readyz").status == 503
    assert web.ask("GET", "/livez").value == {"status": "live"}
    assert web.ask("HEAD", "/v1/status/ready").headers["retry-after"] == "1"
    assert web.ask("GET", "/readyz", origin="http://evil.example").status == 403
    assert web.ask("POST", "/readyz").status == 401
    health.running(Parts())
    assert web.ask("GET", "/readyz").status == 200


class Logs:
    offline = None

    def __init__(self):
        self.remaining = Remaining()


def test_remaining_bytes_shrink_when_a_partition_is_opened():
    health, logs = Health(), Logs()
    health.starting(logs)
    assert health.state is BrokerState.STARTING
    logs.remaining.expect(2, {"a": 3 << 20, "b": 1 << 20})
    assert health.state is BrokerState.RECOVERY
    assert health.problem() == "The broker recovers its logs: 2 partitions are left, with 4.0 MiB to read"
    logs.remaining.finish_opening("a")
    assert health.remaining()["remaining_bytes_to_recover"] == 1 << 20


@pytest.mark.parametrize(
    ("authorizer", "token", "warned"),
    [
        ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", None, True),
        ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "correct-horse-battery", False),
        ("", None, False),
    ],
    ids=["acls and no token", "acls and a token", "no acls"],
)
def test_only_an_admin_port_with_acls_and_no_token_logs_a_warning(config, caplog, authorizer, token, warned):
    async def live():
        guarded = dataclasses.replace(config, authorizer_class_name=authorizer)
        server = Server(guarded, admin=BrokerAdmin(AdminSettings("127.0.0.1", 0, token=token)))
        await server.start()
        await server.stop()

    uvloop.run(asyncio.wait_for(live(), EVENT_TIMEOUT_S))
    assert ("--admin-token-file" in caplog.text) == warned
