"""Logging in on real sockets: every client library by PLAIN, with and without TLS, and hostile clients."""

import contextlib
import socket
import ssl
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.furnish import message
from tests.timeout import EVENT_TIMEOUT_S

sys.path.insert(0, str(Path(__file__).parent))

from logged_in import LIBRARIES, VALUES, Login
from served import COMMAND, serving

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "in wonderland"
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL")
ALICE = b"\0alice\0in wonderland"


@contextlib.contextmanager
def serve_sasl(directory, certificates, *overrides):
    """Yield the ports of listeners with SASL, by name."""
    flags = [
        "listeners=SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms=PLAIN",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates.broker}",
        *(
            f'listener.name.{name.lower()}.plain.sasl.jaas.config={MODULE} required user_alice="{PASSWORD}";'
            for name in LISTENERS
        ),
        *overrides,
    ]
    directory.mkdir(exist_ok=True)
    with serving(directory, 2, *flags) as addresses:
        yield {name: port for name, _, port in addresses}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("sasl")


@pytest.fixture(scope="module")
def ports(directory, certificates):
    with serve_sasl(directory, certificates) as ports:
        yield ports


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("through", LIBRARIES)
def test_a_client_logs_in_commits_and_reads(ports, certificates, through, listener):
    topic = f"{through.__name__}-{listener}".replace("_", "-")
    address = f"localhost:{ports[listener]}"
    login = Login("PLAIN", "alice", PASSWORD, protocol=listener, ca=certificates.ca)
    assert through(address, login, topic) == VALUES


def test_a_wrong_password_is_reported_to_the_client_and_logged(ports, directory):
    confluent = pytest.importorskip("confluent_kafka")
    errors = []
    config = {
        "bootstrap.servers": f"localhost:{ports['SASL_PLAINTEXT']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "hunter2",
        "error_cb": errors.append,
    }
    producer = confluent.Producer(config)
    until = time.monotonic() + EVENT_TIMEOUT_S
    while not errors and time.monotonic() < until:
        producer.poll(0.1)
    assert errors[0].code() == confluent.KafkaError._AUTHENTICATION
    assert "Invalid username or password" in errors[0].str()
    log = (directory / "log").read_text()
    assert "Failed authentication: PLAIN as 'alice': the password is wrong" in log and "hunter2" not in log


class Wire:
    """A socket for frames written by hand."""

    def __init__(self, port, ca=None):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=EVENT_TIMEOUT_S)
        if ca is not None:
            context = ssl.create_default_context(cafile=ca)
            self._socket = context.wrap_socket(self._socket, server_hostname="localhost")

    def send(self, data):
        self._socket.sendall(data)

    def frame(self, data):
        """Send a frame and return the answer, or None if the broker closes the connection."""
        self.send(struct.pack(">i", len(data)) + data)
        return self.answer()

    def answer(self):
        """Return the next frame, or None if the broker closes the connection. Raises TimeoutError without either."""
        try:
            size = self._take(4)
            return None if size is None else self._take(*struct.unpack(">i", size))
        except ConnectionError:
            return None

    def _take(self, size):
        taken = b""
        while len(taken) < size:
            more = self._socket.recv(size - len(taken))
            if not more:
                return None
            taken += more
        return taken

    def ask(self, api_key, version, **fields):
        """Send a request and return the reply, or None if the broker closes the connection."""
        with contextlib.suppress(ConnectionError):
            self.send(codec.encode_request(message(api_key, version, **fields), version, 7, "by hand"))
        found = self.answer()
        return None if found is None else codec.decode_response(api_key, version, found)[1]

    def handshake(self, mechanism="PLAIN", version=1):
        return self.ask(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)

    def token(self, token=ALICE):
        return self.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token)

    def works(self):
        return self.ask(ApiKey.METADATA, 5, topics=[], allow_auto_topic_creation=False) is not None


@pytest.fixture
def wire(ports):
    return Wire(ports["SASL_PLAINTEXT"])


def test_tokens_as_frames_of_their_own_log_in(ports, certificates):
    for wire in (Wire(ports["SASL_PLAINTEXT"]), Wire(ports["SASL_SSL"], certificates.ca)):
        assert wire.handshake(version=0).error_code == 0
        assert wire.frame(ALICE) == b"" and wire.works()


def test_a_login_in_pieces_of_a_byte_succeeds(wire):
    assert wire.handshake().error_code == 0
    for byte in codec.encode_request(message(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=ALICE), 2, 7, "by hand"):
        wire.send(bytes([byte]))
    assert wire.answer() is not None and wire.works()


def test_all_of_a_login_in_one_piece_succeeds(wire):
    asked = (
        (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
        (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": ALICE}),
        (ApiKey.METADATA, 5, {"topics": [], "allow_auto_topic_creation": False}),
    )
    wire.send(b"".join(codec.encode_request(message(key, at, **body), at, 7, "x") for key, at, body in asked))
    assert None not in [wire.answer() for _ in asked]


BAD_TOKENS = {
    "authzid of another user": b"bob" + ALICE,
    "no such user": b"\0carol\0in wonderland",
    "no password": b"\0alice\0",
    "no name": b"\0\0in wonderland",
    "cut": ALICE[:-1],
    "too many parts": ALICE + b"\0",
    "empty": b"",
    "no text": b"\xff\xfe" * 500,
    "much": b"\0alice\0" + b"x" * 500_000,
}


@pytest.mark.parametrize("token", BAD_TOKENS.values(), ids=BAD_TOKENS)
@pytest.mark.parametrize("version", [0, 1])
def test_a_bad_sasl_token_is_refused(wire, version, token):
    assert wire.handshake(version=version).error_code == 0
    if version:
        assert wire.token(token).error_code == 58
        assert not wire.works()
    else:
        assert wire.frame(token) is None


@pytest.mark.parametrize("name", ["GSSAPI", "SCRAM-SHA-512", "plain", "", "x" * 30_000])
def test_an_unsupported_mechanism_is_refused(wire, name):
    assert wire.handshake(name).error_code == 33
    assert not wire.works()


def test_requests_before_the_login_are_refused(ports):
    port = ports["SASL_PLAINTEXT"]
    for before in ((), ("handshake",)):
        wire = Wire(port)
        for call in before:
            assert getattr(wire, call)().error_code == 0
        assert not wire.works()
    assert Wire(port).token() is None


def test_a_second_handshake_is_refused(wire):
    assert wire.handshake().error_code == 0
    assert wire.handshake().error_code == 34
    assert wire.token() is None


BAD_BYTES = {
    "cut SaslAuthenticate": struct.pack(">ihhih", 10, 36, 2, 1, -1),
    "token of Kerberos": struct.pack(">i", 100) + b"\x60\x82\2\3" * 25,
    "too large": struct.pack(">ihh", 524_289, 36, 2),
    "no size": struct.pack(">i", -1) + b"x" * 100,
    "negative token": struct.pack(">ihhihi", 14, 36, 0, 1, -1, -5),
    "more than there is": struct.pack(">ihhihi", 14, 36, 0, 1, -1, 1 << 30),
}


@pytest.mark.parametrize("data", BAD_BYTES.values(), ids=BAD_BYTES)
@pytest.mark.parametrize("chooses", [False, True])
def test_malformed_bytes_before_a_login_get_no_reply(wire, directory, data, chooses):
    if chooses:
        assert wire.handshake().error_code == 0
    wire.send(data)
    assert wire.answer() is None
    assert "Traceback" not in (directory / "log").read_text()


def test_a_listener_without_a_mechanism_that_is_served_is_refused_by_name(tmp_path):
    flags = ["listeners=SASL_PLAINTEXT://127.0.0.1:0"]
    command = [*COMMAND, "--data-dir", tmp_path / "d", *(word for flag in flags for word in ("--override", flag))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    told = "sasl.enabled.mechanisms: GSSAPI is not supported. Set listener.name.sasl_plaintext.sasl.enabled.mechanisms"
    assert f"Listener SASL_PLAINTEXT: {told}" in done.stderr


def test_passwords_are_in_neither_the_log_nor_the_configs(ports, directory):
    for password, error in ((PASSWORD, 0), ("a secret of another", 58)):
        wire = Wire(ports["SASL_PLAINTEXT"])
        assert wire.handshake().error_code == 0
        assert wire.token(f"\0alice\0{password}".encode()).error_code == error
    log = (directory / "log").read_text()
    assert PASSWORD not in log and "a secret" not in log and "Traceback" not in log
    users = f'listener.name.x.plain.sasl.jaas.config={MODULE} required user_alice="{PASSWORD}";'
    command = [*COMMAND[:-1], "configs", "--override", users, "--override", f"ssl.keystore.password={PASSWORD}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ssl.keystore.password  [hidden]" in done.stdout and PASSWORD not in done.stdout
