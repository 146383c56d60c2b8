"""Users, ACLs and quotas made with Kafka's tools: what Ottla and Apache Kafka 4.3.1 make of them on the same files.

One server.properties for both. A move is right if each client is admitted to the same and refused the same there.
"""

import time

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError
from kafka.net.sasl.scram import ScramClient
from targets import ApacheKafkaFromFile, OttlaFromFile, free_port, tool_output
from test_graduation import EVENT_TIMEOUT_S, graduate

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection

NODE = 1
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
LEDGER, AUDIT = "financial-ledger", "audit-log"
ADMIN, ALICE, BOB, CAROL = [
    (name, f"{name}-secret", mechanism)
    for name, mechanism in (
        ("admin", "SCRAM-SHA-512"),
        ("alice", "SCRAM-SHA-256"),
        ("bob", "SCRAM-SHA-512"),
        ("carol", "SCRAM-SHA-512"),
    )
]
ADD_ADMIN = "SCRAM-SHA-512=[name=admin,password=admin-secret]"
OK = "ok"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("scram-sha-256", "scram-sha-512")


def properties(directory, port):
    """Clients log in; the other listeners, which only this machine reaches, are for super users."""
    return {
        "process.roles": "broker,controller",
        "node.id": NODE,
        "listeners": f"CLIENTS://127.0.0.1:{port},BROKERS://127.0.0.1:{port + 1},CONTROLLER://127.0.0.1:{port + 2}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{NODE}@127.0.0.1:{port + 2}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        **{f"listener.name.clients.{mechanism}.sasl.jaas.config": f"{MODULE} required;" for mechanism in MECHANISMS},
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "log.dirs": directory,
        "offsets.topic.num.partitions": 3,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }


class Tools:
    """Kafka's tools, as the admin."""

    def __init__(self, broker):
        config = broker.directory / "admin.properties"
        name, password, mechanism = ADMIN
        config.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={MODULE} required username="{name}" password="{password}";\n'
        )
        self._at = ("--bootstrap-server", broker.bootstrap, "--command-config", config)

    def configs(self, *arguments):
        return tool_output("kafka.admin.ConfigCommand", *self._at, *arguments)

    def acls(self, *arguments):
        return tool_output("org.apache.kafka.tools.AclCommand", *self._at, *arguments)

    def furnish(self):
        """A user who may write, one who may read but for a topic that he is denied, and quotas."""
        for name, password, mechanism in (ALICE, BOB, CAROL):
            iterations = "iterations=8192," if name == "alice" else ""
            given = f"{mechanism}=[{iterations}password={password}]"
            self.configs("--alter", "--add-config", given, "--entity-type", "users", "--entity-name", name)
        writes = ("--operation", "Write", "--operation", "Describe")
        self.acls("--add", "--allow-principal", "User:alice", *writes, "--topic", "*")
        self.acls("--add", "--allow-principal", "User:alice", *writes, "--transactional-id", "order-", *PREFIXED)
        self.acls("--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "*", "--group", "*")
        self.acls("--add", "--deny-principal", "User:bob", "--operation", "Read", "--topic", "audit-", *PREFIXED)
        entities = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients")
        self.configs(
            "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5", *entities, "--entity-default"
        )
        self.configs("--alter", "--add-config", "consumer_byte_rate=2048", *entities[:4])

    def change(self):
        """Take entries and a quota away, give another entry."""
        self.acls(
            "--remove", "--force", "--deny-principal", "User:bob", "--operation", "Read", "--topic", "audit-", *PREFIXED
        )
        self.acls("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Write", "--topic", "*")
        self.acls("--add", "--allow-principal", "User:alice", "--operation", "Write", "--topic", LEDGER)
        self.acls("--add", "--allow-principal", "User:carol", "--operation", "Write", "--topic", AUDIT)
        user = ("--entity-type", "users", "--entity-name", "alice")
        self.configs("--alter", "--delete-config", "consumer_byte_rate", *user)

    def list_all(self):
        """Return the ACLs, users and quotas that the tools list."""
        acls = sorted(line.strip() for line in self.acls("--list").splitlines() if line.strip())
        users = self.configs("--describe", "--entity-type", "users").splitlines()
        both = ("--entity-type", "users", "--entity-type", "clients")
        return acls, sorted(users), sorted(self.configs("--describe", *both).splitlines())


PREFIXED = ("--resource-pattern-type", "prefixed")


def sasl(user):
    name, password, mechanism = user
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password,
    }


def outcome(work, *arguments):
    """OK, or the name of the error."""
    try:
        work(*arguments)
    except KafkaError as error:
        return type(error).__name__
    return OK


def produce(bootstrap, user, topic):
    producer = KafkaProducer(bootstrap_servers=bootstrap, max_block_ms=20_000, enable_idempotence=False, **sasl(user))
    try:
        producer.send(topic, partition=0, value=b"42").get(timeout=EVENT_TIMEOUT_S)
    finally:
        producer.close()


def commit(bootstrap, user, transactional_id):
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, max_block_ms=20_000, transactional_id=transactional_id, **sasl(user)
    )
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(LEDGER, partition=0, value=b"42").get(timeout=EVENT_TIMEOUT_S)
        producer.commit_transaction()
    finally:
        producer.close()


def fetch(bootstrap, user, topic):
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id="auditors", enable_auto_commit=False, auto_offset_reset="earliest",
        **sasl(user),
    )  # fmt: skip
    place = TopicPartition(topic, 0)
    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        while not consumer.poll(timeout_ms=500):
            pass
        consumer.commit()
    finally:
        consumer.close(autocommit=False)


class LoggedIn:
    """A connection whose bytes the test decides, logged in by SCRAM."""

    def __init__(self, bootstrap, user, client_id="ottla"):
        host, _, port = bootstrap.rpartition(":")
        self._connection = BlockingConnection(host, int(port), client_id=client_id, timeout_s=EVENT_TIMEOUT_S)
        name, password, self._mechanism = user
        self._scram = ScramClient(name, password, self._mechanism)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._connection.close()

    def log_in(self):
        """OK, or (error code, message)."""
        self._ask(ApiKey.SASL_HANDSHAKE, 1, mechanism=self._mechanism)
        first = self._ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=self._scram.first_message())
        if first.error_code:
            return first.error_code, first.error_message
        self._scram.process_server_first_message(first.auth_bytes)
        final = self._ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=self._scram.final_message())
        if final.error_code:
            return final.error_code, final.error_message
        self._scram.process_server_final_message(final.auth_bytes)
        return OK

    def is_throttled(self, record_bytes):
        """Whether a record of so many bytes is more than this client may write."""
        topic = codec.request_class(ApiKey.PRODUCE).TopicProduceData
        batch = build_batch([(None, bytes(record_bytes))], timestamp_ms=int(time.time() * 1000))
        row = topic.PartitionProduceData(index=0, records=bytes(batch))
        topics = [topic(name=LEDGER, partition_data=[row])]
        reply = self._ask(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=topics)
        ((partition,),) = (found.partition_responses for found in reply.responses)
        assert partition.error_code == 0
        return reply.throttle_time_ms > 0

    def _ask(self, api_key, version, **fields):
        return self._connection.send(codec.request_class(api_key)(**fields), version=version)


def log_in(bootstrap, user):
    with LoggedIn(bootstrap, user) as client:
        return client.log_in()


def is_new_client_throttled(bootstrap, user):
    """Return whether 40 kB at once are too much for a client id that is new to the broker."""
    with LoggedIn(bootstrap, user, client_id=f"greedy-{time.monotonic_ns()}") as client:
        assert client.log_in() == OK
        return client.is_throttled(40_000)


def try_users(bootstrap):
    """Return the actions that each user may do."""
    found = {}
    for name, user in {
        "alice": ALICE,
        "alice with another password": ("alice", "bob-secret", "SCRAM-SHA-256"),
        "alice by another mechanism": ("alice", "alice-secret", "SCRAM-SHA-512"),
        "bob": BOB,
        "nobody": ("nobody", "nobody-secret", "SCRAM-SHA-512"),
    }.items():
        found[name, "logs in"] = log_in(bootstrap, user)
    for name, user in {"admin": ADMIN, "alice": ALICE, "bob": BOB, "carol": CAROL}.items():
        for topic in (LEDGER, AUDIT):
            found[name, "writes", topic] = outcome(produce, bootstrap, user, topic)
            found[name, "reads", topic] = outcome(fetch, bootstrap, user, topic)
        for transactional_id in ("order-processor-01", "settlements"):
            found[name, "commits", transactional_id] = outcome(commit, bootstrap, user, transactional_id)
    for name, user in {"admin": ADMIN, "alice": ALICE}.items():
        found[name, "is throttled"] = is_new_client_throttled(bootstrap, user)
    return found


NO_TOPIC, NO_GROUP = "TopicAuthorizationFailedError", "GroupAuthorizationFailedError"
NO_ID = "TransactionalIdAuthorizationFailedError"
REFUSED = {
    mechanism: (
        58, f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
}  # fmt: skip
FURNISHED = {
    ("alice", "logs in"): OK,
    ("alice with another password", "logs in"): REFUSED["SCRAM-SHA-256"],
    ("alice by another mechanism", "logs in"): REFUSED["SCRAM-SHA-512"],
    ("bob", "logs in"): OK,
    ("nobody", "logs in"): REFUSED["SCRAM-SHA-512"],
    **{("admin", what, topic): OK for what in ("writes", "reads") for topic in (LEDGER, AUDIT)},
    **{("alice", "writes", topic): OK for topic in (LEDGER, AUDIT)},
    **{(name, "reads", topic): NO_GROUP for name in ("alice", "carol") for topic in (LEDGER, AUDIT)},
    **{(name, "writes", topic): NO_TOPIC for name in ("bob", "carol") for topic in (LEDGER, AUDIT)},
    ("bob", "reads", LEDGER): OK,
    ("bob", "reads", AUDIT): NO_TOPIC,
    **{
        (name, "commits", transactional_id): NO_ID
        for name in ("bob", "carol")
        for transactional_id in ("order-processor-01", "settlements")
    },
    ("admin", "commits", "order-processor-01"): OK,
    ("admin", "commits", "settlements"): OK,
    ("alice", "commits", "order-processor-01"): OK,
    ("alice", "commits", "settlements"): NO_ID,
    ("admin", "is throttled"): False,
    ("alice", "is throttled"): True,
}
LOOSENED = FURNISHED | {
    ("bob", "reads", AUDIT): OK,
    ("alice", "writes", AUDIT): NO_TOPIC,
    ("carol", "writes", AUDIT): OK,
}


def make_topics(broker):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap, **sasl(ADMIN))
    admin.create_topics([NewTopic(name, 1, 1) for name in (LEDGER, AUDIT)])
    admin.close()


@pytest.mark.conformance
@pytest.mark.maven
def test_users_acls_and_quotas_move_from_ottla_to_kafka_and_back(tmp_path):
    port = free_port(span=3)
    shared = properties(tmp_path / "data", port)
    kafka = ApacheKafkaFromFile(tmp_path, shared, f"127.0.0.1:{port}")
    ottla = OttlaFromFile(tmp_path, shared | {"add.scram": ADD_ADMIN, "cluster.id": CLUSTER}, f"127.0.0.1:{port}")
    tools = Tools(ottla)
    ottla.start()
    try:
        make_topics(ottla)
        tools.furnish()
        listed = tools.list_all()
        assert try_users(ottla.bootstrap) == FURNISHED
    finally:
        assert ottla.stop() == 0

    done = graduate(ottla.data_dir, ottla.properties, node_id=NODE)
    assert done.returncode == 0, done.stderr
    kafka.start()
    try:
        assert tools.list_all() == listed
        assert try_users(kafka.bootstrap) == FURNISHED
        tools.change()
        listed = tools.list_all()
    finally:
        kafka.stop()

    ottla.start()
    try:
        assert tools.list_all() == listed
        assert try_users(ottla.bootstrap) == LOOSENED
    finally:
        assert ottla.stop() == 0


@pytest.mark.conformance
@pytest.mark.maven
def test_users_acls_and_quotas_of_a_kafka_are_enforced_by_ottla(tmp_path):
    port = free_port(span=3)
    shared = properties(tmp_path / "data", port)
    kafka, ottla = (kind(tmp_path, shared, f"127.0.0.1:{port}") for kind in (ApacheKafkaFromFile, OttlaFromFile))
    options = ("-t", CLUSTER, "-c", kafka.properties, "--add-scram", ADD_ADMIN)
    tool_output("kafka.tools.StorageTool", "format", *options)
    tools = Tools(kafka)
    kafka.start()
    try:
        make_topics(kafka)
        tools.furnish()
        listed = tools.list_all()
        assert try_users(kafka.bootstrap) == FURNISHED
    finally:
        kafka.stop()

    ottla.start()
    try:
        assert tools.list_all() == listed
        assert try_users(ottla.bootstrap) == FURNISHED
    finally:
        assert ottla.stop() == 0
