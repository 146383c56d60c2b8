"""Kafka's own command-line tools change configs, partitions and log starts of our broker."""

import json

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from targets import tool_output

TOPIC = "admin-tools"


@pytest.fixture(scope="module")
def tool(ensemble):
    """Run a tool of Kafka's against Ottla with a topic of ten records; its output."""
    bootstrap = ensemble.broker("ottla").bootstrap
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(TOPIC, 1, 1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(10):
        producer.send(TOPIC, b"%d" % number)
    producer.close()

    def run(name, *options):
        return tool_output(name, "--bootstrap-server", bootstrap, *options)

    return run


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_configs_alters_and_describes(tool):
    entity = ["--entity-type", "topics", "--entity-name", TOPIC]
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=5000000,cleanup.policy=compact")
    described = tool("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "retention.ms=5000000" in described
    assert "cleanup.policy=compact" in described
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", "retention.ms,cleanup.policy")
    described = tool("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "retention.ms" not in described


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_topics_adds_partitions(tool):
    tool("org.apache.kafka.tools.TopicCommand", "--alter", "--topic", TOPIC, "--partitions", "3")
    assert "PartitionCount: 3" in tool("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", TOPIC)


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_delete_records_and_get_offsets_agree(tool, tmp_path):
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": 0, "offset": 4}], "version": 1}))
    told = tool("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "low_watermark: 4" in told
    for time, offset in (("earliest", 4), ("latest", 10), ("earliest-local", 4)):
        assert f"{TOPIC}:0:{offset}" in tool("org.apache.kafka.tools.GetOffsetShell", "--topic", TOPIC, "--time", time)


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_log_dirs_reports_the_size_of_each_log(tool, ensemble):
    told = tool("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", TOPIC)
    (found,) = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    (directory,) = found["brokers"][0]["logDirs"]
    sizes = {row["partition"]: row["size"] for row in directory["partitions"]}
    logs = ensemble.broker("ottla").data_dir.glob(f"{TOPIC}-*")
    assert sizes == {log.name: sum(path.stat().st_size for path in log.glob("*.log")) for log in logs}
    assert sizes[f"{TOPIC}-0"] > 0
    assert directory["error"] is None


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize(
    ("kind", "name", "quota", "told"),
    [
        (
            "users",
            "alice",
            "producer_byte_rate=1024,request_percentage=12.5",
            "Quota configs for user-principal 'alice'",
        ),
        ("clients", None, "consumer_byte_rate=2048", "for the default client-id"),
        ("ips", "10.0.0.1", "connection_creation_rate=5", "for ip '10.0.0.1'"),
    ],
)
def test_kafka_configs_alters_and_describes_quotas(tool, kind, name, quota, told):
    entity = ["--entity-type", kind, *(["--entity-default"] if name is None else ["--entity-name", name])]
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", quota)
    described = tool("kafka.admin.ConfigCommand", "--describe", *entity)
    assert told in described
    assert all(each.partition("=")[0] in described for each in quota.split(","))
    names = ",".join(each.partition("=")[0] for each in quota.split(","))
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", names)
    assert told not in tool("kafka.admin.ConfigCommand", "--describe", *entity)
