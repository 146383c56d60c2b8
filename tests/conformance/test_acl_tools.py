"""Kafka's own `kafka-acls` makes, lists and deletes entries of our broker, and takes what `ottla acl why` advises."""

import json
import shlex

import pytest
from click.testing import CliRunner
from targets import Ottla, tool_output

from ottla.broker.config.server import STANDARD_AUTHORIZER
from ottla.cli.main import main

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
PREFIXED = ("--resource-pattern-type", "prefixed")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    broker = Ottla(tmp_path_factory.mktemp("acls"), SETTINGS).start()
    yield broker.bootstrap
    broker.stop()


@pytest.fixture(scope="module")
def acls(bootstrap):
    """Run `kafka-acls`; its output."""

    def run(*words):
        return tool_output("org.apache.kafka.tools.AclCommand", "--bootstrap-server", bootstrap, *words)

    return run


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_acls_makes_lists_and_deletes(acls):
    acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders", "--transactional-id", "t")
    acls("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "All", "--group", "g")
    acls("--add", "--allow-principal", "User:carol", "--operation", "Read", "--topic", "ord", *PREFIXED)
    told = acls("--list")
    assert "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)" in told
    assert "(principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY)" in told
    assert "ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)" in told
    matching = acls("--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "carol" in matching and "bob" not in matching
    acls("--remove", "--topic", "ord", "--force", *PREFIXED)
    assert "carol" not in acls("--list")


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_acls_takes_what_is_advised(acls, bootstrap):
    def why():
        who = ["--principal", "User:dave", "--operation", "AlterConfigs", "--resource", "Topic:with space"]
        result = CliRunner().invoke(main, ["acl", "why", *who, "-b", bootstrap, "--format", "json"])
        return result.exit_code, json.loads(result.stdout)

    def follow(advice):
        words = shlex.split(advice.partition(": ")[2])
        assert words[:3] == ["kafka-acls", "--bootstrap-server", bootstrap]
        acls(*words[3:], *(("--force",) if "--remove" in words else ()))

    code, told = why()
    assert code == 1
    follow(told["add"])
    assert why()[0] == 0
    acls("--add", "--deny-principal", "User:*", "--operation", "All", "--topic", "with", *PREFIXED)
    code, told = why()
    assert code == 1
    follow(told["change"])
    assert why()[0] == 0
