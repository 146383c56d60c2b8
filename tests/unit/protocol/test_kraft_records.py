"""Control records and snapshot files, in the bytes that Kafka 4.3.1 wrote."""

import pytest

from ottla.protocol.batch import KRAFT_VERSION, KRAFT_VOTERS, build_batch
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics import kraft_records as k
from ottla.protocol.records import iter_records

VOTER = k.Voter(1, bytes.fromhex("bb3167f143ff4baeba40731e8ae21c57"), "CONTROLLER", "127.0.0.1", 19193)
CONTROLS = [k.kraft_version(), k.kraft_voters(VOTER)]
# __cluster_metadata-0/00000000000000000000-0000000000.checkpoint of `kafka-storage format --standalone`. Its header is
# 8 ms older than its footer, so ours is compared batch by batch.
HEADER_BATCH = bytes.fromhex(
    "00000000000000000000009a0000000002de7ebf80002000000002000001a1fd76c451000001a1fd76c451ffffffffffffffffffffffffff"
    "ff000000032a0000000800000003160000000001a1fd76c44900001e00000208000000050a000000010000820100000408000000066e0000"
    "0200000001bb3167f143ff4baeba40731e8ae21c57020b434f4e54524f4c4c45520a3132372e302e302e314af9000000000100000000"
)
FOOTER_BATCH = bytes.fromhex(
    "00000000000000030000003f000000000257846197002000000000000001a1fd76c457000001a1fd76c457ffffffffffffffffffffffffff"
    "ff000000011a00000008000000040600000000"
)
# The first batch of a leader's epoch in the log itself.
LEADER_BATCH = bytes.fromhex(
    "0000000000000000000000a200000001026f91c401002000000002000001a1fd76c9cf000001a1fd76c9cfffffffffffffffffffffffffff"
    "ff000000033a00000008000000022600000000000102000000010002000000010000001e00000208000000050a0000000100008201000004"
    "08000000066e00000200000001bb3167f143ff4baeba40731e8ae21c57020b434f4e54524f4c4c45520a3132372e302e302e314af9000000"
    "000100000000"
)


def batch(records, timestamp_ms, base_offset=0, epoch=0):
    return bytes(
        build_batch(
            records, base_offset=base_offset, timestamp_ms=timestamp_ms, control=True, partition_leader_epoch=epoch
        )
    )


def test_snapshot_of_a_new_quorum_has_the_bytes_that_kafka_writes():
    header = k.snapshot_header(int.from_bytes(HEADER_BATCH[73:81], "big"))
    assert batch([header, *CONTROLS], 0x1A1FD76C451) == HEADER_BATCH
    assert batch([k.snapshot_footer()], 0x1A1FD76C457, 3) == FOOTER_BATCH


def test_leader_change_has_the_bytes_that_kafka_writes():
    assert batch([k.leader_change(1), *CONTROLS], 0x1A1FD76C9CF, 0, 1) == LEADER_BATCH


def test_kafka_s_snapshot_holds_no_data():
    found = list(k.read_snapshot(HEADER_BATCH + FOOTER_BATCH))
    assert [header.is_control for header, _ in found] == [True, True]


def test_quorum_records_written_by_kafka_are_read_unchanged():
    for content in map(memoryview, (HEADER_BATCH, LEADER_BATCH)):
        ((_, header),) = iter_batches(content)
        found = list(k.quorum_records(header, content))
        assert [record for _, record in found] == CONTROLS
        assert [control_type for control_type, _ in found] == [KRAFT_VERSION, KRAFT_VOTERS]


def test_the_snapshot_timestamp_is_read_from_its_header():
    assert k.snapshot_timestamp_ms(HEADER_BATCH + FOOTER_BATCH) == int.from_bytes(HEADER_BATCH[73:81], "big")
    with pytest.raises(ProtocolError):
        k.snapshot_timestamp_ms(FOOTER_BATCH)
    with pytest.raises(ProtocolError):
        k.snapshot_timestamp_ms(b"")


def test_snapshot_values_are_read_in_order():
    values = [b"%d" % number for number in range(2 * k.RECORDS_PER_BATCH + 1)]
    content = k.build_snapshot(CONTROLS, values, 5)
    found = [(header, data) for header, data in k.read_snapshot(content) if not header.is_control]
    assert [(header.base_offset, header.record_count) for header, _ in found] == [
        (3, k.RECORDS_PER_BATCH),
        (3 + k.RECORDS_PER_BATCH, k.RECORDS_PER_BATCH),
        (3 + 2 * k.RECORDS_PER_BATCH, 1),
    ]
    assert [record.value for header, data in found for record in iter_records(data, header)] == values


def test_snapshot_that_is_cut_or_longer_or_changed_is_refused():
    content = k.build_snapshot(CONTROLS, [b"a", b"b"], 5)
    for cut in range(len(content)):
        with pytest.raises(ProtocolError):
            list(k.read_snapshot(content[:cut]))
    with pytest.raises(ProtocolError):
        list(k.read_snapshot(content + b"\0"))
    flipped = bytearray(content)
    flipped[70] ^= 1
    with pytest.raises(ProtocolError, match="CRC"):
        list(k.read_snapshot(bytes(flipped)))


@pytest.mark.parametrize(
    ("name", "snapshot"),
    [
        ("00000000000000000000-0000000000.checkpoint", k.SnapshotId(0, 0)),
        ("00000000000000001234-0000000007.checkpoint", k.SnapshotId(1234, 7)),
        ("00000000000000001234-0000000007.checkpoint.part", None),
        ("00000000000000001234-0000000007.checkpoint.deleted", None),
        ("bootstrap.checkpoint", None),
    ],
)
def test_names_of_snapshots(name, snapshot):
    assert k.parse_snapshot_name(name) == snapshot
    assert snapshot is None or k.snapshot_name(snapshot) == name
