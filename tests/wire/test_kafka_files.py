"""Every file of a real Kafka's log directory: read by the formats, written again, and the bytes are the same."""

from collections import Counter

import pytest

from ottla.protocol import batch as b
from ottla.protocol import indexes, snapshot
from ottla.protocol.batch_header import assign_offsets, crc_is_valid, iter_batches, read_header
from ottla.protocol.checkpoints import encode_id
from ottla.protocol.internal_topics import metadata_records
from ottla.protocol.internal_topics.offsets_records import (
    GroupKey,
    OffsetKey,
    decode_group_value,
    decode_offset_value,
    encode_group_value,
    encode_offset_value,
    group_key,
    offset_key,
    read_offsets_key,
)
from ottla.protocol.internal_topics.transaction_records import (
    decode_transaction_value,
    encode_transaction_value,
    read_transaction_key,
    transaction_key,
)
from ottla.protocol.records import iter_records
from ottla.protocol.requests.produced import check_produced_batch


def data_records(directory, pattern):
    for path in sorted(directory.glob(pattern)):
        content = path.read_bytes()
        for at, header in iter_batches(content):
            if not header.is_control:
                yield from iter_records(content, header, at)


def test_every_batch_is_complete_sound_and_readable(kafka_directory):
    seen = Counter()
    for path in sorted(kafka_directory.glob("*/*.log")):
        content = path.read_bytes()
        end = 0
        for at, header in iter_batches(content):
            assert crc_is_valid(content, header, at), (path, at)
            assert len(list(iter_records(content, header, at))) == header.record_count
            if header.is_control:
                seen[b.read_marker(content, header, at).control_type] += 1
            else:
                seen["codec", header.compression] += 1
            end = at + header.size_bytes
        assert end == len(content)
    assert min(seen["codec", codec] for codec in range(5)) >= 4
    assert (seen[b.ABORT], seen[b.COMMIT]) > (300, 1000)


def test_every_batch_that_clients_sent_passes_the_produce_check(kafka_directory):
    for path in sorted(kafka_directory.glob("*/*.log")):
        content = bytearray(path.read_bytes())
        for at, header in list(iter_batches(content)):
            if header.is_control or path.parent.name == "compacted-0":
                continue
            assign_offsets(content, 0, -1, at)
            verdict = check_produced_batch(memoryview(content)[at : at + header.size_bytes])
            assert (verdict.error, verdict.message) == (0, ""), (path, at)
            assert verdict.max_timestamp == header.max_timestamp


def test_markers_are_built_byte_for_byte(kafka_directory):
    count = 0
    for path in sorted(kafka_directory.glob("*-[0-9]/*.log")):
        content = path.read_bytes()
        for at, header in iter_batches(content):
            marker = b.read_marker(content, header, at) if header.is_control else None
            if marker is None or marker.control_type > b.COMMIT or header.delete_horizon_ms is not None:
                continue
            built = b.build_marker(
                header.producer_id,
                header.producer_epoch,
                marker.coordinator_epoch,
                marker.control_type == b.COMMIT,
                header.max_timestamp,
            )
            assign_offsets(built, header.base_offset, header.partition_leader_epoch)
            assert built == content[at : at + header.size_bytes]
            count += 1
    assert count > 1000


def test_indexes_are_written_again_byte_for_byte_but_for_the_zero_tail(kafka_directory):
    kinds = {
        "*/*.index": (indexes.iter_offset_entries, lambda entry: indexes.OFFSET_ENTRY.pack(*entry)),
        "*/*.timeindex": (indexes.iter_time_entries, lambda entry: indexes.TIME_ENTRY.pack(*entry)),
        "*/*.txnindex": (indexes.iter_aborted_txns, indexes.pack_aborted_txn),
    }
    for pattern, (iterate, pack) in kinds.items():
        count = 0
        for path in sorted(kafka_directory.glob(pattern)):
            content = path.read_bytes()
            entries = b"".join(map(pack, iterate(content)))
            assert content[: len(entries)] == entries, path
            assert not content[len(entries) :].strip(b"\0"), path
            count += len(entries)
        assert count > 2000, pattern


def test_index_entries_point_at_the_batch_that_ends_with_their_offset(kafka_directory):
    for path in sorted(kafka_directory.glob("*/*.index")):
        log = path.with_suffix(".log").read_bytes()
        for relative_offset, position in indexes.iter_offset_entries(path.read_bytes()):
            assert read_header(log, position).last_offset == int(path.stem) + relative_offset


def test_snapshots_are_written_again_byte_for_byte(kafka_directory):
    count = 0
    for path in sorted(kafka_directory.glob("*/*.snapshot")):
        content = path.read_bytes()
        entries = snapshot.decode_snapshot(content)
        assert snapshot.encode_snapshot(entries) == content
        count += len(entries)
    assert count >= 25 or kafka_directory.name == "unclean"


def test_transaction_records_are_written_again_byte_for_byte(kafka_directory):
    count = 0
    for record in data_records(kafka_directory, "__transaction_state-*/*.log"):
        assert transaction_key(read_transaction_key(record.key)) == record.key
        version = int.from_bytes(record.value[:2], "big")
        assert encode_transaction_value(decode_transaction_value(record.value), version) == record.value
        count += 1
    assert count > 1500


def test_offset_and_group_records_are_written_again_byte_for_byte(kafka_directory):
    seen = Counter()
    for record in data_records(kafka_directory, "__consumer_offsets-*/*.log"):
        key = read_offsets_key(record.key)
        if isinstance(key, OffsetKey):
            assert offset_key(*key) == record.key
            assert encode_offset_value(decode_offset_value(record.value)) == record.value
        elif isinstance(key, GroupKey):
            assert group_key(*key) == record.key
            assert encode_group_value(decode_group_value(record.value)) == record.value
        seen[type(key)] += 1
    assert seen[OffsetKey] >= 8 and seen[GroupKey] >= 3


@pytest.mark.parametrize("pattern", ["__cluster_metadata-0/*.log", "bootstrap.checkpoint"])
def test_metadata_records_are_written_again_byte_for_byte(kafka_directory, pattern):
    names = set()
    for record in data_records(kafka_directory, pattern):
        decoded = metadata_records.decode_metadata_record(record.value)
        if decoded is not None:
            names.add(type(decoded).__name__)
            assert metadata_records.encode_metadata_record(decoded) == record.value
    expected = {"FeatureLevelRecord"}
    if pattern != "bootstrap.checkpoint":
        expected |= {"TopicRecord", "PartitionRecord", "ConfigRecord", "ProducerIdsRecord"}
        expected |= {"BeginTransactionRecord", "EndTransactionRecord"}
        if kafka_directory.name == "clean":
            expected.add("PartitionChangeRecord")  # the restart elected leaders
    assert expected <= names


def test_topic_ids_read_as_kafka_prints_them(kafka_directory):
    printed = {}
    for path in kafka_directory.glob("*-0/partition.metadata"):
        printed[path.parent.name.removesuffix("-0")] = path.read_text().split("topic_id: ")[1].strip()
    decode = metadata_records.decode_metadata_record
    found = [decode(record.value) for record in data_records(kafka_directory, "__cluster_metadata-0/*.log")]
    topics = [record for record in found if isinstance(record, metadata_records.TopicRecord)]
    assert len(topics) >= 10
    for topic in topics:
        assert encode_id(topic.topic_id) == printed[topic.name]
        assert metadata_records.parse_uuid(printed[topic.name]) == topic.topic_id
