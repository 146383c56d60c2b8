"""Logins of a connection at a scripted peer: the session's lifetime, and peers that break the login."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire import login
from ottla.wire.login import LoginRefused, log_in

PLAIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
SCRAM = PLAIN | {"sasl_mechanism": "SCRAM-SHA-256"}
USER = {"sasl_plain_username": "alice", "sasl_plain_password": "in wonderland"}


class Peer:
    """A peer whose SaslAuthenticate answers have these fields."""

    def __init__(self, handshake_error=0, **fields):
        self._handshake_error = handshake_error
        self._fields = {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime_ms": 0} | fields
        self.asked = []

    def send(self, message):
        self.asked.append(message.API_KEY)
        response = codec.response_class(message.API_KEY)
        if message.API_KEY == ApiKey.SASL_HANDSHAKE:
            return response(error_code=self._handshake_error, mechanisms=["GSSAPI"])
        return response(**self._fields)


@pytest.mark.parametrize(("sent_ms", "expected_ms"), [(0, 0), (5_000, 5_000), (-1, 0), (None, 0)])
def test_the_lifetime_of_a_session_is_that_of_the_answer(sent_ms, expected_ms):
    peer = Peer(session_lifetime_ms=sent_ms)
    assert log_in(peer.send, PLAIN | USER) == expected_ms
    assert peer.asked == [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]


def test_a_login_that_the_network_can_read_is_a_line_once_a_process(caplog):
    login._warn_of_readable_login.cache_clear()
    encrypted = PLAIN | USER | {"security_protocol": "SASL_SSL"}
    for options in (encrypted, PLAIN | USER, PLAIN | USER):
        log_in(Peer().send, options)
    (line,) = caplog.messages
    assert line == (
        "ottla: SASL_PLAINTEXT does not encrypt: the network sees the password (PLAIN) and all records; use SASL_SSL"
    )


def test_a_mechanism_that_the_broker_lacks_is_named_with_those_that_it_has():
    with pytest.raises(LoginRefused, match="PLAIN is refused: UNSUPPORTED_SASL_MECHANISM; the broker has GSSAPI"):
        log_in(Peer(int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)).send, PLAIN | USER)


def test_a_peer_that_never_ends_a_login_is_left(monkeypatch):
    class Endless:
        def __init__(self, **options):
            pass

        def auth_bytes(self):
            return b"x"

        def receive(self, answer):
            pass

        def is_done(self):
            return False

    monkeypatch.setattr("kafka.net.sasl.get_sasl_mechanism", lambda name: Endless)
    peer = Peer(auth_bytes=b"more")
    with pytest.raises(LoginRefused, match="more than 8 messages"):
        log_in(peer.send, PLAIN | USER)
    assert len(peer.asked) == 1 + 8


def test_a_wrong_proof_of_a_broker_is_refused():
    with pytest.raises(LoginRefused, match="SCRAM-SHA-256: the broker's answer is wrong"):
        log_in(Peer(auth_bytes=b"r=other,s=c2FsdA==,i=4096").send, SCRAM | USER)
