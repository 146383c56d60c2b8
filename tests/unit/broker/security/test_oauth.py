"""Logins by OAUTHBEARER: messages of a client, and the reply when its token is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.mechanism import SaslFailed
from ottla.broker.security.oauth import TOKEN_BYTES_MOST, Checked, OAuthServer, TokenRefused
from tests.unit.broker.security.logging_in import answer, refusal

INVALID = '{"status":"invalid_token"}'


class Tokens:
    """A validator that accepts a single token."""

    async def check(self, token):
        if token == "scope":
            raise TokenRefused("it lacks a scope", "[write]")
        if token != "good":
            raise TokenRefused("it is not good")
        return Checked("alice", 1_000.0)


def first(token="good", header="n,,", pairs="", scheme="Bearer"):
    return f"{header}\x01auth={scheme} {token}\x01{pairs}\x01".encode()


@pytest.mark.parametrize(
    "message",
    [
        first(),
        first(header="n,a=alice,"),
        first(scheme="bEARER "),
        first(pairs="key=value\x01logicalCluster=lkc-1\x01"),
        b"n,,\x01key=value\x01auth=Bearer good\x01\x01",
    ],
)
def test_a_valid_token_is_accepted_until_it_expires(message):
    server = OAuthServer(Tokens())
    assert answer(server, message) == b""
    assert (server.complete, server.principal, server.expires_at_ms) == (True, "User:alice", 1_000.0)


@pytest.mark.parametrize("last", [b"\x01", b"", first()])
def test_an_invalid_token_gets_an_error_and_fails_at_the_next_message(last):
    server = OAuthServer(Tokens())
    assert answer(server, first("bad")) == INVALID.encode()
    failed = refusal(server, last)
    assert (failed.message, failed.reason) == (INVALID, "the token is refused: it is not good")


def test_a_missing_scope_is_named_in_the_error():
    assert answer(OAuthServer(Tokens()), first("scope")) == b'{"status": "insufficient_scope", "scope": "[write]"}'


def test_an_authorization_id_of_another_user_is_refused():
    told = refusal(OAuthServer(Tokens()), first(header="n,a=bob,")).message
    assert told == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's "
        "principal name (alice)"
    )


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "Invalid OAUTHBEARER client first message"),
        (b"\x01", "Invalid OAUTHBEARER client first message"),
        (b"\x00alice\x00secret", "Invalid OAUTHBEARER client first message"),
        (first(header="y,,"), "Invalid OAUTHBEARER client first message"),
        (first(header="p=x,,"), "Invalid OAUTHBEARER client first message"),
        (first(header="n,"), "Invalid OAUTHBEARER client first message"),
        (first(header="n,a=,"), "Invalid OAUTHBEARER client first message"),
        (first(header="n,a=zoë,"), "Invalid OAUTHBEARER client first message"),
        (first(pairs="key"), "Invalid OAUTHBEARER client first message"),
        (first(pairs="k1=value\x01"), "Invalid OAUTHBEARER client first message"),
        (first(pairs="key=välue\x01"), "Invalid OAUTHBEARER client first message"),
        (first()[:-1], "Invalid OAUTHBEARER client first message"),
        (first() + b"x", "Invalid OAUTHBEARER client first message"),
        (b"n,,\x01\x01", "Invalid OAUTHBEARER client first message: 'auth' not specified"),
        (b"n,,\x01key=value\x01\x01", "Invalid OAUTHBEARER client first message: 'auth' not specified"),
        (b"n,,\x01auth=Bearer\x01\x01", "Invalid OAUTHBEARER client first message: invalid 'auth' format"),
        (first("go od"), "Invalid OAUTHBEARER client first message: invalid 'auth' format"),
        (first("=="), "Invalid OAUTHBEARER client first message: invalid 'auth' format"),
        (first(scheme="Basic"), "Invalid scheme in OAUTHBEARER client first message"),
        (first(pairs="auth=Bearer bad\x01"), "Invalid OAUTHBEARER client first message: a key occurs twice"),
        (b"n,,\x01" + b"x" * TOKEN_BYTES_MOST, f"an OAUTHBEARER message of {TOKEN_BYTES_MOST + 4} bytes"),
    ],
)
def test_a_message_that_is_none_is_refused(message, reason):
    failed = refusal(OAuthServer(Tokens()), message)
    assert failed.reason.startswith(reason) and failed.message == ""


_PIECES = st.sampled_from(["n,", "a=", ",", "\x01", "auth=", "Bearer ", "good", "bad", "key=value", "é", "\0", "="])


@given(st.lists(st.binary(max_size=100) | st.lists(_PIECES, max_size=12).map(lambda parts: "".join(parts).encode())))
def test_any_bytes_are_answered_or_refused(messages):
    server = OAuthServer(Tokens())
    for message in messages:
        with suppress(SaslFailed):
            answer(server, message)
        if server.complete:
            assert server.principal == "User:alice"
            return
