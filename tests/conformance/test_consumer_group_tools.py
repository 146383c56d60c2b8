"""Kafka's own tools for groups, and the admin clients of Python, say the same of Ottla's groups as of Apache Kafka's.

The groups of both protocols are those of confluent-kafka, with and without members. Ports, node ids and member ids
differ; members are static or alone, so that their assignments are equal.
"""

import re
import subprocess
import threading

import pytest
from consumer_group_clients import QUICK, consume, create_topics, settle
from targets import HERE, TARGETS, TOOL_TIMEOUT_S, tool_command

from ottla.testkit.kit.broker import Broker

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytestmark = [pytest.mark.conformance, pytest.mark.maven]

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
AUDITORS = ["--describe", "--group", "auditors"]
ENTITY = ["--entity-type", "groups", "--entity-name", "auditors"]
RESET = ["--reset-offsets", "--topic", "orders"]
COMMANDS = [
    (CONSUMER_GROUPS, "--list"),
    (CONSUMER_GROUPS, "--list", "--state"),
    (CONSUMER_GROUPS, "--list", "--state", "Stable"),
    (CONSUMER_GROUPS, "--list", "--type"),
    (CONSUMER_GROUPS, "--list", "--type", "consumer", "--state"),
    (CONSUMER_GROUPS, *AUDITORS),
    (CONSUMER_GROUPS, *AUDITORS, "--verbose"),
    (CONSUMER_GROUPS, *AUDITORS, "--members"),
    (CONSUMER_GROUPS, *AUDITORS, "--members", "--verbose"),
    (CONSUMER_GROUPS, *AUDITORS, "--state"),
    (CONSUMER_GROUPS, *AUDITORS, "--state", "--verbose"),
    (CONSUMER_GROUPS, "--describe", "--all-groups", "--members", "--verbose"),
    (CONSUMER_GROUPS, "--describe", "--all-groups", "--state", "--verbose"),
    (CONSUMER_GROUPS, "--describe", "--all-groups", "--offsets", "--verbose"),
    (CONSUMER_GROUPS, "--describe", "--group", "unknown", "--members"),
    (GROUPS, "--list"),
    (GROUPS, "--list", "--group-type", "consumer"),
    (GROUPS, "--list", "--consumer"),
    (CONFIGS, "--describe", *ENTITY),
    (CONFIGS, "--alter", *ENTITY, "--add-config", "consumer.heartbeat.interval.ms=6000"),
    (CONFIGS, "--describe", *ENTITY),
    (CONFIGS, "--describe", *ENTITY, "--all"),
    (CONFIGS, "--alter", *ENTITY, "--add-config", "consumer.heartbeat.interval.ms=7"),
    (CONFIGS, "--alter", *ENTITY, "--delete-config", "consumer.heartbeat.interval.ms"),
    (CONSUMER_GROUPS, "--group", "auditors", *RESET, "--to-earliest", "--execute"),
    (CONSUMER_GROUPS, "--group", "left", *RESET, "--to-earliest", "--dry-run"),
    (CONSUMER_GROUPS, "--group", "left", *RESET, "--shift-by", "1", "--execute"),
    (CONSUMER_GROUPS, "--describe", "--group", "left"),
    (CONSUMER_GROUPS, "--delete-offsets", "--group", "auditors", "--topic", "orders"),
    (CONSUMER_GROUPS, "--delete-offsets", "--group", "left", "--topic", "orders:0"),
    (CONSUMER_GROUPS, "--delete", "--group", "auditors"),
    (CONSUMER_GROUPS, "--delete", "--group", "left"),
    (CONSUMER_GROUPS, "--list", "--type"),
]


class Groups:
    """A broker with groups of both protocols, whose members are polled in a thread."""

    def __init__(self, broker):
        self.bootstrap = broker.bootstrap
        self.kit = Broker(broker.bootstrap)
        create_topics(broker.bootstrap, orders=3, payments=2)
        self._produce()
        self.members = [self._static("auditors", name) for name in ("one", "two")]
        self.members.append(consume(self.bootstrap, "readers", "three", "orders", group_protocol="classic"))
        settle(self.members[:2], 5)
        settle(self.members[2:], 3)
        self._commit(self.members[0], 0, 1)
        left = consume(self.bootstrap, "left", "four", "orders")
        settle([left], 3)
        self._commit(left, 0, 1)
        self._commit(left, 1, 2)
        left.close()
        from confluent_kafka import Consumer

        simple = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "simple"})  # not subscribed: no member
        self._commit(simple, 2, 1)
        simple.close()
        self._ended = threading.Event()
        self._poller = threading.Thread(target=self._poll)
        self._poller.start()

    def _static(self, group, name):
        options = {"group_instance_id": f"i-{name}", "group_remote_assignor": "range"}
        return consume(self.bootstrap, group, name, "orders", "payments", **options)

    def _produce(self):
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap})
        for topic, count in (("orders", 3), ("payments", 2)):
            for partition in (*range(count), *range(count)):
                producer.produce(topic, b"value", partition=partition)
        producer.flush()

    def _commit(self, consumer, partition, offset):
        from confluent_kafka import TopicPartition

        consumer.commit(offsets=[TopicPartition("orders", partition, offset)], asynchronous=False)

    def _poll(self):
        while not self._ended.is_set():
            for member in self.members:
                member.poll(0.05)

    def close(self):
        self._ended.set()
        self._poller.join()
        for member in self.members:
            member.close()
        self.kit.close()

    def normalize(self, text):
        """Return the lines of an output, sorted, without what differs between two brokers."""
        for group in self.kit.wire.groups():
            for member in self.kit.group(group).members:
                text = text.replace(member.member_id, f"member-{member.client_id}")
        text = text.replace(self.bootstrap, "BOOTSTRAP")
        text = re.sub(r"BOOTSTRAP +\(\d+\)", "BOOTSTRAP (0)", text)
        return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())


def run_commands(bootstrap):
    """Run the commands in one JVM; return the exit code and the output of each."""
    lines = ["\t".join([name, "--bootstrap-server", bootstrap, *words]) for name, *words in COMMANDS]
    done = subprocess.run(
        tool_command(HERE / "drivers" / "RunTools.java"),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
    )
    parts = re.split(r"^--- (\d+)\n", done.stdout, flags=re.MULTILINE)
    outputs = list(zip(parts[1::2], parts[::2], strict=False))
    assert len(outputs) == len(COMMANDS), done.stdout + done.stderr
    return outputs


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """By broker: the normalized output of each command, and what admin clients say before these commands."""
    found = {}
    for name in ("ottla", "apache"):
        broker = TARGETS[name](tmp_path_factory.mktemp(name), QUICK).start()
        try:
            groups = Groups(broker)
            try:
                libraries = {each.__name__: each(groups) for each in LIBRARIES}
                tools = [(code, groups.normalize(text)) for code, text in run_commands(broker.bootstrap)]
            finally:
                groups.close()
        finally:
            broker.stop()
        found[name] = tools, libraries
    return found


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=lambda number: " ".join(COMMANDS[number][1:]))
def test_a_tool_prints_the_same(answers, number):
    ours, theirs = (answers[name][0][number] for name in ("ottla", "apache"))
    assert ours == theirs
    assert ours[1], "the tool has printed nothing"


def list_by_confluent(groups):
    from confluent_kafka import ConsumerGroupType
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": groups.bootstrap})
    found = {}
    for types in (None, {ConsumerGroupType.CONSUMER}, {ConsumerGroupType.CLASSIC}):
        listed = admin.list_consumer_groups(**({} if types is None else {"types": types})).result(60)
        assert listed.errors == []
        rows = [(row.group_id, row.is_simple_consumer_group, row.state.name, row.type.name) for row in listed.valid]
        found[str(types)] = sorted(rows)
    return found


def describe_by_confluent(groups):
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": groups.bootstrap})
    names = groups.kit.wire.groups()
    return [_confluent_group(future.result(60)) for _, future in sorted(admin.describe_consumer_groups(names).items())]


def _confluent_group(group):
    def partitions(each):
        return None if each is None else sorted((p.topic, p.partition) for p in each.topic_partitions)

    members = sorted(
        (m.client_id, m.host, m.group_instance_id or "", partitions(m.assignment), partitions(m.target_assignment))
        for m in group.members
    )
    plain = group.group_id, group.is_simple_consumer_group, group.partition_assignor, group.state.name, group.type.name
    return *plain, members


def describe_by_kafka_python(groups):
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=groups.bootstrap)
    try:
        described = admin.describe_groups(groups.kit.wire.groups())
        rows = [*map(repr, admin.list_groups()), *map(repr, described.items())]
        return groups.normalize("\n".join(rows))
    finally:
        admin.close()


def describe_by_the_kit(groups):
    found = [groups.kit.group(name) for name in groups.kit.wire.groups()]
    return [group._replace(members=tuple(member._replace(member_id="") for member in group.members)) for group in found]


LIBRARIES = [list_by_confluent, describe_by_confluent, describe_by_kafka_python, describe_by_the_kit]


@pytest.mark.parametrize("call", LIBRARIES, ids=lambda call: call.__name__)
def test_an_admin_client_returns_the_same(answers, call):
    ours, theirs = (answers[name][1][call.__name__] for name in ("ottla", "apache"))
    assert ours == theirs
