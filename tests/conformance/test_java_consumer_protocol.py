"""Kafka's Java client with `group.protocol=consumer`: the steps of the scenario that use members, and a program.

The program (JavaConsumer.java) uses consumers in many ways. Both brokers must give it the recorded results. Also a
service of Java consumers that rolls from the classic protocol to this one and back.
"""

import os
import subprocess

import pytest
from clients import QUICK_JVM, clients_jar, compile_program, eventually, kafka_jars, start_client
from consumer_group_clients import QUICK, RECORDED, record_lines
from long_steps import a_consumer_group_of_three_comes_and_goes
from scenario import StepContext, positions_of_a_live_member_commit_in_its_transaction
from targets import TARGETS

pytestmark = [pytest.mark.conformance, pytest.mark.maven]


@pytest.fixture(scope="module", params=["ottla", "apache"])
def broker(request, tmp_path_factory):
    broker = TARGETS[request.param](tmp_path_factory.mktemp(request.param), QUICK).start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def java_client(broker):
    client = start_client("java", broker.bootstrap, broker.directory, {"group.protocol": "consumer"})
    yield client
    client.close()


def a_pattern_finds_topics_now_and_later(context):
    topics = {*context.topics("orders-1", "orders-2")}
    context.topics("payments")
    member = context.client.member(context.name("workers"), [f"^{context.prefix}.orders-.*"])

    def owns_all():
        return {topic for topic, _ in member.assignment()} == topics

    eventually(owns_all, "the member has the topics that match")
    topics.add(context.topics("orders-3"))
    eventually(owns_all, "the member has the new topic too")
    with context.producer() as producer:
        producer.send_records([(topic, 0, None, topic, []) for topic in topics])
        eventually(lambda: {r.value.decode() for r in member.records()} == topics, "the member received everything")
    member.close()


@pytest.mark.parametrize(
    "step",
    [
        a_pattern_finds_topics_now_and_later,
        a_consumer_group_of_three_comes_and_goes,
        positions_of_a_live_member_commit_in_its_transaction,
    ],
)
def test_java_consumer_of_the_consumer_protocol(broker, java_client, step):
    context = StepContext(java_client, step.__name__.replace("_", "-"))
    step(context)
    # Only groups of this protocol have records of members' assignments.
    assert any(context.prefix.encode().hex() in line for line in record_lines(broker.data_dir / "__consumer_offsets-0"))


@pytest.fixture
def classic_client(broker, tmp_path):
    client = start_client("java", broker.bootstrap, tmp_path, {"group.protocol": "classic"})
    yield client
    client.close()


def test_java_consumers_change_their_protocol_and_back_while_they_consume(java_client, classic_client):
    context = StepContext(java_client, "java-roll")
    partitions = 6
    topic, group, sent, seen = context.topics("rolled", partitions=partitions), context.name("service"), [], []
    members = [classic_client.member(group, [topic]) for _ in range(2)]

    def go_on():
        """Produce a record for each partition. The members share the partitions, and have seen all records."""
        eventually(lambda: sorted(len(each.assignment()) for each in members) == [3, 3], "two members share")
        values = [f"{len(sent) + index}" for index in range(partitions)]
        producer.send_records([(topic, index, None, value, []) for index, value in enumerate(values)])
        sent.extend(values)
        eventually(
            lambda: {*seen, *(row.value.decode() for each in members for row in each.records())} >= {*sent},
            "every record was seen",
        )

    with context.producer() as producer:
        go_on()
        for client in (java_client, java_client, classic_client, classic_client):
            left = members.pop(0)
            seen += [row.value.decode() for row in left.records()]
            left.close()
            members.append(client.member(group, [topic]))
            go_on()
    for member in members:
        member.close()


@pytest.mark.parametrize("version", ["4.3.1", "4.4.0"])
@pytest.mark.parametrize("target", ["ottla", "apache"])
def test_java_consumer_gets_the_recorded_results(target, version, tmp_path):
    newest, jars = clients_jar(version), f"{kafka_jars()}/*"
    broker = TARGETS[target](tmp_path / target, QUICK).start()
    try:
        classpath = os.pathsep.join([compile_program("JavaConsumer.java"), newest, jars])
        options = ["-Xmx256m", *QUICK_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        command = ["java", *options, "-cp", classpath, "JavaConsumer", broker.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    finally:
        broker.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == RECORDED.with_name("java-consumer.txt").read_text().splitlines()
