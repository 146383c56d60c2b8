"""Logging in by SCRAM on real sockets: users are created, altered and deleted while the broker runs."""

import contextlib
import sys
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion

sys.path.insert(0, str(Path(__file__).parent))

from logged_in import Login, refusal
from served import serving

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required scram_users="true" user_dora="d";'
FLAGS = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    f"sasl.enabled.mechanisms=PLAIN,{','.join(MECHANISMS)}",
    f"listener.name.sasl_plaintext.plain.sasl.jaas.config={JAAS}",
)


@contextlib.contextmanager
def serve_scram(directory):
    """The addresses of a listener with SASL and of one without."""
    with serving(directory, 2, *FLAGS) as addresses:
        ports = {name: port for name, _, port in addresses}
        yield f"127.0.0.1:{ports['SASL_PLAINTEXT']}", f"127.0.0.1:{ports['PLAINTEXT']}"


def alter(address, *alterations):
    """Alter the credentials. Return a message for each user, or None without an error."""
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        return admin.alter_user_scram_credentials(alterations)
    finally:
        admin.close()


def mechanism_of(name):
    return ScramMechanism[name.replace("-", "_")]


def made(name, mechanism, password, iterations=4096):
    return UserScramCredentialUpsertion(name, mechanism_of(mechanism), password, iterations)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("scram")


@pytest.fixture(scope="module")
def addresses(directory):
    with serve_scram(directory) as addresses:
        yield addresses


@pytest.mark.slow
def test_scram_users_are_created_altered_and_deleted_at_run_time(addresses):
    secured, plain = addresses
    first, second = (Login("SCRAM-SHA-256", "bob", password) for password in ("first", "second"))
    of_other = Login("SCRAM-SHA-512", "bob", "first")

    def let_in():
        return [login for login in (first, second, of_other) if not refusal(secured, login)]

    assert let_in() == []
    alter(plain, made("bob", "SCRAM-SHA-256", "first"))
    assert let_in() == [first]
    alter(plain, made("bob", "SCRAM-SHA-256", "second", 8192))
    assert let_in() == [second]
    alter(plain, UserScramCredentialDeletion("bob", mechanism_of("SCRAM-SHA-256")))
    assert let_in() == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_users_of_scram_log_in_by_plain_where_the_listener_lets_them(addresses, mechanism):
    secured, plain = addresses
    name = f"plain-{mechanism}"
    alter(plain, made(name, mechanism, "in wonderland", 16_384))
    login = Login("PLAIN", name, "in wonderland")
    assert refusal(secured, login) == refusal(secured, Login("PLAIN", "dora", "d")) == ""
    wrong = {refusal(secured, Login("PLAIN", who, "x")) for who in (name, "nobody", "dora")}
    assert wrong == {"Authentication failed: Invalid username or password"}
    alter(plain, UserScramCredentialDeletion(name, mechanism_of(mechanism)))
    assert refusal(secured, login) in wrong


def test_a_wrong_password_and_an_unknown_user_differ_in_the_log_only(addresses, directory):
    secured, plain = addresses
    alter(plain, made("dan", "SCRAM-SHA-512", "in wonderland"))
    told = {refusal(secured, Login("SCRAM-SHA-512", name, "hunter2")) for name in ("dan", "nobody")}
    assert told == {
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
    }
    log = (directory / "log").read_text()
    assert "SCRAM-SHA-512 as 'dan': the password is wrong" in log and "as 'nobody': no user has this name" in log
    assert "hunter2" not in log and "in wonderland" not in log


@pytest.mark.slow
def test_users_are_there_when_the_broker_starts_again(tmp_path):
    login = Login("SCRAM-SHA-512", "carol", "once and for all")
    with serve_scram(tmp_path) as (_, plain):
        alter(plain, made("carol", "SCRAM-SHA-512", "once and for all"))
    with serve_scram(tmp_path) as (address, _):
        assert refusal(address, login) == ""
    kept = b"".join(file.read_bytes() for file in (tmp_path / "data").rglob("*") if file.is_file())
    assert b"carol" in kept and b"once and for all" not in kept + (tmp_path / "log").read_bytes()
