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
from served import Served, serving

from ottla.broker.config.broker import STANDARD_AUTHORIZER
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


@pytest.mark.slow
def test_acl_why_logs_in_with_the_properties_of_a_java_client(tmp_path):
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = f'{module} user_admin="hunter2";'
    own = (f"authorizer.class.name={STANDARD_AUTHORIZER}", "super.users=User:admin", "sasl.enabled.mechanisms=PLAIN")
    listeners = ("listeners=IN://127.0.0.1:0", "listener.security.protocol.map=IN:SASL_PLAINTEXT")
    secret = f"listener.name.in.plain.sasl.jaas.config={users}"
    properties = tmp_path / "client.properties"
    given = (
        f'security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={module} username="admin" password='
    )
    with serving(tmp_path, 1, *own, *listeners, "inter.broker.listener.name=IN", secret) as ((_, host, port),):
        words = ("--principal", "User:a", "--operation", "Read", "--resource", "Topic:t", "-b", f"{host}:{port}")
        properties.write_text(f'{given}"hunter2";')
        code, told = why(*words, "--command-config", str(properties))
        assert (code, told) == (1, "User:a may not Read on Topic:t: no entry matches.")
        properties.write_text(f'{given}"wrong";')
        code, told = why(*words, "--command-config", str(properties))
        refusal = "Authentication failed: Invalid username or password"
        assert (code, told) == (2, f"ottla: {host}:{port}: {refusal} (-b HOST:PORT names the brokers to ask)\n")


def test_deleted_acls_are_returned_and_no_longer_listed(broker):
    bootstrap = broker("User:ANONYMOUS")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_acls(
        [entry("orders", ACLOperation.WRITE), entry("ord", ACLOperation.READ, pattern=ACLResourcePatternType.PREFIXED)]
    )
    wanted = ResourcePatternFilter(ResourceType.TOPIC, "orders", ACLResourcePatternType.MATCH)
    ((_, gone, _),) = admin.delete_acls([ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, wanted)])
    assert {each.resource_pattern.resource_name for each in gone} == {"orders", "ord"}
    assert admin.describe_acls(ANY)[0] == []
    admin.close()


def test_acl_why_reports_a_broker_without_an_authorizer(tmp_path):
    (tmp_path / "data").mkdir()
    served = Served(tmp_path / "data").ready()
    words = ("--principal", "User:a", "--operation", "Read", "--resource", "Topic:t", "-b", f"127.0.0.1:{served.port}")
    code, told = why(*words)
    served.end()
    assert (code, told) == (
        2,
        "ottla: the broker has no authorizer (authorizer.class.name): every client may do everything\n",
    )
