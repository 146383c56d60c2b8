"""ACLs over the wire: three admin clients create and list them, they bind a producer, `ottla acl why` explains them."""

import json

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import TopicAuthorizationFailedError
from served import Served

from ottla.broker.config.server import STANDARD_AUTHORIZER
from ottla.cli.main import main

AUTHORIZER = ("--override", f"authorizer.class.name={STANDARD_AUTHORIZER}")
ANY = ACLFilter(
    None,
    None,
    ACLOperation.ANY,
    ACLPermissionType.ANY,
    ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
)


def entry(name, operation, kind=ResourceType.TOPIC, pattern=ACLResourcePatternType.LITERAL, principal="User:ANONYMOUS"):
    return ACL(principal, "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name, pattern))


@pytest.fixture
def broker(tmp_path):
    """Return a function that (re)starts the broker with these super users, with anonymous clients or without."""
    (tmp_path / "data").mkdir()
    started = []

    def start(super_users):
        for before in started:
            before.end()
        started.append(Served(tmp_path / "data", *AUTHORIZER, "--override", f"super.users={super_users}").ready())
        return f"127.0.0.1:{started[-1].port}"

    start.data_dir = tmp_path / "data"
    yield start
    for each in started:
        each.end()


def why(*words):
    result = CliRunner().invoke(main, ["acl", "why", "--format", "json", *words])
    return result.exit_code, json.loads(result.stdout)["answer"] if result.stdout else result.stderr


@pytest.mark.slow
def test_acls_of_one_client_are_listed_to_others_and_enforced(broker):
    confluent = pytest.importorskip("confluent_kafka.admin", reason="needs confluent-kafka")
    bootstrap = broker("User:ANONYMOUS")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name, 1, 1) for name in ("orders", "payments")])
    made = [entry("orders", ACLOperation.WRITE), entry("kafka-cluster", ACLOperation.DESCRIBE, ResourceType.CLUSTER)]
    made.append(entry("kafka-cluster", ACLOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER))
    assert len(admin.create_acls(made)["succeeded"]) == 3
    other = confluent.AdminClient({"bootstrap.servers": bootstrap})
    binding = confluent.AclBinding(
        confluent.ResourceType.TOPIC,
        "pay",
        confluent.ResourcePatternType.PREFIXED,
        "User:ANONYMOUS",
        "*",
        confluent.AclOperation.DESCRIBE,
        confluent.AclPermissionType.ALLOW,
    )
    for future in other.create_acls([binding]).values():
        future.result()
    wanted = confluent.AclBindingFilter(
        confluent.ResourceType.ANY,
        None,
        confluent.ResourcePatternType.ANY,
        None,
        None,
        confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )
    assert {each.name for each in other.describe_acls(wanted).result()} == {"orders", "pay", "kafka-cluster"}
    assert len(admin.describe_acls(ANY)[0]) == 4
    admin.close()
    del other  # it looks for its broker as long as it is there

    bootstrap = broker("User:admin")
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    assert producer.send("orders", b"a").get(30).offset == 0
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send("payments", b"a").get(30)
    producer.close()
    mine = ("--principal", "User:ANONYMOUS", "-b", bootstrap)
    code, told = why(*mine, "--operation", "Write", "--resource", "Topic:payments")
    assert (code, told) == (1, "User:ANONYMOUS may not Write on Topic:payments: no matching entry allows it.")
    code, told = why(*mine, "--operation", "Describe", "--resource", "Topic:orders")
    assert code == 0 and "an entry allows User:ANONYMOUS Write on Topic orders" in told
    in_place = ("--data-dir", str(broker.data_dir), "--operation", "Describe", "--resource", "Topic:payments")
    assert why("--principal", "User:ANONYMOUS", *in_place)[0] == 0
    assert why("--principal", "User:b", *in_place)[0] == 1
