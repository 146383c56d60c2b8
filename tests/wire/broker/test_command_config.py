"""Commands that connect to brokers with TLS and a login: `--command-config`."""

import json

import pytest
from click.testing import CliRunner
from served import serving

from ottla.broker.config.server import STANDARD_AUTHORIZER
from ottla.cli.main import main

USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_admin=hunter2;"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required username=admin password="
WHY = ("acl", "why", "--principal", "User:a", "--operation", "Read", "--resource", "Topic:t")
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username=admin password="


@pytest.fixture(scope="module")
def broker(certificates, tmp_path_factory):
    options = (
        "listeners=IN://127.0.0.1:0",
        "listener.security.protocol.map=IN:SASL_SSL",
        "inter.broker.listener.name=IN",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates.broker}",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        f"listener.name.in.plain.sasl.jaas.config={USERS}",
        "add.scram=SCRAM-SHA-512=[name=admin,password=hunter2]",
        f"authorizer.class.name={STANDARD_AUTHORIZER}",
        "super.users=User:admin",
    )
    with serving(tmp_path_factory.mktemp("secured"), 1, *options) as ((_, host, port),):
        yield f"{host}:{port}"


@pytest.fixture
def properties(certificates, tmp_path):
    """Return a function that writes the properties of a client with a mechanism and a password."""

    def write(mechanism="PLAIN", password="hunter2", ca=certificates.ca):
        path = tmp_path / "client.properties"
        path.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={PLAIN if mechanism == 'PLAIN' else SCRAM}{password};\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
        )
        return str(path)

    return write


def run(*words):
    return CliRunner().invoke(main, [*words])


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_commands_log_in(broker, properties, mechanism):
    login = ("-b", broker, "--command-config", properties(mechanism))
    assert run("health", *login).exit_code == 0
    top = run("top", "--once", "--format", "json", *login)
    assert top.exit_code == 0 and json.loads(top.stdout)
    assert run("txn", "orphans", *login).exit_code == 0
    assert run(*WHY, *login).stdout.startswith("User:a may not Read on Topic:t: no entry matches.")
    unknown = run("txn", "why", "nowhere", "0", *login)
    assert unknown.exit_code == 2 and "nowhere" in unknown.stderr


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_commands_report_a_failed_authentication(broker, properties, mechanism):
    login = ("-b", broker, "--command-config", properties(mechanism, "wrong"))
    for command, code in ((("txn", "orphans"), 2), (("top", "--once"), 2), (WHY, 2), (("health",), 1)):
        told = run(*command, *login)
        assert told.exit_code == code
        assert "Authentication failed" in told.stderr
        assert "wrong" not in told.stderr and "Traceback" not in told.output


def test_a_command_reports_an_untrusted_broker_certificate(broker, properties, certificates, tmp_path):
    told = run("txn", "orphans", "-b", broker, "--command-config", properties(ca=certificates.client))
    assert told.exit_code == 2 and "ertificate" in told.stderr and "Traceback" not in told.output


def test_a_command_without_properties_names_command_config(broker):
    told = run("txn", "orphans", "-b", broker, "--timeout-s", "5")
    assert told.exit_code == 2 and "--command-config" in told.stderr


def test_properties_that_cannot_be_are_one_line(broker, tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n")
    for command in (("txn", "orphans"), ("top", "--once"), ("health",)):
        told = run(*command, "-b", broker, "--command-config", str(path))
        assert told.exit_code == 2 and "sasl.mechanism must be" in told.stderr and "Traceback" not in told.output
