"""OAUTHBEARER sessions end when the token expires and continue after a login with another token of the same user."""

import json
from base64 import urlsafe_b64encode

import pytest

from ottla.broker.config import Listener
from ottla.protocol.errors import ErrorCode as E
from tests.api.login_clients import NAME, REFUSED_MS, Guest
from tests.memory_broker import MemoryBroker

UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


@pytest.fixture
def guest():
    broker = MemoryBroker(
        listeners=(Listener(NAME, "127.0.0.1", 9092),),
        sasl_enabled_mechanisms="OAUTHBEARER",
        listener_options={NAME: {"oauthbearer.sasl.server.callback.handler.class": UNSECURED}},
    )
    made = Guest(broker)
    yield made
    assert broker.bugs == []


def for_ms(guest, lifetime_ms, name="alice"):
    """Return a message with a token that is valid for that time."""
    ends_s = guest.broker.assembly.broker.clock.now_ms() / 1000 + lifetime_ms / 1000
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, {"sub": name, "exp": ends_s}))
    token = ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    return f"n,,\x01auth=Bearer {token}.\x01\x01".encode()


def log_in(guest, message, wait_ms=1.0):
    assert guest.handshake("OAUTHBEARER").error_code == E.NONE
    return guest.token(message, for_ms=wait_ms)


def test_a_session_ends_with_its_token(guest):
    reply = log_in(guest, for_ms(guest, 10_000))
    assert (reply.error_code, guest.principal) == (E.NONE, "User:alice")
    assert 9_990 < reply.session_lifetime_ms <= 10_000
    guest.broker.advance(9_900)
    assert guest.works()
    guest.broker.advance(200)
    assert not guest.works() and guest.closed


def test_another_token_keeps_it(guest):
    log_in(guest, for_ms(guest, 10_000))
    guest.broker.advance(9_000)
    assert log_in(guest, for_ms(guest, 60_000)).session_lifetime_ms > 59_000
    guest.broker.advance(30_000)
    assert guest.works()


def test_a_token_of_another_user_does_not(guest):
    log_in(guest, for_ms(guest, 10_000))
    guest.broker.advance(5_000)
    assert log_in(guest, for_ms(guest, 60_000, "bob"), REFUSED_MS).error_code == E.SASL_AUTHENTICATION_FAILED
    assert guest.closed


def test_a_token_that_is_refused_is_answered_before_the_login_fails(guest):
    reply = log_in(guest, for_ms(guest, -1))
    assert (reply.error_code, reply.auth_bytes) == (E.NONE, b'{"status":"invalid_token"}')
    reply = guest.token(b"\x01", for_ms=REFUSED_MS)
    assert (reply.error_code, reply.error_message) == (E.SASL_AUTHENTICATION_FAILED, '{"status":"invalid_token"}')
    assert guest.closed
