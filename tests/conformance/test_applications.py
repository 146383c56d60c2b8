"""Whole applications with exactly-once processing, unchanged, on both brokers: cells of docs/compatibility.md.

Each is killed or fails in the middle of its work, and continues.
"""

import json
import subprocess
from pathlib import Path

import pytest
from clients import eventually, fetch_jars, java_command
from connect_worker import Worker, read_lines
from targets import tool_output

from tests.timeout import EVENT_TIMEOUT_S

pytestmark = [pytest.mark.conformance, pytest.mark.maven]
HERE = Path(__file__).parent
COUNT = 600


@pytest.fixture(params=["ottla", "apache"])
def target(request):
    return request.param


@pytest.fixture
def client(ensemble, target):
    return ensemble.client(target, "confluent-kafka")


def write(client, topic, values):
    with client.producer() as producer:
        producer.send_records([(topic, 0, value, value, []) for value in values])


def test_kafka_streams_counts_each_record_once_through_kills(client, target, cell, tmp_path):
    cell(target, "Kafka Streams 4.3.1, exactly_once_v2")
    source, sink = f"{tmp_path.name}-words", f"{tmp_path.name}-counts"
    client.create_topics([source, sink])
    words = [f"word {number % 20}" for number in range(COUNT)]

    def counts():
        return {record.key.decode(): int(record.value) for record in client.read([sink])}

    for part in range(3):
        write(client, source, words[part * COUNT // 3 : (part + 1) * COUNT // 3])
        command = java_command("CountInStreams", client.bootstrap, source, sink, tmp_path / f"state-{part}")
        with (tmp_path / "streams.log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                expected = {f"word {number}": (part + 1) * COUNT // 60 for number in range(20)}
                eventually(lambda expected=expected: counts() == expected, f"part {part} is counted", EVENT_TIMEOUT_S)
            finally:
                process.kill()
    # A result of a transaction that was cut off would be there twice, or a count would go back.
    every = [int(record.value) for record in client.read([sink]) if record.key == b"word 0"]
    assert every == sorted(set(every))


def test_connect_writes_each_line_once_through_kills(client, target, cell, tmp_path):
    cell(target, "Kafka Connect 4.3.1, exactly-once source")
    topic = f"{tmp_path.name}-lines"
    client.create_topics([topic])
    source, copy, written = tmp_path / "source.txt", tmp_path / "copy.txt", []

    def is_written():
        return client.values([topic]) == sorted(written)

    def is_copied():
        return set(read_lines(copy)) == set(written)

    for part in range(3):
        lines = [f"{part} {number}" for number in range(100)]
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        written += lines
        worker = Worker(client.bootstrap, tmp_path, group=tmp_path.name, factor=1)
        try:
            worker.run_connector("source", "Source", file=str(source), topic=topic)
            worker.run_connector("sink", "Sink", file=str(copy), topics=topic)
            eventually(is_written, f"part {part} is written", EVENT_TIMEOUT_S)
            eventually(is_copied, f"part {part} is copied", EVENT_TIMEOUT_S)
        finally:
            worker.kill()


def test_flink_copies_each_record_once_through_a_failure(client, target, cell, tmp_path):
    cell(target, "Flink 2.0, KafkaSource and KafkaSink with exactly-once delivery")
    source, sink = f"{tmp_path.name}-in", f"{tmp_path.name}-out"
    client.create_topics([source, sink])
    values = [str(number) for number in range(COUNT)]
    write(client, source, values)
    jars = fetch_jars(HERE / "flink" / "pom.xml", "flink-2.0.0")
    command = java_command("CopyInFlink", client.bootstrap, source, sink, COUNT // 2, jars=jars)
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * EVENT_TIMEOUT_S)
    assert "copied after a failure" in done.stdout, done.stderr[-3000:]
    assert client.values([sink]) == sorted(values)


def test_the_command_line_tools(client, target, cell, tmp_path):
    cell(target, "Kafka's command line tools 4.3.1")
    topic, group = f"{tmp_path.name}-tools", f"{tmp_path.name}-readers"
    server = ("--bootstrap-server", client.bootstrap)

    def tool(name, *words):
        return tool_output(f"org.apache.kafka.tools.{name}", *server, *words)

    assert f"Created topic {topic}" in tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    assert "PartitionCount: 2" in tool("TopicCommand", "--describe", "--topic", topic)
    performed = tool("ProducerPerformance", "--topic", topic, "--num-records", "500", "--record-size", "100",
                     "--throughput", "-1", "--transactional-id", topic, "--transaction-duration-ms", "50")  # fmt: skip
    assert "500 records sent" in performed
    consumed = tool_output(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *server, "--topic", topic, "--group", group,
        "--from-beginning", "--max-messages", "500", "--isolation-level", "read_committed", "--timeout-ms", "60000",
    )  # fmt: skip
    assert len(consumed.splitlines()) >= 500
    described = tool_output(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *server, "--describe", "--group", group
    )
    assert topic in described
    ends = tool("GetOffsetShell", "--topic", topic)
    assert sum(int(line.rpartition(":")[2]) for line in ends.split()) > 500  # with markers
    assert topic in tool("TransactionsCommand", "list")
    logs = tool("LogDirsCommand", "--describe", "--topic-list", topic)
    assert json.loads(logs[logs.index("{") :])["brokers"]
    assert "SupportedMinVersion" in tool("FeatureCommand", "describe")
    assert "ClusterId" in tool("MetadataQuorumCommand", "describe", "--status")
