"""First users of a directory: from Ottla's `add.scram`, and from Apache Kafka's `kafka-storage format`."""

import hashlib
import hmac
import logging
import shutil
from pathlib import Path

import pytest
import uvloop

from lab.metadata import change_security
from ottla.broker.config import Config, Listener
from ottla.broker.server import Server
from ottla.protocol.internal_topics.security_records import RemoveUserScramCredentialRecord

# What Kafka 4.3.1 wrote for kafka-storage format --add-scram 'SCRAM-SHA-512=[name=alice,password=alice-secret]'
# --add-scram 'SCRAM-SHA-256=[name="bob",iterations=8192,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5eTFrN3E=",password=bobs]'
FORMATTED = Path(__file__).parents[2] / "data" / "security" / "formatted-with-users.checkpoint"
HASHES = {1: "sha256", 2: "sha512"}
ALICE, BOB = ("alice", 2), ("bob", 1)
SALT = "MWx2NHBkbnc0ZndxN25vdGN4bTB5eTFrN3E="
BOTH = (
    "SCRAM-SHA-512=[name=alice,password=alice-secret],"
    f"SCRAM-SHA-256=[name=bob,iterations=8192,salt={SALT},password=bobs]"
)
PASSWORDS = {ALICE: b"alice-secret", BOB: b"bobs"}


def users_of(directory, add_scram="", between=lambda broker: None):
    """Start a broker on the directory, do something, and stop it. Return its SCRAM users."""

    async def live():
        server = Server(
            Config(log_dirs=str(directory), listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),), add_scram=add_scram)
        )
        await server.start()
        between(server.broker)
        found = {**server.broker.cluster.image.scram_credentials}
        await server.stop()
        return found

    return uvloop.run(live())


def lets_in(user, password):
    """Return whether the password proves this user (RFC 5802)."""
    name = HASHES[user.mechanism]
    salted = hashlib.pbkdf2_hmac(name, password, user.salt, user.iterations)
    client_key, server_key = (hmac.digest(salted, role, name) for role in (b"Client Key", b"Server Key"))
    return (hashlib.new(name, client_key).digest(), server_key) == (user.stored_key, user.server_key)


@pytest.mark.slow
def test_a_new_directory_begins_with_its_users_and_keeps_them(tmp_path):
    users = users_of(tmp_path / "data", BOTH)
    assert users.keys() == PASSWORDS.keys()
    assert all(lets_in(users[key], password) for key, password in PASSWORDS.items())
    assert not lets_in(users[ALICE], b"alice-secret2")
    assert users_of(tmp_path / "data") == users


@pytest.mark.slow
def test_a_salt_is_drawn_where_none_is_given(tmp_path):
    users = [users_of(tmp_path / name, BOTH) for name in ("one", "other")]
    assert users[0][ALICE].salt != users[1][ALICE].salt
    assert users[0][BOB] == users[1][BOB]


@pytest.mark.slow
def test_users_of_a_directory_that_is_not_new_stay_as_they_are(tmp_path, caplog):
    users = users_of(tmp_path / "data", "SCRAM-SHA-512=[name=alice,password=first]")
    with caplog.at_level(logging.WARNING):
        assert users_of(tmp_path / "data", "SCRAM-SHA-512=[name=alice,password=second]") == users
        assert "add.scram" not in caplog.text
        assert users_of(tmp_path / "data", BOTH) == users
    assert "this one has no bob (SCRAM-SHA-256): add users with kafka-configs" in caplog.text


@pytest.mark.slow
def test_a_removed_user_is_not_added_again_at_a_restart(tmp_path):
    gone = [RemoveUserScramCredentialRecord(*ALICE)]
    users_of(tmp_path / "data", BOTH, lambda broker: change_security(broker.cluster, gone))
    assert users_of(tmp_path / "data", BOTH).keys() == {BOB}


@pytest.mark.parametrize("add_scram", ["", "SCRAM-SHA-512=[name=alice,password=another]"])
def test_a_directory_that_kafka_formatted_has_the_users_that_kafka_wrote(tmp_path, add_scram):
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text(
        "node.id=1\ndirectory.id=VnAAvK0kuA3AUlWG2oz6Ng\nversion=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n"
    )
    shutil.copy(FORMATTED, data / "bootstrap.checkpoint")
    users = users_of(data, add_scram)
    assert users.keys() == PASSWORDS.keys()
    assert all(lets_in(users[key], password) for key, password in PASSWORDS.items())
    assert users[BOB].iterations == 8192
