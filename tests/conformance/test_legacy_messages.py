"""Messages of magic 0 and 1 on Apache Kafka 4.3.1 and on Ottla: the same directory, the same answers.

Nothing writes such messages any more, so the segments are put into the directory of a stopped Kafka.
"""

import json
import shutil
import subprocess
import sys

import pytest
from clients import eventually, start_client
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from targets import ApacheKafka, Ottla, tool_output

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.compression import GZIP, LZ4, SNAPPY
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.legacy_messages import KINDS, WITHOUT_OLD_LZ4, Expected, legacy_log, message, wrapper

TOPICS = {"old": KINDS, "old-python": WITHOUT_OLD_LZ4}
COMPACTED = "compacted-old"
NOW_MS = 1_500_000_000_000
OVERRIDES = {
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "3600000",
    "log.initial.task.delay.ms": "100",
}
DUMP = "org.apache.kafka.tools.DumpLogSegments"

pytestmark = [pytest.mark.conformance, pytest.mark.maven, pytest.mark.slow]


def compacted_segments():
    """{base offset: segment}: keys that come again, in messages of every kind; the last segment is the active one."""
    first = [
        message(0, b"a", b"0", magic=0),
        message(1, b"b", b"1", magic=1, timestamp=NOW_MS),
        wrapper([(2, -1, b"a", b"2"), (3, -1, b"c", b"3")], magic=0, codec=LZ4),
        wrapper([(4, NOW_MS, b"a", b"4"), (5, NOW_MS, b"d", b"5")], magic=1, codec=GZIP),
        message(6, None, b"without a key", magic=0),
        wrapper([(7, NOW_MS, b"e", b"7"), (8, NOW_MS + 1, b"f", b"8")], magic=1, codec=SNAPPY),
        wrapper([(9, NOW_MS, b"b", b"9"), (10, NOW_MS, b"c", b"10"), (11, NOW_MS, b"b", b"11")], magic=1, codec=LZ4),
    ]
    return {0: b"".join(first), 12: message(12, b"z", b"active", magic=1, timestamp=NOW_MS)}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The data directory of an Apache Kafka that is stopped, with the old messages in it."""
    kafka = ApacheKafka(tmp_path_factory.mktemp("made"), OVERRIDES).start()
    try:
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0", "delete.retention.ms": "86400000"}
        admin.create_topics(
            [*(NewTopic(name, 1, 1) for name in TOPICS), NewTopic(COMPACTED, 1, 1, topic_configs=compact)]
        )
        admin.close()
        eventually(lambda: (kafka.data_dir / f"{COMPACTED}-0").exists(), "the directories are there")
    finally:
        kafka.stop()
    for name, kinds in TOPICS.items():
        put(kafka.data_dir / f"{name}-0", {0: legacy_log(kinds)[0]})
    put(kafka.data_dir / f"{COMPACTED}-0", compacted_segments())
    for path in kafka.data_dir.glob("*"):
        if path.name.endswith("-checkpoint") or path.name == ".kafka_cleanshutdown":
            path.unlink()
    return kafka.data_dir


def put(folder, segments):
    for path in folder.glob("0*"):
        path.unlink()
    for base_offset, content in segments.items():
        (folder / f"{base_offset:020d}.log").write_bytes(content)


@pytest.fixture(scope="module", params=[ApacheKafka, Ottla], ids=["kafka", "ottla"])
def broker(request, directory, tmp_path_factory):
    """A broker on a copy of that directory."""
    made = request.param(tmp_path_factory.mktemp("served"), OVERRIDES)
    shutil.rmtree(made.data_dir, ignore_errors=True)
    shutil.copytree(directory, made.data_dir)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def answers_by_broker():
    """Answers by broker, shared by the tests."""
    return {}


def read(client, topic, isolation):
    """Read with a client. A message of magic 0 has no timestamp, which each client represents differently."""
    return [
        Expected(r.offset, *((-1, -1) if r.timestamp[0] in (None, -1) else r.timestamp[::-1]), r.key, r.value)
        for r in client.read([topic], isolation)
    ]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    ("name", "topic"),
    [("java", "old"), ("confluent-kafka", "old"), ("kafka-python", "old-python")],
)
def test_clients_read_every_record(broker, name, topic, isolation, tmp_path):
    client = start_client(name, broker.bootstrap, tmp_path)
    try:
        assert read(client, topic, isolation) == legacy_log(TOPICS[topic])[1]
    finally:
        client.close()


def connect(broker):
    host, _, port = broker.bootstrap.rpartition(":")
    return BlockingConnection(host, int(port), timeout_s=60)


def fetch(connection, version, offset, max_bytes):
    request = codec.request_class(ApiKey.FETCH)
    partition = request.FetchTopic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = request.FetchTopic(topic="old", partitions=[partition])
    asked = request(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=1, topics=[topic])
    row = connection.send(asked, version).responses[0].partitions[0]
    # Kafka cuts the last batch where the limit is, Ottla in front of it.
    records = bytes(row.records)[: sum(header.size_bytes for _, header in iter_batches(row.records))]
    return row.error_code, row.high_watermark, row.last_stable_offset, row.aborted_transactions or None, records


def test_fetch_answers_the_same_bytes(broker, answers_by_broker):
    connection = connect(broker)
    eventually(lambda: fetch(connection, 12, 0, 1)[0] == 0, "it leads the partition")
    found = {
        (version, offset, max_bytes): fetch(connection, version, offset, max_bytes)
        for version in (4, 8, 12)
        for offset in range(53)
        for max_bytes in (1, 300, 2_000, 1 << 20)
    }
    connection.close()
    answers_by_broker.setdefault("fetch", {})[broker.name] = found
    assert {row[0] for key, row in found.items() if key[1] <= 51} == {0}
    first, *others = answers_by_broker["fetch"].values()
    assert [key for other in others for key in found if other[key] != first[key]] == []


def test_list_offsets_answers_the_same(broker, answers_by_broker):
    connection = connect(broker)
    eventually(lambda: fetch(connection, 12, 0, 1)[0] == 0, "it leads the partition")
    request = codec.request_class(ApiKey.LIST_OFFSETS)
    times = sorted({one.timestamp for one in legacy_log()[1] if one.timestamp >= 0})
    found = {}
    for time in (-3, -2, -1, 0, *times, *(time + 1 for time in times)):
        partition = request.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=time)
        topic = request.ListOffsetsTopic(name="old", partitions=[partition])
        row = connection.send(request(replica_id=-1, topics=[topic]), 7).topics[0].partitions[0]
        found[time] = row.error_code, row.offset, row.timestamp
    connection.close()
    answers_by_broker.setdefault("times", {})[broker.name] = found
    first, *others = answers_by_broker["times"].values()
    assert all(other == first for other in others)
    assert found[times[-1]] == (0, 48, times[-1])


def test_compaction_keeps_the_same_records(broker, tmp_path):
    kept = [(4, b"a"), (5, b"d"), (7, b"e"), (8, b"f"), (10, b"c"), (11, b"b"), (12, b"z")]
    client = start_client("java", broker.bootstrap, tmp_path)
    try:
        eventually(lambda: [(r.offset, r.key) for r in client.read([COMPACTED])] == kept, "it is compacted")
    finally:
        client.close()


def test_dump_prints_what_kafkas_tool_prints(directory):
    file = directory / "old-0" / f"{0:020d}.log"
    theirs = tool_output(DUMP, "--files", file, "--print-data-log").splitlines()
    command = [sys.executable, "-m", "ottla.cli.main", "dump", "--records", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *ours, verdict = done.stdout.splitlines()
    assert ours == theirs
    assert verdict == f"sound: 22 batches, 51 records, {file.stat().st_size} bytes"


def test_files_that_either_broker_left_are_sound(broker):
    """Kafka's tool and the audit look at the indexes that were rebuilt, and at what was compacted."""
    broker.stop()
    try:
        files = sorted(path for path in broker.data_dir.glob("*old*-0/*") if path.suffix in (".index", ".timeindex"))
        assert files
        printed = tool_output(DUMP, "--files", ",".join(map(str, files)))
        assert "mismatch" not in printed.lower(), printed
        command = [sys.executable, "-m", "ottla.cli.main", "audit", str(broker.data_dir), "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert {(one["severity"], one["topic"]) for one in found} <= {("info", COMPACTED)}
    finally:
        broker.start()
