"""Ottla on copies of the log directories of a real Apache Kafka 4.3.1: what is read, and what becomes of what is open.

The broker runs in this process, so that its clock can stand where the directory was left: by the wall clock its
transactions have long timed out, and retention would take its records.
"""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import time
from pathlib import Path

import cramjam
import pytest
from clients import start_client
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from open_transactions import Client

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.checkpoints import encode_id
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.thread_broker import ThreadBroker

DATA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
LAST_TIMESTAMP_MS = 1_795_253_875_033
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value_sha256")
EVENT_TIMEOUT_S = 300
ISOLATIONS = ["read_uncommitted", "read_committed"]
# (transactional id, producer id, epoch, start) as Kafka described and dumped them.
OPEN = {"hanging-01": (13, 0, 1_795_253_826_426), "tv2-01": (14, 30, 1_795_253_875_033)}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    root = tmp_path_factory.mktemp("kafka")
    for name in ("clean", "unclean"):
        packed = (DATA / f"{name}.tar.zst").read_bytes()
        with tarfile.open(fileobj=io.BytesIO(bytes(cramjam.zstd.decompress(packed)))) as archive:
            archive.extractall(root, filter="data")
    return root


@pytest.fixture(params=["clean", "unclean"])
def directory(request, originals, tmp_path):
    return Path(shutil.copytree(originals / request.param, tmp_path / "data"))


@pytest.fixture(scope="module")
def rows():
    with gzip.open(DATA / "consumed.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def expected_rows(rows, isolation):
    """({(topic, partition): end offset}, [record]) of what the Java consumer returned."""
    mine = [row for row in rows if row["isolation"] == isolation]
    ends = {tuple(row["end"].rsplit("-", 1)): row["offset"] for row in mine if "end" in row}
    records = [
        (*(row[key] for key in COLUMNS), [tuple(header) for header in row["headers"]])
        for row in mine
        if "end" not in row
    ]
    return {(topic, int(index)): end for (topic, index), end in ends.items()}, sorted(records, key=lambda row: row[:3])


def digest(value):
    return None if value is None else hashlib.sha256(value).hexdigest()


def text(data):
    return None if data is None else bytes(data).decode()


def consume(bootstrap, places, isolation):
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest", enable_auto_commit=False
    )
    partitions = [TopicPartition(*place) for place in places]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions)
    found, deadline = [], time.monotonic() + EVENT_TIMEOUT_S
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        assert time.monotonic() < deadline
        for records in consumer.poll(timeout_ms=200).values():
            found += [
                (
                    *(r.topic, r.partition, r.offset, r.timestamp, r.timestamp_type, text(r.key), digest(r.value)),
                    [(name, text(value)) for name, value in r.headers],
                )
                for r in records
            ]
    consumer.close()
    return {(p.topic, p.partition): end for p, end in ends.items()}, sorted(found, key=lambda row: row[:3])


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_client_reads_exactly_what_kafkas_consumer_returned(directory, rows, isolation):
    with ThreadBroker(directory, LAST_TIMESTAMP_MS) as served:
        ends, records = expected_rows(rows, isolation)
        assert consume(served.bootstrap, ends, isolation) == (ends, records)
        consumer = KafkaConsumer(bootstrap_servers=served.bootstrap, group_id="auditors")
        assert consumer.committed(TopicPartition("ledger", 2)) == 751
        assert consumer.committed(TopicPartition("ledger", 0)) is None
        consumer.close(autocommit=False)


@pytest.mark.parametrize("name", ["aiokafka", "confluent-kafka", pytest.param("java", marks=pytest.mark.maven)])
def test_other_clients_read_it_too(directory, rows, name, tmp_path):
    with ThreadBroker(directory, LAST_TIMESTAMP_MS) as served:
        client = start_client(name, served.bootstrap, tmp_path)
        for isolation in ISOLATIONS:
            ends, records = expected_rows(rows, isolation)
            found = [
                (
                    *(r.topic, r.partition, r.offset, r.timestamp[1], r.timestamp[0], text(r.key), digest(r.value)),
                    [(name, text(value)) for name, value in r.headers],
                )
                for r in client.read(sorted({topic for topic, _ in ends}), isolation)
            ]
            assert sorted(found, key=lambda row: row[:3]) == records
        assert client.fetch_offsets("auditors", "ledger", (0, 1, 2)) == [None, None, 751]
        client.close()


def describe(bootstrap, *transactional_ids):
    """{id: (state, producer id, epoch, start in ms)}, once the coordinator has loaded."""
    host, _, port = bootstrap.rpartition(":")
    connection = BlockingConnection(host, int(port), timeout_s=EVENT_TIMEOUT_S)
    request = codec.request_class(ApiKey.DESCRIBE_TRANSACTIONS)(transactional_ids=[*transactional_ids])
    states = connection.send(request, 0).transaction_states
    while {row.error_code for row in states} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}:
        time.sleep(0.05)
        states = connection.send(request, 0).transaction_states
    assert {row.error_code for row in states} == {ErrorCode.NONE}
    connection.close()
    return {
        row.transactional_id: (
            row.transaction_state,
            row.producer_id,
            row.producer_epoch,
            row.transaction_start_time_ms,
        )
        for row in states
    }


def test_open_transactions_stay_open_until_a_new_producer_fences_them(directory):
    with ThreadBroker(directory, LAST_TIMESTAMP_MS) as served:
        assert describe(served.bootstrap, *OPEN) == {name: ("Ongoing", *rest) for name, rest in OPEN.items()}
        for transactional_id, (producer_id, epoch, _) in OPEN.items():
            successor = KafkaProducer(bootstrap_servers=served.bootstrap, transactional_id=transactional_id)
            successor.init_transactions()
            state, its_id, its_epoch, _ = describe(served.bootstrap, transactional_id)[transactional_id]
            assert (state, its_id) == ("Empty", producer_id)
            assert its_epoch > epoch
            assert end_as(served.bootstrap, transactional_id, producer_id, epoch) == ErrorCode.PRODUCER_FENCED
            successor.begin_transaction()
            successor.send("ledger", partition=2, value=b"after", timestamp_ms=LAST_TIMESTAMP_MS + 1)
            successor.commit_transaction()
            successor.close()
        client = Client(served.bootstrap)
        assert client.last_stable_offset("ledger", 2) == client.end_offset("ledger", 2)
        client.close()


def end_as(bootstrap, transactional_id, producer_id, epoch):
    host, _, port = bootstrap.rpartition(":")
    connection = BlockingConnection(host, int(port), timeout_s=15)
    request = codec.request_class(ApiKey.END_TXN)
    asked = request(transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True)
    error = connection.send(asked, 3).error_code
    connection.close()
    return error


def test_by_the_wall_clock_what_was_open_is_aborted(directory):
    options = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 50, "log_retention_ms": -1}
    with ThreadBroker(directory, **options) as served:
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while {state for state, *_ in describe(served.bootstrap, *OPEN).values()} != {"CompleteAbort"}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        client = Client(served.bootstrap)
        for place in (("ledger", 2), ("ledger-tv2", 0), ("ledger-tv2", 1)):
            assert client.last_stable_offset(*place) == client.end_offset(*place)
        client.close()


def test_configs_and_ids_are_those_of_the_metadata(directory):
    with ThreadBroker(directory, LAST_TIMESTAMP_MS) as served:
        topics = served.server.broker.cluster.topics
        assert topics["compacted"].configs == {
            "cleanup.policy": "compact",
            "segment.ms": "4000",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "1000",
        }
        assert {name: topic.partition_count for name, topic in topics.items()} == {
            "__consumer_offsets": 4,
            "__transaction_state": 4,
            "append-time": 1,
            "audit-log": 2,
            "codec-gzip": 1,
            "codec-lz4": 1,
            "codec-snappy": 1,
            "codec-zstd": 1,
            "compacted": 1,
            "ledger": 3,
            "ledger-tv2": 2,
            "plain": 1,
        }
        for name, topic in topics.items():
            written = (directory / f"{name}-0" / "partition.metadata").read_text()
            assert written.endswith(f"topic_id: {encode_id(topic.topic_id)}")
        assert served.server.broker.cluster.image.next_producer_id == 1000


def test_without_metadata_topics_are_those_of_the_directories(directory, rows):
    before = {path.name for path in directory.iterdir() if path.is_dir()}
    shutil.rmtree(directory / "__cluster_metadata-0")
    (directory / "bootstrap.checkpoint").unlink()
    (directory / "meta.properties").write_text("version=0\nbroker.id=5\ncluster.id=AAAAAAAAQACAAAAAAAAAAQ\n")
    for _ in range(2):
        with ThreadBroker(directory, LAST_TIMESTAMP_MS) as served:
            cluster = served.server.broker.cluster
            assert cluster.node_id == 5
            assert {path.name for path in directory.iterdir() if path.is_dir()} == before
            assert cluster.topics["compacted"].configs == {"retention.ms": "-1", "retention.bytes": "-1"}
            assert cluster.topics["__transaction_state"].configs["cleanup.policy"] == "compact"
            assert describe(served.bootstrap, *OPEN) == {name: ("Ongoing", *rest) for name, rest in OPEN.items()}
            ends, records = expected_rows(rows, "read_committed")
            assert consume(served.bootstrap, ends, "read_committed") == (ends, records)
            assert cluster.image.next_producer_id == 1000
