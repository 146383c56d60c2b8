"""Clients of `ottla` log in by OAUTHBEARER at Ottla and at Apache Kafka, and again before their sessions end."""

import pytest
from click.testing import CliRunner
from targets import ApacheKafka, OttlaByOptions, free_port

from ottla.cli.main import main
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.wire import connection
from ottla.wire.client_properties import client_options
from ottla.wire.connection import BlockingConnection
from ottla.wire.login import log_in
from tests.timeout import EVENT_TIMEOUT_S

OAUTH = "org.apache.kafka.common.security.oauthbearer"
VALIDATOR = f"{OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SESSION_S = 4


def apache(directory):
    port = free_port(span=3)
    options = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1},CLIENTS://127.0.0.1:{port + 2}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},CLIENTS://127.0.0.1:{port + 2}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.clients.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
        "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
    }
    broker = ApacheKafka(directory, options, port).start()
    return broker, f"127.0.0.1:{port + 2}"


def ottla(directory):
    options = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
    }
    broker = OttlaByOptions(directory, options).start()
    return broker, broker.addresses["SASL_PLAINTEXT"]


@pytest.fixture(params=[ottla, pytest.param(apache, marks=pytest.mark.conformance)], ids=lambda make: make.__name__)
def address(request, tmp_path):
    broker, address = request.param(tmp_path / "broker")
    yield address
    broker.stop()


@pytest.fixture
def properties(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=alice "
        f"unsecuredLoginLifetimeSeconds={SESSION_S};\n"
    )
    return path


def test_commands_log_in_and_sessions_go_on(address, properties, monkeypatch):
    told = CliRunner().invoke(main, ["txn", "orphans", "-b", address, "--command-config", str(properties)])
    assert told.exit_code == 0, told.output
    lifetimes_ms = []

    def count(*given):
        lifetimes_ms.append(log_in(*given))
        return lifetimes_ms[-1]

    monkeypatch.setattr(connection, "log_in", count)
    host, _, port = address.rpartition(":")
    metadata = codec.request_class(ApiKey.METADATA)(topics=[])
    security = client_options(properties)
    with BlockingConnection(host, int(port), timeout_s=EVENT_TIMEOUT_S, security=security) as connected:
        while len(lifetimes_ms) < 3:  # the first session has ended then
            assert connected.send(metadata).brokers
    assert all(0 < lifetime_ms <= SESSION_S * 1000 for lifetime_ms in lifetimes_ms)
