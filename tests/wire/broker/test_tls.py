"""TLS on real sockets: every client library, client certificates, clients without TLS, and keystores that change."""

import asyncio
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.wire import message
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

sys.path.insert(0, str(Path(__file__).parent))

from served import COMMAND, serving

PATIENCE_MS = EVENT_TIMEOUT_S * 1000
RECORDS = 40
VALUE = b"v" * 50_000
"""Large enough for a reply that is a slice of a file, read and encrypted in pieces."""


@contextmanager
def serve_tls(directory, certificates, *overrides):
    """The ports of a listener with TLS and of a plain one."""
    flags = [
        "listeners=SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates.broker}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificates.ca}",
        *overrides,
    ]
    directory.mkdir(exist_ok=True)
    with serving(directory, 2, *flags) as addresses:
        yield tuple(port for _, _, port in addresses)


def through_kafka_python(address, certificates, topic):
    own = {"ssl_certfile": certificates.client, "ssl_keyfile": certificates.client}
    config = {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_cafile": certificates.ca, **own}
    patience = {"max_block_ms": PATIENCE_MS, "request_timeout_ms": 60_000}
    with KafkaProducer(**config, **patience, transactional_id=topic) as producer:
        producer.init_transactions()
        for commit in (False, True):
            producer.begin_transaction()
            for _ in range(RECORDS):
                producer.send(topic, VALUE)
            producer.commit_transaction() if commit else producer.abort_transaction()
    consumer = KafkaConsumer(
        topic, **config, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed",
        consumer_timeout_ms=PATIENCE_MS,
    )  # fmt: skip
    try:
        return [next(consumer).value for _ in range(RECORDS)]
    finally:
        consumer.close()


def through_confluent(address, certificates, topic):
    confluent = pytest.importorskip("confluent_kafka")
    config = {
        "bootstrap.servers": address,
        "security.protocol": "ssl",
        "ssl.ca.location": str(certificates.ca),
        "ssl.certificate.location": str(certificates.client),
        "ssl.key.location": str(certificates.client),
    }
    producer = confluent.Producer({**config, "transactional.id": topic})
    producer.init_transactions(EVENT_TIMEOUT_S)
    for commit in (False, True):
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(topic, VALUE)
        producer.flush(EVENT_TIMEOUT_S)
        producer.commit_transaction(EVENT_TIMEOUT_S) if commit else producer.abort_transaction(EVENT_TIMEOUT_S)
    consumer = confluent.Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        messages = [consumer.poll(EVENT_TIMEOUT_S) for _ in range(RECORDS)]
        assert [message.error() for message in messages] == [None] * RECORDS
        return [message.value() for message in messages]
    finally:
        consumer.close()


def through_aiokafka(address, certificates, topic):
    aiokafka = pytest.importorskip("aiokafka")
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certificates.client)
    config = {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_context": context}

    async def play():
        producer = aiokafka.AIOKafkaProducer(**config, transactional_id=topic)
        async with producer, producer.transaction():
            for _ in range(RECORDS):
                await producer.send(topic, VALUE)
        consumer = aiokafka.AIOKafkaConsumer(
            topic, **config, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), EVENT_TIMEOUT_S)).value for _ in range(RECORDS)]

    return asyncio.run(play())


@pytest.fixture(scope="module")
def ports(tmp_path_factory, certificates):
    """Ports of a broker that asks every client for a certificate."""
    with serve_tls(tmp_path_factory.mktemp("secured"), certificates, "ssl.client.auth=required") as ports:
        yield ports


@pytest.mark.slow
@pytest.mark.parametrize("through", [through_kafka_python, through_confluent, through_aiokafka])
def test_a_client_with_a_certificate_commits_and_reads(ports, certificates, through):
    topic = through.__name__.replace("_", "-")
    assert through(f"localhost:{ports[0]}", certificates, topic) == [VALUE] * RECORDS


def shake_hands(port, cafile, certificate=None, **options):
    """Connect and do the TLS handshake; raise ssl.SSLError or OSError if the broker refuses it."""
    context = ssl.create_default_context(cafile=cafile)
    for name, value in options.items():
        setattr(context, name, value)
    if certificate is not None:
        context.load_cert_chain(certificate)
    plain = socket.create_connection(("127.0.0.1", port), timeout=EVENT_TIMEOUT_S)
    return context.wrap_socket(plain, server_hostname="localhost")


def test_a_refused_client_gets_a_tls_alert_with_the_reason(ports, certificates, other_certificates):
    """Otherwise a client believes that the broker is down and retries until its timeout."""
    for certificate, alert in ((None, "CERTIFICATE_REQUIRED"), (other_certificates.client, "UNKNOWN_CA")):
        connection = shake_hands(ports[0], certificates.ca, certificate)
        with pytest.raises(ssl.SSLError) as told:
            connection.recv(1)
        assert alert in str(told.value)
    with pytest.raises(ssl.SSLError, match="ALERT_HANDSHAKE_FAILURE"):
        shake_hands(ports[0], certificates.ca, maximum_version=ssl.TLSVersion.TLSv1_2)


def await_end(connection):
    """Read until the broker closes the connection. Raises TimeoutError if it does not."""
    with suppress(ConnectionError):
        while connection.recv(4_096):
            pass


def test_requests_without_tls_and_http_requests_are_named_in_the_log(tmp_path, certificates):
    with serve_tls(tmp_path, certificates) as (encrypted, plain):
        for first in (b"\x00\x00\x00\x10\x00\x12\x00\x03", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000):
            with socket.create_connection(("127.0.0.1", encrypted), timeout=EVENT_TIMEOUT_S) as client:
                client.sendall(first)
                await_end(client)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shake_hands(plain, certificates.ca)
        shake_hands(encrypted, certificates.ca).close()
    log = (tmp_path / "log").read_text()
    assert "it does not use TLS on a listener with SSL: give the client security.protocol=SSL" in log
    assert "an HTTP request arrived on a listener with SSL" in log
    assert "a TLS handshake arrived on a listener without TLS" in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_200_tls_handshakes_from_50_threads_succeed(ports, certificates):
    with ThreadPoolExecutor(50) as pool:
        connections = [*pool.map(lambda _: shake_hands(ports[0], certificates.ca, certificates.client), range(200))]
    assert {connection.version() for connection in connections} == {"TLSv1.3"}
    for connection in connections:
        connection.close()


def alter(port, **values):
    """Alter configs of the broker and return the error and its message."""
    request = codec.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    resource = request.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=name, config_operation=0, value=str(value)) for name, value in values.items()
    ]
    asked = request(resources=[resource(resource_type=4, resource_name="1", configs=configs)], validate_only=False)
    with BlockingConnection("127.0.0.1", port, timeout_s=EVENT_TIMEOUT_S) as connection:
        (row,) = connection.send(asked, version=1).responses
    return row.error_code, row.error_message


@pytest.mark.slow
def test_a_keystore_is_exchanged_while_clients_are_there(tmp_path, certificates, other_certificates):
    name = "listener.name.ssl.ssl.keystore.location"
    with serve_tls(tmp_path, certificates) as (encrypted, plain):
        stays = shake_hands(encrypted, certificates.ca)
        error, text = alter(plain, **{name: "/no/such.pem"})
        assert error == ErrorCode.INVALID_REQUEST and "ssl.keystore.location /no/such.pem: No such file" in text
        shake_hands(encrypted, certificates.ca).close()
        assert alter(plain, **{name: other_certificates.broker}) == (0, None)
        shake_hands(encrypted, other_certificates.ca).close()
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(encrypted, certificates.ca)
        stays.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\x00\x00")
        assert stays.recv(8)[4:] == b"\x00\x00\x00\x07"
        stays.close()
    log = (tmp_path / "log").read_text()
    assert "Listener SSL uses its new keystore" in log


def wait_for_line(log, line):
    """Wait until the broker has logged it."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while line not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@pytest.mark.slow
def test_a_daemon_takes_its_keystores_at_a_hangup(tmp_path, certificates, other_certificates):
    keystore = tmp_path / "broker.pem"
    shutil.copy(certificates.broker, keystore)
    with serve_tls(tmp_path, certificates, f"ssl.keystore.location={keystore}") as (encrypted, _):
        stays = shake_hands(encrypted, certificates.ca)
        shutil.copy(other_certificates.broker, keystore)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGHUP)
        wait_for_line(tmp_path / "log", "Listener SSL uses its new keystore")
        shake_hands(encrypted, other_certificates.ca).close()
        stays.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\x00\x00")
        assert stays.recv(8)[4:] == b"\x00\x00\x00\x07"
        stays.close()
        keystore.write_text("half of a")
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGHUP)
        wait_for_line(tmp_path / "log", "the previous certificate stays in use")
        shake_hands(encrypted, other_certificates.ca).close()


IN_A_TERMINAL = """
import os, pty, sys
process_id, terminal = pty.fork()
if process_id == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said = b""
while b"ready SSL" not in said:  # what it had still to say could not be said
    said += os.read(terminal, 4096)
os.close(terminal)
_, status = os.waitpid(process_id, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_broker_stops_when_its_terminal_is_closed(tmp_path, certificates):
    """The broker ends although it has a keystore: without the terminal no user can stop it with Ctrl-C."""
    flags = ["listeners=SSL://127.0.0.1:0", "ssl.keystore.type=PEM", f"ssl.keystore.location={certificates.broker}"]
    command = [*COMMAND, "--data-dir", tmp_path / "data"]
    command += [word for flag in flags for word in ("--override", flag)]
    assert subprocess.run([sys.executable, "-c", IN_A_TERMINAL, *command], timeout=EVENT_TIMEOUT_S).returncode == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_an_invalid_keystore_is_reported_at_the_start(tmp_path, certificates):
    flags = ["listeners=SSL://127.0.0.1:0", "ssl.keystore.type=PEM", f"ssl.keystore.location={certificates.ca}"]
    command = [*COMMAND, "--data-dir", tmp_path / "d", *(word for flag in flags for word in ("--override", flag))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search(r"Listener SSL: ssl.keystore.location .*ca.pem: expected one PRIVATE KEY", done.stderr)


def may_create(connection, topic):
    """Create a topic and return the error, or None if the broker closes the connection."""
    row = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    asked = message(ApiKey.CREATE_TOPICS, 5, topics=[row], timeout_ms=60_000, validate_only=False)
    try:
        connection.sendall(codec.encode_request(asked, 5, 1, "by hand"))
        with connection.makefile("rb") as stream:
            size = stream.read(4)
            frame = stream.read(int.from_bytes(size, "big"))
    except OSError:
        return None
    return codec.decode_response(ApiKey.CREATE_TOPICS, 5, frame)[1].topics[0].error_code if frame else None


AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def test_the_owner_of_a_certificate_is_who_acls_are_about(tmp_path, certificates):
    flags = [
        "ssl.client.auth=requested",
        AUTHORIZER,
        "super.users=User:CLIENT",
        "ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/U,DEFAULT",
    ]
    with serve_tls(tmp_path, certificates, *flags) as (port, _):
        with shake_hands(port, certificates.ca, certificates.client) as connection:
            assert may_create(connection, "own") == ErrorCode.NONE
        with shake_hands(port, certificates.ca) as nobody:
            assert may_create(nobody, "other") == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.slow
def test_a_certificate_that_matches_no_mapping_rule_is_refused(tmp_path, certificates):
    flags = ["ssl.client.auth=requested", "ssl.principal.mapping.rules=RULE:^CN=x$/x/"]
    with serve_tls(tmp_path, certificates, *flags) as (port, _):
        with shake_hands(port, certificates.ca, certificates.client) as connection:
            assert may_create(connection, "own") is None
        with shake_hands(port, certificates.ca) as nobody:
            assert may_create(nobody, "other") == ErrorCode.NONE
    log = (tmp_path / "log").read_text()
    assert "no rule of ssl.principal.mapping.rules matches the name in its certificate, CN=client" in log
    assert "Traceback" not in log
