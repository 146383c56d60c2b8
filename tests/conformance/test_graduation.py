"""From Ottla to Apache Kafka 4.3.1 and back, on the same files; Ottla takes snapshots of the metadata all the time."""

import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import CoordinatorLoadInProgressError
from kafka.structs import OffsetAndMetadata
from open_transactions import Client
from targets import KAFKA_SH, ApacheKafka, Broker, Ottla, free_port, tool_output
from test_written_files import dump

TOPICS = {"financial-ledger": 3, "audit-log": 2, "balances": 1}
GROUPS = {"auditors": ("financial-ledger", 3), "billing": ("audit-log", 2)}
EVENT_TIMEOUT_S = 300
OVERRIDES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000"}
# Each change of the metadata begins a segment and is in a snapshot soon; what the snapshot holds goes.
TRIMMING = {
    "metadata.log.segment.ms": "1",
    "metadata.log.max.snapshot.interval.ms": "1",
    "metadata.max.retention.bytes": "0",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.segment.delete.delay.ms": "100",
}


class GraduatedKafka(ApacheKafka):
    """Apache Kafka on a directory that it did not format."""

    start_timeout_s = EVENT_TIMEOUT_S

    def __init__(self, directory, data_dir, overrides=OVERRIDES):
        Broker.__init__(self, directory, overrides)
        port = free_port(span=2)
        self.bootstrap = f"127.0.0.1:{port}"
        self.data_dir = data_dir
        overrides = "".join(f"{key}={value}\n" for key, value in self.overrides.items())
        # Only for its server.properties, of which the last log.dirs counts.
        subprocess.run(
            ["bash", str(KAFKA_SH), "format", str(directory), str(port)],
            input=f"{overrides}log.dirs={directory / 'formatted'}\n",
            text=True,
            capture_output=True,
            check=True,
            timeout=900,
        )
        self.properties = directory / "server.properties"
        text = self.properties.read_text()
        self.properties.write_text(f"{text}log.dirs={data_dir}\n")


def trim(broker):
    """Make topics until the log begins behind offset 0 and one snapshot is left; then the files of both."""
    metadata = broker.data_dir / "__cluster_metadata-0"
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    for number in itertools.count():
        snapshots, segments = [sorted(metadata.glob(f"*.{suffix}")) for suffix in ("checkpoint", "log")]
        if len(snapshots) == 1 and int(segments[0].stem) > 0:
            admin.close()
            return snapshots[0], segments
        assert time.monotonic() < deadline, (snapshots, segments)
        admin.create_topics([NewTopic(f"made-in-{broker.process.pid}-{number}", 1, 1)])
        time.sleep(0.3)


def told_by_kafka(files):
    """Return the output of kafka-dump-log on files of the metadata log; it must find no problem."""
    return dump(files[0].parents[1], files, "--cluster-metadata-decoder", compacted=("__cluster_metadata",))


def graduate(data_dir, properties, *options, node_id=1):
    command = [sys.executable, "-m", "ottla.cli.main", "graduate", str(data_dir), "--node-id", str(node_id)]
    return subprocess.run(
        [*command, "--config", str(properties), *options],
        capture_output=True,
        text=True,
        timeout=EVENT_TIMEOUT_S,
        cwd=Path(__file__).parents[2],
    )


def read(bootstrap, isolation):
    """[(topic, partition, offset, timestamp, key, value, headers)] of the topics, up to the ends of this isolation."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest", enable_auto_commit=False
    )
    places = [TopicPartition(name, index) for name, count in TOPICS.items() for index in range(count)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    found, deadline = [], time.monotonic() + EVENT_TIMEOUT_S
    while any(consumer.position(place) < ends[place] for place in places):
        assert time.monotonic() < deadline, ends
        for records in consumer.poll(timeout_ms=200).values():
            found += [(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]
    consumer.close()
    return sorted(found), {(place.topic, place.partition): end for place, end in ends.items()}


def read_offsets(bootstrap):
    """Offsets of the groups by (group, topic, partition)."""
    found = {}
    for group, (topic, count) in GROUPS.items():
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
        for index in range(count):
            found[group, topic, index] = consumer.committed(TopicPartition(topic, index))
        consumer.close(autocommit=False)
    return found


def observe(bootstrap):
    """All that a move must not change."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    described = {row["name"]: row for row in admin.describe_topics([*TOPICS])}
    rows = list_transactions(admin)
    admin.close()
    return {
        "topics": {name: (str(row["topic_id"]), len(row["partitions"])) for name, row in described.items()},
        "committed": read(bootstrap, "read_committed"),
        "uncommitted": read(bootstrap, "read_uncommitted"),
        "offsets": read_offsets(bootstrap),
        "transactions": sorted((row.transactional_id, row.producer_id, str(row.state)) for row in rows),
    }


def list_transactions(admin):
    """Return the transactions that the coordinators list after loading."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while True:
        try:
            if rows := [row for found in admin.list_transactions().values() for row in found]:
                return rows
        except CoordinatorLoadInProgressError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_aborted(row):
    """Whether `play` aborted the transaction of a record, by its value."""
    name, _, number = row[5].rpartition(b" ")
    return name.decode() in TOPICS and int(number) % 4 == 3


def play(bootstrap, transactional_id, count, first=0):
    """`count` transactions over all topics, each fourth aborted, with offsets of `auditors` in each committed one."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, acks="all")
    producer.init_transactions()
    for number in range(first, first + count):
        producer.begin_transaction()
        for name, partitions in TOPICS.items():
            key = b"account-%d" % (number % 7)
            producer.send(name, partition=number % partitions, key=key, value=b"%s %d" % (name.encode(), number))
        place = TopicPartition("financial-ledger", number % 3)
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(number + 1, "", -1)}, "auditors")
        producer.flush()  # an abort drops what was not sent yet
        if number % 4 == 3:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()


def quota(kafka, *action):
    """The arguments of a tool that changes or shows the quota of a client, which is a record in the metadata."""
    client = ("--entity-type", "clients", "--entity-name", "auditor")
    return "kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap, *action, *client


def fill(bootstrap):
    """Write transactions of every fate, an open one among them, and offsets of two groups. Return the open producer."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    configs = {"balances": {"cleanup.policy": "compact"}, "audit-log": {"retention.ms": "-1"}}
    admin.create_topics([NewTopic(name, count, 1, topic_configs=configs.get(name)) for name, count in TOPICS.items()])
    admin.close()
    plain = KafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type="gzip")
    for number in range(50):
        plain.send("audit-log", partition=number % 2, key=b"k", value=b"plain %d" % number, headers=[("n", b"1")])
    plain.close()
    play(bootstrap, "order-processor-01", 60)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id="billing", enable_auto_commit=False)
    consumer.assign([TopicPartition("audit-log", 0), TopicPartition("audit-log", 1)])
    consumer.commit({TopicPartition("audit-log", index): OffsetAndMetadata(7 + index, "", -1) for index in range(2)})
    consumer.close(autocommit=False)
    client = Client(bootstrap)
    opened = client.begin("left-open", [("financial-ledger", 2), ("audit-log", 0)], timeout_ms=900_000)
    client.close()
    play(bootstrap, "order-processor-02", 10)
    return opened


@pytest.fixture
def ottla(tmp_path):
    """An Ottla with records of `fill`."""
    broker = Ottla(tmp_path / "ottla", OVERRIDES | TRIMMING).start()
    broker.open = fill(broker.bootstrap)
    yield broker
    broker.stop()


@pytest.mark.maven
@pytest.mark.slow
def test_everything_moves_to_kafka_and_back(ottla, tmp_path):
    before = observe(ottla.bootstrap)
    assert ("left-open", ottla.open[0], "TransactionState.ONGOING") in before["transactions"]
    assert before["committed"][1] != before["uncommitted"][1]
    kafka = GraduatedKafka(tmp_path / "kafka", ottla.data_dir)
    refused = graduate(ottla.data_dir, kafka.properties)
    assert refused.returncode == 1 and "locked by process" in refused.stderr
    snapshot, segments = trim(ottla)
    assert ottla.stop() == 0
    told = told_by_kafka([snapshot, *segments])
    assert all(f'"name":"{name}"' in told for name in TOPICS)

    done = graduate(ottla.data_dir, kafka.properties)
    assert done.returncode == 0, done.stderr
    kafka.start()
    try:
        assert observe(kafka.bootstrap) == before
        client = Client(kafka.bootstrap)
        client.end("left-open", *ottla.open, commit=True)
        client.close()
        play(kafka.bootstrap, "order-processor-01", 100, 60)
        tool_output(*quota(kafka, "--alter", "--add-config", "producer_byte_rate=1048576"))
        at_kafka = observe(kafka.bootstrap)
    finally:
        kafka.stop()
    everything, _ = at_kafka["uncommitted"]
    assert len(everything) == len(before["uncommitted"][0]) + 100 * len(TOPICS)
    assert at_kafka["committed"][0] == [row for row in everything if not is_aborted(row)]
    assert at_kafka["offsets"]["auditors", "financial-ledger", 2] == 159

    ottla.start()
    assert observe(ottla.bootstrap) == at_kafka
    play(ottla.bootstrap, "order-processor-03", 8, 200)
    at_home = observe(ottla.bootstrap)
    ottla.kill()
    ottla.start()
    snapshot, segments = trim(ottla)
    assert ottla.stop() == 0
    told = told_by_kafka([snapshot, *segments])
    kinds = ("KRaftVoters", "REGISTER_BROKER_RECORD", "CLIENT_QUOTA_RECORD", "FEATURE_LEVEL_RECORD", "TOPIC_RECORD")
    assert all(kind in told for kind in kinds)
    ids = [producer_id for _, producer_id, _ in at_home["transactions"]]
    assert len(set(ids)) == len(ids) == 4

    again = graduate(ottla.data_dir, kafka.properties)
    assert again.returncode == 0 and "stays as it is" in again.stdout
    kafka.start()
    try:
        assert observe(kafka.bootstrap) == at_home
        assert "producer_byte_rate=1048576" in tool_output(*quota(kafka, "--describe"))
    finally:
        kafka.stop()
