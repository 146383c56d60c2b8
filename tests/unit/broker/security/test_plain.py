"""Logins by PLAIN: a name and a password in the clear, with the answers of Kafka's PlainSaslServer."""

from hashlib import pbkdf2_hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.hashed import HashedPasswords
from ottla.broker.security.mechanism import SaslFailed
from ottla.broker.security.plain import PlainServer
from ottla.broker.security.scram import ScramMechanism, ScramUsers, credential
from ottla.broker.turns import Turns
from tests.unit.broker.security.logging_in import answer, refusal

USERS = {"alice": "alice-secret", "bob": "bob-secret", "zoë": "pässword"}
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
WRONG = "Authentication failed: Invalid username or password"


def token(*fields):
    return "\0".join(fields).encode()


@pytest.mark.parametrize("wanted", ["", "alice"])
def test_a_login_with_the_right_password_succeeds(wanted):
    server = PlainServer(USERS)
    assert answer(server, token(wanted, "alice", "alice-secret")) == b""
    assert (server.complete, server.principal, server.expires_at_ms) == (True, "User:alice", None)


def test_names_and_passwords_are_in_any_language():
    server = PlainServer(USERS)
    answer(server, token("", "zoë", "pässword"))
    assert server.principal == "User:zoë"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (("", "alice", "wrong"), WRONG),
        (("", "alice", "alice-secret "), WRONG),
        (("", "alice", "bob-secret"), WRONG),
        (("", "nobody", "alice-secret"), WRONG),
        (("bob", "alice", "wrong"), WRONG),
        (
            ("bob", "alice", "alice-secret"),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (("", "", "alice-secret"), "Authentication failed: username not specified"),
        (("", "alice", ""), "Authentication failed: password not specified"),
        (("alice",), "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (("alice", "alice-secret"), "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (("", "alice", "alice-secret", ""), "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (("",) * 9, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_a_failed_login_gets_kafkas_error_message(fields, told):
    assert refusal(PlainServer(USERS), token(*fields)).message == told


def test_only_the_log_distinguishes_a_wrong_password_from_a_wrong_name():
    password, name = (refusal(PlainServer(USERS), token("", who, "x")) for who in ("alice", "nobody"))
    assert password.message == name.message
    assert (password.reason, name.reason) == (
        "PLAIN as 'alice': the password is wrong",
        "PLAIN as 'nobody': no user has this name",
    )


def test_no_password_is_in_a_reason():
    for who in ("alice", "nobody"):
        assert "s3cr3t" not in str(refusal(PlainServer(USERS), token("", who, "s3cr3t")))


def test_a_token_without_end_is_not_read():
    assert "5000 bytes" in refusal(PlainServer(USERS), b"\0alice\0" + b"x" * 4_993).reason


@given(st.binary(max_size=200) | st.lists(st.text(max_size=8), max_size=5).map(lambda parts: token(*parts)))
def test_any_bytes_are_answered_or_refused(given_bytes):
    server = PlainServer(USERS)
    try:
        answer(server, given_bytes)
    except SaslFailed:
        assert not server.complete
    else:
        assert server.principal.removeprefix("User:") in USERS


# ---- passwords that the metadata keeps as hashes


class Elsewhere:
    """Worker threads whose calls run when the test runs them."""

    def __init__(self):
        self.calls = []
        self.most = 0

    def start(self, call, on_end):
        self.calls.append((call, on_end))
        self.most = max(self.most, len(self.calls))

    def run(self):
        call, on_end = self.calls.pop(0)
        on_end(call(), None)


class Hashed:
    """Users: alice has both kinds of credentials, bob has one, and dora is in the JAAS entry."""

    def __init__(self):
        made = [
            credential(name, mechanism, b"salt", pbkdf2_hmac(mechanism.hash_name, password, b"salt", rounds), rounds)
            for name, mechanism, password, rounds in (
                ("alice", SHA_256, b"alice-secret", 4096),
                ("alice", SHA_512, b"alice-secret", 4096),
                ("bob", SHA_256, b"b" * 300, 4096),
            )
        ]
        users = ScramUsers({(each.name, each.mechanism): each for each in made}, lambda size: b"x" * size)
        self.later = []
        self.turns = Turns(self.later.append, self.later.append)
        self.elsewhere = Elsewhere()
        self.passwords = HashedPasswords(users, self.turns, self.elsewhere)

    def begin(self, name, password):
        """A login under way, and what comes of it: the principal, or the SaslFailed."""
        server, found = PlainServer({"dora": "d"}, self.passwords), []
        evaluating = server.evaluate(token("", name, password))
        activity = self.turns.start(evaluating, lambda _: found.append(server.principal), found.append)
        return activity, found

    def log_in(self, name, password):
        _, found = self.begin(name, password)
        while not found:
            self.turns.event(self.elsewhere.run)
        return found[0]


@pytest.mark.parametrize(
    ("name", "password", "reason"),
    [
        ("alice", "alice-secret", None),
        ("bob", "b" * 300, None),
        ("dora", "d", None),
        ("alice", "bob-secret", "the password is wrong"),
        ("bob", "b" * 299, "the password is wrong"),
        ("dora", "alice-secret", "the password is wrong"),
        ("nobody", "alice-secret", "no user has this name"),
    ],
)
def test_passwords_are_held_against_hashes(name, password, reason):
    found = Hashed().log_in(name, password)
    if reason is None:
        assert found == f"User:{name}"
    else:
        assert (found.reason, found.message) == (f"PLAIN as {name!r}: {reason}", WRONG)


def test_the_password_of_an_unknown_name_is_hashed_too():
    hashed = Hashed()
    for name in ("alice", "nobody"):
        hashed.begin(name, "x")
        assert len(hashed.elsewhere.calls) == 1
        hashed.turns.event(hashed.elsewhere.run)


def test_one_password_is_hashed_at_a_time_despite_discarded_logins():
    hashed = Hashed()
    logins = [hashed.begin("alice", "alice-secret") for _ in range(4)]
    hashed.turns.event(logins[0][0].discard)
    hashed.turns.event(logins[2][0].discard)
    while hashed.elsewhere.calls:
        hashed.turns.event(hashed.elsewhere.run)
    assert [found for _, found in logins] == [[], ["User:alice"], [], ["User:alice"]]
    assert hashed.elsewhere.most == 1
