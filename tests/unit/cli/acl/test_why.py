"""`ottla acl why`: the sentence, the entries, and the line of kafka-acls that changes the answer."""

import json
from types import SimpleNamespace

import kafka.protocol.admin
import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.protocol.acls import AclOperation, PatternType, PermissionType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord
from ottla.wire import brokers

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
NO_AUTHORIZER = "the broker has no authorizer (authorizer.class.name): every client may do everything\n"
MISSING = "To allow it: kafka-acls --bootstrap-server localhost:9092 --add --allow-principal User:alice --operation "


def entry(
    name="orders",
    operation=AclOperation.WRITE,
    permission=ALLOW,
    pattern=LITERAL,
    principal="User:alice",
    host="*",
    kind=2,
):
    return AccessControlEntryRecord(b"", kind, name, pattern, principal, host, operation, permission)


def answer(monkeypatch, error=ErrorCode.NONE, message=None, entries=()):
    """Answer as the broker that the command asks: each entry is a row of its own."""
    response = kafka.protocol.admin.DescribeAclsResponse
    row = response.DescribeAclsResource
    rows = [
        row(
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            pattern_type=each.pattern_type,
            acls=[
                row.AclDescription(
                    principal=each.principal,
                    host=each.host,
                    operation=each.operation,
                    permission_type=each.permission_type,
                )
            ],
        )
        for each in entries
    ]
    reply = response(throttle_time_ms=0, error_code=error, error_message=message, resources=rows)
    connection = SimpleNamespace(send=lambda message, version=None: reply, close=lambda: None)
    monkeypatch.setattr(brokers, "BlockingConnection", lambda *_, **__: connection)


@pytest.fixture
def why(monkeypatch):
    """Run `ottla acl why` with these entries. Return the exit code and the output, parsed if it is JSON."""

    def ask(entries, operation="Write", resource="Topic:orders", *more, output="json", principal="User:alice"):
        answer(monkeypatch, entries=entries)
        words = ["acl", "why", "--principal", principal, "--operation", operation, "--resource", resource, *more]
        result = CliRunner().invoke(main, [*words, "--format", output])
        return result.exit_code, json.loads(result.stdout) if output == "json" and result.stdout else result.output

    return ask


def test_the_entry_that_allows_is_named(why):
    code, told = why([entry("payments"), entry("ord", pattern=PREFIXED)])
    assert code == 0
    assert told["answer"] == (
        "User:alice may Write on Topic:orders: an entry allows User:alice Write on Topic names that begin with ord "
        "from any host."
    )
    assert [(row["deciding"], row["name"]) for row in told["entries"]] == [(True, "ord")]
    assert "add" not in told and "super.users" in told["unseen"]


def test_a_missing_permission_prints_the_kafka_acls_command(why):
    code, told = why([])
    assert code == 1
    assert told["answer"] == "User:alice may not Write on Topic:orders: no entry matches."
    assert told["add"] == f"{MISSING}Write --topic orders"
    _, told = why([entry(principal="User:bob")])
    assert told["answer"].endswith("no matching entry allows it.")


@pytest.mark.parametrize(
    ("operation", "resource", "words"),
    [
        ("describe", "group:my group", "Describe --group 'my group'"),
        ("TWO_PHASE_COMMIT", "TransactionalId:t*", "TwoPhaseCommit --transactional-id 't*'"),
        ("IdempotentWrite", "Cluster", "IdempotentWrite --cluster"),
        ("ALTER", "cluster:kafka-cluster", "Alter --cluster"),
        ("CreateTokens", "User:User:bob", "CreateTokens --user-principal User:bob"),
    ],
)
def test_every_resource_has_its_option(why, operation, resource, words):
    assert why([], operation, resource)[1]["add"] == MISSING + words


def test_a_deny_is_what_must_go(why):
    denying = entry("or", AclOperation.ALL, DENY, PREFIXED, "User:*", "10.0.0.1")
    code, told = why([entry(), denying], "Write", "Topic:orders", "--host", "10.0.0.1")
    assert code == 1
    assert told["answer"] == (
        "User:alice may not Write on Topic:orders from 10.0.0.1: an entry denies User:* All on Topic names that begin "
        "with or from 10.0.0.1."
    )
    assert told["change"] == (
        "A DENY overrides every ALLOW. To remove it: kafka-acls --bootstrap-server localhost:9092 --remove "
        "--deny-principal 'User:*' --deny-host 10.0.0.1 --operation All --topic or --resource-pattern-type prefixed"
    )


def test_without_host_entries_for_single_hosts_are_listed_but_not_counted(why):
    code, told = why([entry(host="10.0.0.1")])
    assert code == 1
    assert told["hosts"] == "Without --host, entries for single hosts do not count: 10.0.0.1."
    assert why([entry(host="10.0.0.1")], "Write", "Topic:orders", "--host", "10.0.0.1")[0] == 0


def test_text_output_has_the_answer_the_entry_and_the_command(why):
    code, told = why([entry(permission=DENY)], output="text")
    assert code == 1
    assert "User:alice may not Write on Topic:orders" in told and "deciding" in told and "--remove" in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["Write", "Topic:orders", "--", "alice"], "--principal alice: must be TYPE:NAME"),
        (["Fly", "Topic:orders"], "--operation Fly: must be one of Read, Write"),
        (["All", "Topic:orders"], "--operation All: must be one of"),
        (["Write", "orders"], "--resource orders: must be Topic:NAME"),
        (["Write", "Cluster:mine"], "--resource Cluster:mine: must be"),
        (["Write", "Topic:"], "--resource Topic:: must be"),
    ],
)
def test_an_invalid_option_value_is_a_one_line_error(why, words, sentence):
    principal = words[3] if len(words) > 2 else "User:alice"
    code, told = why([], *words[:2], principal=principal, output="text")
    assert code == 2 and told.startswith(f"ottla: {sentence}") and told.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "message", "told"),
    [
        (
            ErrorCode.SECURITY_DISABLED,
            "No Authorizer is configured",
            NO_AUTHORIZER,
        ),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Not you.", "localhost:9092: CLUSTER_AUTHORIZATION_FAILED: Not you."),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None, "localhost:9092: CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
def test_a_refusal_by_the_broker_is_a_one_line_error(monkeypatch, error, message, told):
    answer(monkeypatch, error, message)
    words = ["acl", "why", "--principal", "User:a", "--operation", "Read", "--resource", "Topic:t"]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert result.output.startswith(f"ottla: {told}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "security.protocol=SASL_SSL",
            "sasl.mechanism must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER here",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=a.B required username=u;",
            "sasl.jaas.config must have password here",
        ),
        ("ssl.truststore.location=/a.jks", "ssl.truststore.type must be PEM here"),
    ],
)
def test_properties_that_are_not_served_are_named(why, tmp_path, line, words):
    properties = tmp_path / "client.properties"
    properties.write_text(line)
    code, told = why([], "Write", "Topic:orders", "--command-config", str(properties), output="text")
    assert (code, told) == (2, f"ottla: {properties}: {words}\n")


def test_properties_with_a_broken_login_repeat_nothing_of_it(why, tmp_path):
    properties = tmp_path / "client.properties"
    login = "a.B required username=u password=hunter2 !"
    properties.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}")
    code, told = why([], "Write", "Topic:orders", "--command-config", str(properties), output="text")
    assert code == 2 and "sasl.jaas.config must be" in told and "hunter2" not in told
