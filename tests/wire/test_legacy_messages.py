"""A log directory with messages of magic 0 and 1: every reader finds the same records, and none calls them damaged."""

import contextlib
import json
import subprocess
import sys
import time

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.compression import GZIP
from ottla.protocol.internal_topics.offsets_records import OffsetValue, encode_offset_value, offset_key
from ottla.protocol.requests import codec
from ottla.testkit.reading import readable
from ottla.testkit.scanner import scan_partition
from tests.legacy_messages import KINDS, WITHOUT_OLD_LZ4, Expected, legacy_log, wrapper
from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.broker.served import Served

CONTENT, RECORDS = legacy_log()
TOPIC = "old"


@pytest.fixture
def directory(tmp_path):
    return make(tmp_path / "data", CONTENT)


def make(path, content):
    folder = path / f"{TOPIC}-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(content)
    # As a Kafka of that time left it: topics were in ZooKeeper.
    (path / "meta.properties").write_text("version=0\nbroker.id=5\ncluster.id=AAAAAAAAQACAAAAAAAAAAQ\n")
    return path


@contextlib.contextmanager
def serving(path):
    broker = Served(path)
    try:
        yield broker.ready()
    finally:
        assert broker.end() == 0


def run(*arguments, code=0):
    """Run a command and return its output on stdout."""
    command = [sys.executable, "-m", "ottla.cli.main", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def plain(records):
    """Offset, timestamp, key and value, for what knows no timestamp type."""
    return [(one.offset, one.timestamp, one.key, one.value) for one in records]


def text(content):
    return None if content is None else content.decode()


def test_dump_prints_every_record(directory):
    lines = [json.loads(line) for line in run("dump", "--records", "--format", "json", directory).splitlines()]
    batches = [line for line in lines if line["kind"] == "batch"]
    records = [line for line in lines if line["kind"] == "record"]
    assert lines[-1]["sound"] is True
    assert [(r["offset"], r["timestamp"], r["key"], r["value"]) for r in records] == [
        (one.offset, one.timestamp, text(one.key), text(one.value)) for one in RECORDS
    ]
    assert {batch["magic"] for batch in batches} == {0, 1, 2}
    assert sum(batch["count"] for batch in batches) == len(RECORDS)
    assert [batch["base_offset"] for batch in batches][1:] == [batch["last_offset"] + 1 for batch in batches][:-1]


def test_dump_prints_them_in_kafkas_words(directory):
    lines = run("dump", "--records", directory).splitlines()
    for line in (
        "offset: 3 position: 712 NoTimestampType: -1 size: 26 magic: 0 compresscodec: none crc: 3817498742 "
        "isvalid: true",
        "| offset: 6 NoTimestampType: -1 keySize: 6 valueSize: -1 isValid: true crc: 3493240050 key: gone 0",
        "| offset: 31 LogAppendTime: 1500000028050 keySize: 0 valueSize: 0 isValid: true crc: 1272155087 key:  "
        "payload: ",
    ):
        assert line in lines
    assert lines[-1] == f"sound: 22 batches, 51 records, {len(CONTENT)} bytes"


@pytest.mark.slow
def test_audit_is_clean_and_counts_every_record(directory):
    pytest.importorskip("numba", reason="the spark extra is not installed")
    assert run("audit", "--format", "json", directory) == ""
    report = run("audit", directory)
    assert "Clean: every transaction is decided; every batch is sound." in report
    assert report.splitlines()[-1].split()[-1] == str(len(RECORDS))


def test_export_writes_every_record(directory, tmp_path):
    pytest.importorskip("numba", reason="the spark extra is not installed")
    import pyarrow.dataset

    run("export", directory, tmp_path / "out")
    rows = pyarrow.dataset.dataset(tmp_path / "out", partitioning="hive").to_table().sort_by("offset").to_pylist()
    assert [
        Expected(
            row["offset"], round(row["timestamp"].timestamp() * 1000), row["timestampType"], row["key"], row["value"]
        )
        for row in rows
    ] == RECORDS


def test_inspect_finds_no_damage(directory):
    told = json.loads(run("inspect", "--verify", "--format", "json", directory))
    (row,) = told["partitions"]
    assert "none damaged" in told["state"]
    assert (row["state"], row["log_start"], row["log_end"], row["cut_bytes"]) == ("recovers", 0, len(RECORDS), 0)


@pytest.mark.slow
def test_repair_has_nothing_to_cut(directory):
    with serving(directory):
        pass  # the indexes are made
    log = directory / f"{TOPIC}-0" / f"{0:020d}.log"
    index = log.with_suffix(".index")
    entries = index.read_bytes()
    index.write_bytes(entries[:4] + bytes(3) + b"\x07")
    run("repair", directory)
    assert (log.read_bytes(), index.read_bytes()) == (CONTENT, entries)


def test_second_scanner_reads_every_record(directory):
    partition = scan_partition(directory / f"{TOPIC}-0")
    assert partition.damages == []
    assert plain(partition.records()) == plain(RECORDS)


def test_fetch_gives_the_bytes_as_they_are_stored(directory):
    with serving(directory) as served:
        connection = served.connect()
        request = codec.request_class(ApiKey.FETCH)
        partition = request.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [request.FetchTopic(topic=TOPIC, partitions=[partition])]
        asked = request(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=1, topics=topics)
        for version in (4, 8, 12):
            row = connection.send(asked, version).responses[0].partitions[0]
            assert (row.error_code, bytes(row.records)) == (0, CONTENT)
        connection.close()
    assert plain(readable(TOPIC, 0, CONTENT, (), 0)[0]) == plain(RECORDS)


def kafka_python(bootstrap, count):
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, consumer_timeout_ms=1_000 * EVENT_TIMEOUT_S
    )
    consumer.assign([TopicPartition(TOPIC, 0)])
    consumer.seek_to_beginning()
    found = [next(consumer) for _ in range(count)]
    consumer.close()
    return [(r.offset, (r.timestamp_type, r.timestamp), r.key, r.value) for r in found]


def confluent(bootstrap, count):
    library = pytest.importorskip("confluent_kafka")
    consumer = library.Consumer({"bootstrap.servers": bootstrap, "group.id": "any", "enable.auto.commit": False})
    consumer.assign([library.TopicPartition(TOPIC, 0, 0)])
    found = [consumer.consume(1, EVENT_TIMEOUT_S)[0] for _ in range(count)]
    consumer.close()
    create_time = library.TIMESTAMP_CREATE_TIME
    return [(r.offset(), (r.timestamp()[0] - create_time, r.timestamp()[1]), r.key(), r.value()) for r in found]


@pytest.mark.parametrize(("read", "kinds"), [(kafka_python, WITHOUT_OLD_LZ4), (confluent, KINDS)])
def test_client_reads_every_record(tmp_path, read, kinds):
    content, records = legacy_log(kinds)
    with serving(make(tmp_path / "data", content)) as served:
        found = read(f"127.0.0.1:{served.port}", len(records))
    # A message of magic 0 has no timestamp, which each client says in its own way.
    assert [
        Expected(offset, *((-1, -1) if kind in (None, -1) else (time, kind)), key, value)
        for offset, (kind, time), key, value in found
    ] == records


@pytest.mark.slow
def test_offsets_that_a_group_committed_in_old_messages_are_known(directory):
    from kafka import KafkaConsumer, TopicPartition

    now_ms = round(time.time() * 1000)
    commits = [
        (
            offset,
            now_ms,
            offset_key("readers", TOPIC, 0),
            encode_offset_value(OffsetValue(10 + offset, -1, "", now_ms), 0),
        )
        for offset in range(3)
    ]
    folder = directory / "__consumer_offsets-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(wrapper(commits, magic=1, codec=GZIP))
    with serving(directory) as served:
        consumer = KafkaConsumer(bootstrap_servers=f"127.0.0.1:{served.port}", group_id="readers")
        assert consumer.committed(TopicPartition(TOPIC, 0)) == 12
        consumer.close(autocommit=False)
    lines = [json.loads(line) for line in run("dump", "--records", "--format", "json", folder).splitlines()]
    decoded = [line for line in lines if line["kind"] == "record"]
    assert len(decoded) == 3
