"""Passwords of PLAIN on a real socket: a wrong one is reported, and none is in the log or in printed configs."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.timeout import EVENT_TIMEOUT_S

sys.path.insert(0, str(Path(__file__).parent))

from logged_in import Login, refusal
from served import COMMAND, serving

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "in wonderland"
FLAGS = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms=PLAIN",
    f'listener.name.sasl_plaintext.plain.sasl.jaas.config={MODULE} required user_alice="{PASSWORD}";',
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("sasl")


@pytest.fixture(scope="module")
def address(directory):
    with serving(directory, 1, *FLAGS) as ((_, host, port),):
        yield f"{host}:{port}"


@pytest.mark.slow
def test_a_wrong_password_is_reported_to_the_client_and_logged(address, directory):
    confluent = pytest.importorskip("confluent_kafka")
    errors = []
    config = {
        "bootstrap.servers": address,
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


def test_passwords_are_in_neither_the_log_nor_the_configs(address, directory):
    told = {password: refusal(address, Login("PLAIN", "alice", password)) for password in (PASSWORD, "a secret")}
    assert told == {PASSWORD: "", "a secret": "Authentication failed: Invalid username or password"}
    log = (directory / "log").read_text()
    assert PASSWORD not in log and "a secret" not in log and "Traceback" not in log
    users = f'listener.name.x.plain.sasl.jaas.config={MODULE} required user_alice="{PASSWORD}";'
    command = [*COMMAND[:-1], "configs", "--override", users, "--override", f"ssl.keystore.password={PASSWORD}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ssl.keystore.password  [hidden]" in done.stdout and PASSWORD not in done.stdout
