"""Kafka's own DumpLogSegments over files that the formats wrote: batches of every codec, indexes, snapshot, records."""

import os
import re
import subprocess
from itertools import starmap
from pathlib import Path

import pytest

from ottla.protocol import batch as b
from ottla.protocol import indexes as ix
from ottla.protocol import snapshot
from ottla.protocol.batch_header import assign_offsets, read_header, set_append_time
from ottla.protocol.checkpoints import encode_id
from ottla.protocol.internal_topics import metadata_records as m
from ottla.protocol.internal_topics.offsets_records import (
    GroupMember,
    GroupValue,
    OffsetValue,
    encode_group_value,
    encode_offset_value,
    group_key,
    offset_key,
)
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    encode_transaction_value,
    transaction_key,
)
from ottla.protocol.records import NewRecord
from tests.timeout import EVENT_TIMEOUT_S

KAFKA_SH = Path(__file__).parents[1] / "conformance" / "apache-kafka" / "kafka.sh"
TS = 1700000000000
TOPIC_ID = bytes(range(16))


def dump(*paths, decoder=None):
    command = ["bash", str(KAFKA_SH), "tool", "org.apache.kafka.tools.DumpLogSegments"]
    command += [f"--{decoder}-decoder"] if decoder else ["--deep-iteration", "--print-data-log"]
    command += ["--files", ",".join(map(str, paths))]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S, check=True, env=os.environ | {"HEAP": "200m"}
    )
    assert "Mismatches" not in done.stdout + done.stderr
    return done.stdout


def write(folder, batches):
    """A segment with an offset index entry for each batch but the first, and a time index."""
    folder.mkdir()
    log = bytearray()
    offsets, times = [], []
    next_offset, latest = 0, -1
    for batch in batches:
        assign_offsets(batch, next_offset, 3)
        header = read_header(batch)
        if log:
            offsets.append(ix.OffsetEntry(header.last_offset, len(log)))
        if header.max_timestamp > latest:
            latest = header.max_timestamp
            times.append(ix.TimeEntry(latest, header.last_offset))
        log += batch
        next_offset = header.next_offset
    stem = folder / f"{0:020d}"
    stem.with_suffix(".log").write_bytes(log)
    stem.with_suffix(".index").write_bytes(b"".join(starmap(ix.OFFSET_ENTRY.pack, offsets)))
    stem.with_suffix(".timeindex").write_bytes(b"".join(starmap(ix.TIME_ENTRY.pack, times)))
    return stem


@pytest.mark.slow
@pytest.mark.maven
def test_kafka_reads_our_batches_of_every_codec_our_indexes_and_snapshot(tmp_path):
    batches = []
    for codec in range(5):
        records = [
            NewRecord(None if i % 7 == 0 else b"k%d" % i, b"v" * i, [("h", None)] if i % 3 else (), TS + i)
            for i in range(100)
        ]
        options = {"producer_id": 40 + codec, "producer_epoch": 1, "base_sequence": 0, "transactional": True}
        batches.append(b.build_batch(records, compression=codec, **options))
        batches.append(b.build_marker(40 + codec, 1, 7, codec % 2 == 0, TS + 500 + codec))
        batches.append(b.build_batch([(b"k", bytes(300_000))], timestamp_ms=TS, compression=codec))
    appended = b.build_batch([(b"k", b"v")], timestamp_ms=TS)
    set_append_time(appended, TS + 9000)
    stem = write(tmp_path / "t-0", [*batches, appended])
    stem.with_suffix(".txnindex").write_bytes(ix.pack_aborted_txns([ix.AbortedTxn(41, 102, 202, 203)]))
    state = tmp_path / "t-0" / f"{203:020d}.snapshot"
    state.write_bytes(snapshot.encode_snapshot([snapshot.ProducerEntry(40, 1, 99, 99, 99, TS, 7, -1)]))

    told = dump(*(stem.with_suffix(suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex")), state)
    assert told.count("isvalid: true") == 16
    assert "isvalid: false" not in told
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert told.count(f"compresscodec: {codec} ") >= 2
    assert len(re.findall(r"^\| offset: ", told, re.MULTILINE)) == 5 * 102 + 1
    assert told.count("endTxnMarker: COMMIT coordinatorEpoch: 7") == 3
    assert told.count("endTxnMarker: ABORT coordinatorEpoch: 7") == 2
    assert f"LogAppendTime: {TS + 9000}" in told
    assert "producerId: 41 firstOffset: 102 lastOffset: 202 lastStableOffset: 203" in told
    assert "producerId: 40 producerEpoch: 1 coordinatorEpoch: 7" in told


@pytest.mark.slow
@pytest.mark.maven
def test_kafka_reads_our_transaction_records(tmp_path):
    value = TransactionValue(4000, 3, 60000, 1, (("foo", (1, 2)),), TS, TS)
    values = [encode_transaction_value(value, 0)]
    values += [encode_transaction_value(value._replace(previous_producer_id=4000, client_version=2)), None]
    key = transaction_key("my-txn")
    stem = write(tmp_path / "__transaction_state-0", [b.build_batch([(key, content)]) for content in values])
    told = dump(stem.with_suffix(".log"), decoder="transaction-log")
    assert told.count('"transactionalId":"my-txn"') == 3
    assert told.count('"transactionPartitions":[{"topic":"foo","partitionIds":[1,2]}]') == 2
    assert '"previousProducerId":4000' in told and '"clientTransactionVersion":2' in told
    assert "payload: <DELETE>" in told


@pytest.mark.slow
@pytest.mark.maven
def test_kafka_reads_our_offset_and_group_records(tmp_path):
    committed = OffsetValue(42, 5, "m", TS)
    records = [(offset_key("g", "foo", 1), encode_offset_value(committed, version)) for version in range(5)]
    records.append((offset_key("g", "foo", 1), encode_offset_value(committed._replace(topic_id=TOPIC_ID))))
    assignment = bytes.fromhex("00010000000000000000")
    member = GroupMember("m-1", "still", "c", "/127.0.0.1", 300000, 10000, b"s", assignment)
    group = GroupValue("consumer", 7, "range", "m-1", TS, (member,))
    records += [(group_key("g"), encode_group_value(group, version)) for version in range(5)]
    stem = write(tmp_path / "__consumer_offsets-0", [b.build_batch([record]) for record in records])
    told = dump(stem.with_suffix(".log"), decoder="offsets")
    assert told.count('"group":"g","topic":"foo","partition":1') == 6
    assert told.count('"offset":42') == 6
    assert told.count('"leaderEpoch":5') == 3
    assert f'"topicId":"{encode_id(TOPIC_ID)}"' in told
    assert told.count('"generation":7,"protocol":"range","leader":"m-1"') == 5
    assert told.count('"groupInstanceId":"still"') == 2


@pytest.mark.slow
@pytest.mark.maven
def test_kafka_reads_our_metadata_records(tmp_path):
    records = [
        m.TopicRecord("t", TOPIC_ID),
        m.PartitionRecord(0, TOPIC_ID, (1, 2), (1,), 1, 0, 0, (TOPIC_ID,), (2,), (3,), 1, (2,), ()),
        m.PartitionChangeRecord(0, TOPIC_ID, (1,), 2, (1,), (), (2,), 0, (1,), (2,), (TOPIC_ID,)),
        m.ConfigRecord(m.TOPIC_RESOURCE, "t", "a", None),
        m.RemoveTopicRecord(TOPIC_ID),
        m.FeatureLevelRecord("transaction.version", 2),
        m.ProducerIdsRecord(1, 5, 1000),
        m.BeginTransactionRecord("begun"),
        m.EndTransactionRecord(),
        m.AbortTransactionRecord("why"),
    ]
    batch = b.build_batch([(None, m.encode_metadata_record(record)) for record in records])
    stem = write(tmp_path / "__cluster_metadata-0", [batch])
    told = dump(stem.with_suffix(".log"), decoder="cluster-metadata")
    for text in (
        '"name":"t","topicId":"AAECAwQFBgcICQoLDA0ODw"',
        '"addingReplicas":[3],"leader":1,"leaderRecoveryState":1',
        '"eligibleLeaderReplicas":[1],"lastKnownElr":[2]',
        '"name":"a","value":null',
        "REMOVE_TOPIC_RECORD",
        '"name":"transaction.version","featureLevel":2',
        '"nextProducerId":1000',
        '"name":"begun"',
        "END_TRANSACTION_RECORD",
        '"reason":"why"',
    ):
        assert text in told, text
