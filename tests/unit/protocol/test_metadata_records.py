import pytest

from ottla.protocol.checkpoints import encode_id
from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import UnknownVersion
from ottla.protocol.internal_topics import metadata_records as m

TOPIC_ID = bytes.fromhex("ce7c3ef79c9e42b3938ad8db5f04bc02")
DIRECTORY = bytes.fromhex("bb3167f143ff4baeba40731e8ae21c57")
OTHER_ID = bytes.fromhex("1087150138a847ebbe2df84b3ec5c5e0")
# Values that Kafka 4.3.1 wrote.
VECTORS = [
    (m.FeatureLevelRecord("metadata.version", 30), "010c00116d657461646174612e76657273696f6e001e00"),
    (
        m.ConfigRecord(m.BROKER_RESOURCE, "", "min.insync.replicas", "1"),
        "0104000401146d696e2e696e73796e632e7265706c69636173023100",
    ),
    (m.TopicRecord("ledger", TOPIC_ID), "010200076c6564676572ce7c3ef79c9e42b3938ad8db5f04bc0200"),
    (
        m.PartitionRecord(0, TOPIC_ID, (1,), (1,), 1, 0, 0, (DIRECTORY,)),
        "01030200000000ce7c3ef79c9e42b3938ad8db5f04bc0202000000010200000001010100000001000000000000000002bb3167f143ff"
        "4baeba40731e8ae21c5700",
    ),
    (
        m.PartitionChangeRecord(0, OTHER_ID, (), m.NO_LEADER, eligible_leader_replicas=(1,), last_known_elr=(1,)),
        "010502000000001087150138a847ebbe2df84b3ec5c5e0040001010104ffffffff0605020000000107050200000001",
    ),
    (m.ProducerIdsRecord(1, 13, 1000), "010f0000000001000000000000000d00000000000003e800"),
    (m.BeginTransactionRecord("Bootstrap records"), "01170001001212426f6f747374726170207265636f726473"),
    (m.EndTransactionRecord(), "01180000"),
]


@pytest.mark.parametrize(("record", "kafka"), VECTORS)
def test_record_has_the_bytes_that_kafka_writes(record, kafka):
    assert m.encode_metadata_record(record).hex() == kafka
    assert m.decode_metadata_record(bytes.fromhex(kafka)) == record


@pytest.mark.parametrize(
    "record",
    [
        m.RemoveTopicRecord(TOPIC_ID),
        m.ConfigRecord(m.TOPIC_RESOURCE, "ledger", "retention.ms", None),
        m.AbortTransactionRecord("no"),
        m.AbortTransactionRecord(),
        m.BeginTransactionRecord(),
        m.PartitionRecord(3, TOPIC_ID, (1, 2), (2,), 2, 4, 5, (DIRECTORY, OTHER_ID), (1,), (3,), 1, (2,), ()),
        m.PartitionChangeRecord(3, TOPIC_ID, (1,), 7, (1,), (), (2,), 0, (1,), (2,), (DIRECTORY,)),
        m.PartitionChangeRecord(3, TOPIC_ID),
    ],
)
def test_record_survives(record):
    assert m.decode_metadata_record(m.encode_metadata_record(record)) == record


def test_older_partition_records_have_no_directories():
    value = bytes.fromhex("010300") + bytes(4) + TOPIC_ID + b"\1" * 4 + bytes(12) + b"\0"
    assert m.decode_metadata_record(value) == m.PartitionRecord(0, TOPIC_ID, (), (), 0, 0, 0)


def test_unknown_types_are_none_and_newer_versions_are_named():
    assert m.decode_metadata_record(b"\1\x14\0\0") is None
    with pytest.raises(UnknownVersion):
        m.decode_metadata_record(b"\1\x0c\1" + bytes(30))
    with pytest.raises(ProtocolError, match="frame version 2"):
        m.decode_metadata_record(b"\2\x0c\0")


def test_record_types_are_read_without_decoding_the_record():
    # NoOp, and the registration of a broker as Kafka 4.3.1 began it.
    assert m.metadata_record_type(bytes.fromhex("01140000")) == 20
    assert m.metadata_record_type(bytes.fromhex("0100040000000100")) == 0
    assert [m.metadata_record_type(bytes.fromhex(kafka)) for _, kafka in VECTORS] == [12, 4, 2, 3, 5, 15, 23, 24]
    with pytest.raises(ProtocolError, match="frame version 2"):
        m.metadata_record_type(b"\2\x0c\0")


@pytest.mark.parametrize(("record", "kafka"), VECTORS)
def test_cut_or_longer_values_are_refused(record, kafka):
    content = bytes.fromhex(kafka)
    for broken in [content[:cut] for cut in range(len(content))] + [content + b"\0"]:
        with pytest.raises(ProtocolError):
            m.decode_metadata_record(broken)


def test_ids_read_and_print_as_base64url():
    assert encode_id(TOPIC_ID) == "znw-95yeQrOTitjbXwS8Ag"
    assert m.parse_uuid("znw-95yeQrOTitjbXwS8Ag") == TOPIC_ID
    for text in ("", "znw-95yeQrOTitjbXwS8A", "znw-95yeQrOTitjbXwS8Ag==x", "znw+95yeQrOTitjbXwS8Ag!", "é" * 22):
        with pytest.raises(ProtocolError):
            m.parse_uuid(text)
