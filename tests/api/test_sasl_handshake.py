"""SaslHandshake, and the requests that a client may send before it has logged in."""

import struct

import pytest

from ottla.broker.connection import LINGER_MS
from ottla.broker.security.session import ANONYMOUS, LOGIN_MS
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.wire import message
from tests.api.login_clients import ALICE, DELAY_MS, NAME, REFUSED_MS, Guest, lone_with_logins
from tests.memory_broker import MemoryBroker


@pytest.fixture
def broker():
    return lone_with_logins()


@pytest.fixture
def guest(broker):
    return Guest(broker)


@pytest.mark.parametrize("version", [0, 1])
def test_a_mechanism_that_is_enabled_may_be_chosen(guest, version):
    reply = guest.handshake(version=version)
    assert (reply.error_code, reply.mechanisms) == (ErrorCode.NONE, ["PLAIN", "SCRAM-SHA-256"])
    assert not guest.closed and guest.principal == ANONYMOUS


@pytest.mark.parametrize("name", ["GSSAPI", "SCRAM-SHA-512", "plain", ""])
@pytest.mark.parametrize("version", [0, 1])
def test_an_unsupported_mechanism_gets_the_enabled_ones_and_is_closed(guest, caplog, version, name):
    assert guest.handshake(name, version, for_ms=DELAY_MS - 10) is None and not guest.closed
    guest.broker.advance(20)
    (frame,) = guest.frames()
    assert not guest.closed
    guest.broker.advance(LINGER_MS)
    reply = codec.decode_response(ApiKey.SASL_HANDSHAKE, version, frame)[1]
    assert (reply.error_code, reply.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", "SCRAM-SHA-256"])
    assert guest.closed
    (line,) = caplog.messages
    assert f"SaslHandshake v{version}: Unsupported SASL mechanism {name!r}" in line


def test_a_long_name_of_a_mechanism_does_not_fill_the_log(guest, caplog):
    guest.handshake("x" * 30_000, for_ms=REFUSED_MS)
    assert guest.closed and len(caplog.text) < 500


@pytest.mark.parametrize(
    ("api_key", "version", "fields"),
    [
        (ApiKey.METADATA, 5, {"topics": [], "allow_auto_topic_creation": True}),
        (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": ALICE}),
        (ApiKey.PRODUCE, 9, {"transactional_id": None, "acks": -1, "timeout_ms": 1, "topic_data": []}),
    ],
)
@pytest.mark.parametrize("first", [(), ("versions",)])
def test_a_request_before_the_handshake_closes_the_connection(guest, caplog, first, api_key, version, fields):
    for call in first:
        assert getattr(guest, call)().error_code == 0
    assert guest.ask(api_key, version, **fields) is None and guest.closed
    (line,) = caplog.messages
    assert f"{api_key.title} v{version}: Unexpected Kafka request of type {api_key.name} during SASL handshake." in line


def test_an_unknown_api_key_closes_the_connection(guest, caplog):
    guest.frame(b"\x03\xe7\0\0\0\0\0\1\xff\xff")
    assert guest.closed and "Unexpected Kafka request of type 999" in caplog.text


@pytest.mark.parametrize(
    "data",
    [
        bytes(4),
        b"\0\0\0\1\0",
        struct.pack(">i", 100) + b"\x60\x82\2\3" * 25,
        struct.pack(">i", 100) + b"\xff" * 100,
        struct.pack(">ihhih", 10, 36, 2, 1, -1),
        struct.pack(">ihh", 524_289, 36, 2),
        struct.pack(">i", -1) + b"x" * 100,
        struct.pack(">ihhihi", 14, 36, 0, 1, -1, -5),
        struct.pack(">ihhihi", 14, 36, 0, 1, -1, 1 << 30),
    ],
    ids=[
        "empty",
        "one byte",
        "token of Kerberos",
        "ones",
        "cut SaslAuthenticate",
        "too large",
        "no size",
        "negative token",
        "more than there is",
    ],
)
@pytest.mark.parametrize("chooses", [False, True])
def test_malformed_bytes_before_a_login_get_no_reply(broker, data, chooses):
    guest = Guest(broker)
    if chooses:
        assert guest.handshake().error_code == ErrorCode.NONE
    assert guest.send(data) == []
    assert guest.closed and broker.bugs == []


def test_api_versions_is_served_once_before_the_handshake(guest, caplog):
    told = guest.versions()
    assert {(row.api_key, row.min_version, row.max_version) for row in told.api_keys} >= {(17, 0, 1), (36, 0, 2)}
    assert guest.versions() is None and guest.closed
    assert "Unexpected Kafka request of type API_VERSIONS during SASL handshake" in caplog.text


def test_api_versions_may_be_repeated_after_an_unsupported_version(guest):
    asked = message(ApiKey.API_VERSIONS, 4, client_software_name="x", client_software_version="1")
    frame = bytearray(codec.encode_request(asked, 4, 1, "client"))
    frame[6:8] = b"\0\x7f"  # the version
    assert guest.send(bytes(frame))[0][4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    assert guest.versions(0).error_code == 0
    assert guest.log_in() and guest.works()


def test_a_second_handshake_is_an_illegal_state_and_closes(guest, caplog):
    guest.handshake()
    reply = guest.handshake(for_ms=REFUSED_MS)
    assert (reply.error_code, reply.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, []) and guest.closed
    assert "Unexpected Kafka request of type SASL_HANDSHAKE during SASL authentication." in caplog.text


def test_between_handshake_and_token_nothing_else_is_served(guest, caplog):
    guest.handshake()
    assert guest.versions() is None and guest.closed
    assert "Unexpected Kafka request of type API_VERSIONS during SASL authentication." in caplog.text


def test_a_handshake_after_a_login_without_expiry_is_an_illegal_state(guest):
    assert guest.log_in()
    reply = guest.handshake()
    assert (reply.error_code, reply.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert guest.works()


def test_sasl_on_a_plaintext_listener_is_an_illegal_state():
    guest = Guest(MemoryBroker(), "PLAINTEXT")
    assert guest.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert guest.token().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert guest.works()


def test_a_client_that_has_not_logged_in_within_60_s_is_closed(broker, caplog):
    guest, slow, member = Guest(broker), Guest(broker), Guest(broker)
    assert member.log_in()
    slow.handshake()
    broker.advance(LOGIN_MS - 100)
    assert not guest.closed and not slow.closed
    broker.advance(200)
    assert guest.closed and slow.closed and member.works()
    assert caplog.text.count("it has not logged in within 60 s") == 2


def test_a_client_that_disconnects_before_its_login_is_not_logged(broker, caplog):
    guest = Guest(broker)
    guest.handshake()
    guest.connection.connection_lost(None)
    broker.advance(LOGIN_MS + 100)
    assert not caplog.messages and broker.bugs == []


def test_all_of_a_login_in_one_piece_or_in_single_bytes_succeeds(broker):
    asked = (
        (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
        (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": ALICE}),
        (ApiKey.METADATA, 5, {"topics": [], "allow_auto_topic_creation": False}),
    )
    data = b"".join(codec.encode_request(message(key, at, **body), at, 7, "x") for key, at, body in asked)
    assert len(Guest(broker).send(data)) == 3
    guest = Guest(broker)
    assert sum(len(guest.send(bytes([byte]))) for byte in data) == 3


def test_a_request_before_the_login_is_of_a_limited_size(broker, caplog):
    guest = Guest(broker)
    guest.send((524_289).to_bytes(4, "big") + b"\0\x24\0\2")
    assert guest.closed and "524288" in caplog.text
    member = Guest(broker)
    assert member.log_in()
    member.send((1_000_000).to_bytes(4, "big") + b"\0\x03\0\5")
    assert not member.closed


def test_the_size_is_an_option_of_the_listener():
    guest = Guest(lone_with_logins({"sasl.server.max.receive.size": "100"}))
    guest.send((101).to_bytes(4, "big") + b"\0\x24")
    assert guest.closed


def test_logins_are_counted_by_what_became_of_them(broker):
    assert Guest(broker).log_in() and not Guest(broker).works()
    Guest(broker).handshake("GSSAPI", for_ms=REFUSED_MS)
    wrong = Guest(broker)
    wrong.handshake()
    wrong.token(b"\0alice\0x", for_ms=REFUSED_MS)
    counts = broker.assembly.broker.mechanisms[NAME].counts
    assert (counts.logged_in, counts.failed) == (1, 3)
