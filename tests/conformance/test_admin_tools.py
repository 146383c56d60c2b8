"""Kafka's own command-line tools change configs, partitions, log starts, leaders and replicas of our brokers."""

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


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_metadata_quorum_shows_one_voter(tool, ensemble):
    status = tool("org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--status")
    facts = {key: value.strip() for key, _, value in (line.partition(":") for line in status.splitlines())}
    assert (facts["LeaderId"], facts["MaxFollowerLag"], facts["CurrentObservers"]) == ("1", "0", "[]")
    assert f"PLAINTEXT://{ensemble.broker('ottla').bootstrap}" in facts["CurrentVoters"]


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_cluster_lists_fenced_brokers_too(ensemble):
    at = "--bootstrap-server", ensemble.broker("ottla").bootstrap
    listed = tool_output("org.apache.kafka.tools.ClusterTool", "list-endpoints", *at, "--include-fenced-brokers")
    (row,) = (line.split() for line in listed.splitlines() if line.startswith("1 "))
    assert row[-2:] == ["unfenced", "broker"]


@pytest.mark.conformance
@pytest.mark.maven
def test_client_metrics_have_no_resources(tool):
    assert tool("org.apache.kafka.tools.ClientMetricsCommand", "--list").strip() == ""


@pytest.fixture(scope="module")
def three(ensemble):
    """Run a tool of Kafka's against three brokers with a topic of two partitions; its output."""
    bootstrap = ensemble.broker("ottla-three").bootstrap
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(TOPIC, -1, -1, replica_assignments={0: [1, 2], 1: [2, 3]})])
    admin.close()
    return lambda name, *options: tool_output(name, "--bootstrap-server", bootstrap, *options)


def read_places(three):
    """Return [(leader, replicas)] of the topic's partitions."""
    described = three("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", TOPIC)
    rows = [line.split() for line in described.splitlines() if "Leader:" in line]
    return [(row[row.index("Leader:") + 1], row[row.index("Replicas:") + 1]) for row in rows]


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_reassign_partitions_and_leader_election_move_replicas_and_leaders(three, tmp_path):
    reassign, elect = (
        f"org.apache.kafka.tools.{name}" for name in ("reassign.ReassignPartitionsCommand", "LeaderElectionCommand")
    )
    wanted = tmp_path / "wanted.json"
    partitions = [{"topic": TOPIC, "partition": index, "replicas": ids} for index, ids in ((0, [2, 1]), (1, [1]))]
    wanted.write_text(json.dumps({"version": 1, "partitions": partitions}))
    file = ["--reassignment-json-file", str(wanted)]
    assert "Successfully started" in three(reassign, "--execute", *file, "--throttle", "1000000")
    assert three(reassign, "--verify", *file).count("is completed") == 2
    assert "No partition reassignments found" in three(reassign, "--list")
    assert "None of the specified partition reassignments are active" in three(reassign, "--cancel", *file)
    assert read_places(three) == [("1", "2,1"), ("1", "1")]
    three(elect, "--election-type", "preferred", "--topic", TOPIC, "--partition", "0")
    assert read_places(three) == [("2", "2,1"), ("1", "1")]
