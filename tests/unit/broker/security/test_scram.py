"""Logins by SCRAM, with the client of kafka-python; refused logins and their errors."""

import hashlib
from base64 import b64decode, b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.net.sasl.scram import ScramClient

from ottla.broker.security.mechanism import SaslFailed
from ottla.broker.security.scram import BY_NAME, ScramMechanism, ScramServer, ScramUsers, credential, name_can_log_in
from tests.unit.broker.security.logging_in import answer, refusal

SHA_256, SHA_512 = ScramMechanism
PASSWORD = "alice-secret"


def of_password(name, password, mechanism, salt=b"0123456789abcdefghijklmnop", iterations=4096):
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
    return credential(name, mechanism, salt, salted, iterations)


def users(*credentials, random_bytes=bytes):
    return ScramUsers({(each.name, each.mechanism): each for each in credentials}, random_bytes)


ALICE = {mechanism: of_password("alice", PASSWORD, mechanism) for mechanism in ScramMechanism}
USERS = users(*ALICE.values())


def prove(server, name="alice", password=PASSWORD, mechanism=SHA_512):
    """Return a client that has received one answer and has its last message ready."""
    client = ScramClient(name, password, mechanism.mechanism_name)
    client.process_server_first_message(answer(server, client.first_message()))
    return client


def first(server, message=b"n,,n=alice,r=client"):
    """Return the fields of the broker's first message."""
    return dict(field.split("=", 1) for field in answer(server, message).decode().split(","))


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_login_proves_client_and_broker_to_each_other(mechanism):
    server = ScramServer(mechanism, USERS)
    client = prove(server, mechanism=mechanism)
    assert not server.complete
    client.process_server_final_message(answer(server, client.final_message()))
    assert (server.complete, server.principal, server.expires_at_ms) == (True, "User:alice", None)


def test_names_with_signs_of_the_protocol():
    server = ScramServer(SHA_256, users(of_password("a=b,c", PASSWORD, SHA_256)))
    client = prove(server, "a=3Db=2Cc", mechanism=SHA_256)
    answer(server, client.final_message())
    assert server.principal == "User:a=b,c"


@pytest.mark.parametrize("header", ["n,a=alice,"])
def test_an_authorization_id_equal_to_the_name_is_accepted(header):
    server = ScramServer(SHA_256, USERS)
    client = ScramClient("alice", PASSWORD, "SCRAM-SHA-256")
    bare = client.first_message().removeprefix(b"n,,")
    challenge = answer(server, header.encode() + bare)
    channel = b64encode(header.encode())
    client.process_server_first_message(challenge)
    client.auth_message = client.auth_message.replace(b",c=biws,", b",c=" + channel + b",")
    signature = client.hmac(client.stored_key, client.auth_message)
    proof = bytes(left ^ right for left, right in zip(client.client_key, signature, strict=True))
    answer(server, b"c=" + channel + b",r=" + client.nonce + b",p=" + b64encode(proof))
    assert server.complete


@pytest.mark.parametrize(
    ("name", "password", "why"),
    [
        ("alice", "wrong", "SCRAM-SHA-512 as 'alice': the password is wrong"),
        ("nobody", PASSWORD, "SCRAM-SHA-512 as 'nobody': no user has this name"),
    ],
)
def test_a_wrong_password_or_name_is_refused_at_the_final_message(name, password, why):
    server = ScramServer(SHA_512, USERS)
    failed = refusal(server, prove(server, name, password).final_message())
    assert (failed.reason, failed.message) == (why, "")


def test_a_credential_of_one_mechanism_is_none_of_the_other():
    server = ScramServer(SHA_256, users(ALICE[SHA_512]))
    assert "no user has this name" in refusal(server, prove(server, mechanism=SHA_256).final_message()).reason


def test_a_credential_with_too_few_iterations_is_refused():
    server = ScramServer(SHA_256, users(of_password("alice", PASSWORD, SHA_256, iterations=4095)))
    assert "4095 iterations" in refusal(server, prove(server, mechanism=SHA_256).final_message()).reason


@pytest.mark.parametrize(
    "kept",
    [
        [],
        [of_password("alice", PASSWORD, SHA_256)],
        [of_password(name, PASSWORD, SHA_256, salt=bytes(range(24)), iterations=8192) for name in "abc"],
    ],
    ids=["nobody", "of Kafka's tools", "of another tool"],
)
def test_an_unknown_name_gets_a_challenge_like_a_known_one(kept):
    known = users(*kept)
    one, again, other = (
        first(ScramServer(SHA_256, known), message)
        for message in (b"n,,n=nobody,r=x", b"n,,n=nobody,r=x", b"n,,n=other,r=x")
    )
    like = kept[0] if kept else ALICE[SHA_256]
    assert (one["i"], len(b64decode(one["s"]))) == (str(like.iterations), len(like.salt))
    assert b64decode(one["s"]).isalnum() == like.salt.isalnum()
    assert one["s"] == again["s"] != other["s"]


def test_the_salt_of_an_unknown_name_is_the_same_after_a_restart():
    salts = set()
    for drawn in (b"x", b"y"):
        known = users(*ALICE.values(), random_bytes=lambda size, drawn=drawn: drawn * size)
        salts.add(first(ScramServer(SHA_256, known), b"n,,n=nobody,r=x")["s"])
    assert len(salts) == 1


def test_the_iterations_of_an_unknown_name_follow_the_stored_users():
    kept = {}
    known = ScramUsers(kept, bytes)
    assert first(ScramServer(SHA_256, known), b"n,,n=x,r=x")["i"] == "4096"
    made = of_password("alice", PASSWORD, SHA_256, iterations=8192)
    kept["alice", SHA_256] = made
    known.apply_changes([made])
    assert first(ScramServer(SHA_256, known), b"n,,n=x,r=x")["i"] == "8192"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=,r=x",
        b"n,,n=alice,r=",
        b"n,,r=x,n=alice",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,m=x,n=alice,r=x",
        b"n,a=,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=al=2cice,r=x",
        b"n,,n=al\0ice,r=x",
        "n,,n=zoë,r=x".encode(),
        b"n,,n=\xff,r=x",
        b"n,,n=alice,r=x y",
        b"n,,n=alice,r=x,",
        b"n,,n=alice,r=x,1=2",
        b"n,,n=alice,r=x\n",
    ],
)
def test_a_first_message_that_is_none_is_refused(message):
    assert "first message" in refusal(ScramServer(SHA_256, USERS), message).reason


@pytest.mark.parametrize("name", [b"alice", b"nobody"])
def test_an_authorization_id_of_another_user_is_refused(name):
    failed = refusal(ScramServer(SHA_256, USERS), b"n,a=bob,n=" + name + b",r=x")
    assert (
        failed.message == "Authentication failed: Client requested an authorization id that is different from username"
    )


def test_a_delegation_token_is_refused():
    assert "token" in refusal(ScramServer(SHA_256, USERS), b"n,,n=alice,r=x,tokenauth=true").reason


@pytest.mark.parametrize("extension", [b"", b",x=y,zz=1", b",tokenauth=false"])
def test_other_extensions_are_passed_over(extension):
    assert first(ScramServer(SHA_256, USERS), b"n,,n=alice,r=x" + extension)["i"] == "4096"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda last: last.replace(b"r=", b"r=x"), "nonce"),
        (lambda last: last.replace(b",p=", b"x,p="), "nonce"),
        (lambda last: b"c=biws,r=x,p=" + last.partition(b",p=")[2], "nonce"),
        (lambda last: last.replace(b"c=biws", b"c=eSws"), "channel binding"),
        (lambda last: last.replace(b"c=biws", b"c="), "channel binding"),
        (lambda last: last.partition(b",p=")[0] + b",p=", "password"),
        (lambda last: last.partition(b",p=")[0] + b",p=AAAA", "password"),
        (lambda last: last.partition(b",p=")[0], "last message"),
        (lambda last: last + b"=", "last message"),
        (lambda last: last.replace(b"c=biws", b"c=*"), "last message"),
        (lambda last: b"", "last message"),
        (lambda last: b"n,,n=alice,r=x", "last message"),
    ],
)
def test_a_last_message_that_is_not_this_logins_is_refused(change, why):
    server = ScramServer(SHA_512, USERS)
    client = prove(server)
    assert why in refusal(server, change(client.final_message())).reason


def test_a_proof_is_refused_by_another_login():
    server = ScramServer(SHA_512, USERS)
    last = prove(server).final_message()
    other = ScramServer(SHA_512, ScramUsers(USERS._by_name, lambda size: bytes([7]) * size))
    first(other)
    assert "nonce" in refusal(other, last).reason


def test_a_refused_login_must_restart_with_a_first_message():
    server = ScramServer(SHA_512, USERS)
    refusal(server, prove(server, password="wrong").final_message())
    assert "first message" in refusal(server, b"c=biws,r=x,p=").reason


def test_a_message_without_end_is_not_read():
    assert "5000 bytes" in refusal(ScramServer(SHA_256, USERS), b"n,,n=" + b"x" * 4_995).reason


def test_names_that_can_log_in():
    assert [name for name in ("alice", "a b=,", "zoë", "a\0b", "", "\x7f") if name_can_log_in(name)] == [
        "alice",
        "a b=,",
        "\x7f",
    ]


def test_mechanisms_are_those_of_kafka():
    assert {name: (each.value, each.hash_name) for name, each in BY_NAME.items()} == {
        "SCRAM-SHA-256": (1, "sha256"),
        "SCRAM-SHA-512": (2, "sha512"),
    }
    for each in ScramMechanism:
        assert len(ALICE[each].stored_key) == len(ALICE[each].server_key) == each.hash_bytes


_PIECES = st.sampled_from(
    ["n,", "a=", "n=", "r=", "c=", "p=", "=2C", "=3D", ",", "=", "m=", "biws", "alice", "é", "\0"]
)


@given(
    st.lists(
        st.binary(max_size=100) | st.lists(_PIECES, max_size=12).map(lambda parts: "".join(parts).encode()), max_size=3
    )
)
def test_any_bytes_are_answered_or_refused(messages):
    server = ScramServer(SHA_256, USERS)
    for message in [*messages, b"n,,n=alice,r=x"]:
        with suppress(SaslFailed):
            answer(server, message)
    assert not server.complete
