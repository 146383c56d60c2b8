"""Topic data in a directory, and the missing offsets that compaction can explain."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.topics import Topics, read_topics
from ottla.protocol.batch import build_record_batch
from ottla.protocol.batch_header import assign_offsets
from ottla.protocol.indexes import OFFSET_ENTRY
from ottla.protocol.internal_topics.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    encode_metadata_record,
)

ID = bytes(range(16))


def partition(number, *replicas):
    return PartitionRecord(number, ID, replicas, replicas, replicas[0], 0, 0)


def write(folder, name, records, base=0):
    folder.mkdir(exist_ok=True)
    content = b""
    positions = []
    for offset, record in enumerate(records, base):
        batch = build_record_batch(b"", encode_metadata_record(record), 1_000 + offset)
        assign_offsets(batch, offset, 0)
        positions.append(len(content))
        content += batch
    (folder / name).write_bytes(content)
    return positions


RECORDS = [
    TopicRecord("ledger", ID),
    partition(0, 1),
    partition(1, 1, 2),
    partition(2, 1),
    PartitionChangeRecord(2, ID, replicas=(3,)),
    ConfigRecord(2, "ledger", "cleanup.policy", "compact,delete"),
    ConfigRecord(2, "audit-log", "cleanup.policy", "delete"),
]


def test_partitions_without_a_second_replica_and_compacted_topics_are_known(tmp_path):
    write(tmp_path / "__cluster_metadata-0", f"{0:020d}.log", RECORDS)
    assert read_topics(str(tmp_path))[:2] == (frozenset({("ledger", 0)}), frozenset({"ledger"}))


def test_partition_is_as_old_as_its_last_creation(tmp_path):
    again = bytes(16)
    records = [*RECORDS, TopicRecord("ledger", again), PartitionRecord(0, again, (1,), (1,), 1, 0, 0)]
    folder = tmp_path / "__cluster_metadata-0"
    write(folder, f"{0:020d}.log", records)
    created = {("ledger", 0): 1_000 + len(RECORDS) + 1, ("ledger", 1): 1_002, ("ledger", 2): 1_003}
    assert read_topics(str(tmp_path)).created_ms == created


def test_topics_read_from_a_snapshot_have_no_creation_time(tmp_path):
    write(tmp_path / "__cluster_metadata-0", f"{4:020d}-{1:010d}.checkpoint", RECORDS[:4])
    assert read_topics(str(tmp_path)).created_ms == {}


def test_segment_batches_covered_by_a_snapshot_are_not_read(tmp_path):
    folder = tmp_path / "__cluster_metadata-0"
    positions = write(folder, f"{0:020d}.log", RECORDS)
    write(folder, f"{4:020d}-{1:010d}.checkpoint", RECORDS[:4])
    (folder / f"{0:020d}.index").write_bytes(OFFSET_ENTRY.pack(3, positions[3]))
    whole = bytearray((folder / f"{0:020d}.log").read_bytes())
    whole[positions[1] + 16] = 9  # broken, and nobody has to look at it
    (folder / f"{0:020d}.log").write_bytes(whole)
    assert read_topics(str(tmp_path))[:2] == (frozenset({("ledger", 0)}), frozenset({"ledger"}))


def test_a_directory_without_cluster_metadata_has_no_topic_data(tmp_path):
    assert read_topics(str(tmp_path)) == Topics(frozenset(), frozenset())


@pytest.mark.parametrize(
    ("topic", "alone", "cleaned", "expected"),
    [
        ("audit-log", False, {}, 0),
        ("audit-log", False, None, None),
        ("ledger", True, {}, 0),
        ("ledger", True, {("ledger", 0): 7}, 7),
        ("ledger", False, {("ledger", 0): 7}, None),
        ("__transaction_state", False, {}, None),
        ("__transaction_state", True, {}, 0),
        ("balances", False, {("balances", 3): 9}, None),
    ],
)
def test_replica_of_a_compacted_topic_may_lack_any_offset(topic, alone, cleaned, expected):
    topics = Topics(frozenset({(topic, 0)} if alone else ()), frozenset({"ledger"}))
    assert topics.cleaned_below(cleaned, topic, 0) == expected
