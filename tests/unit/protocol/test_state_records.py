import pytest

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import UnknownVersion
from ottla.protocol.internal_topics import transaction_records
from ottla.protocol.internal_topics.offsets_records import (
    GroupKey,
    GroupMember,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_offset_value,
    encode_group_value,
    encode_offset_value,
    group_key,
    offset_key,
    read_offsets_key,
)
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    decode_transaction_value,
    encode_transaction_value,
    read_transaction_key,
    transaction_key,
)

TS = 1700000000000
ONGOING = TransactionValue(4000, 3, 60000, 1, (("foo", (1,)),), TS + 1, TS)
EMPTY = TransactionValue(4000, 0, 60000, 0, None, TS + 1, -1)
TRANSACTION_VECTORS = [
    (
        0,
        ONGOING,
        "0000 0000000000000fa0 0003 0000ea60 01 00000001 0003666f6f 00000001 00000001 0000018bcfe568010000018bcfe56800",
    ),
    (
        1,
        ONGOING._replace(previous_producer_id=4000, client_version=2),
        "0001 0000000000000fa0 0003 0000ea60 01 02 04666f6f 02 00000001 00 0000018bcfe56801 0000018bcfe56800 02 0008"
        "0000000000000fa0 0202 0002",
    ),
    (0, EMPTY, "0000 0000000000000fa0 0000 0000ea60 00 ffffffff 0000018bcfe56801 ffffffffffffffff"),
    (
        1,
        EMPTY._replace(previous_producer_id=4000),
        "0001 0000000000000fa0 0000 0000ea60 00 00 0000018bcfe56801 ffffffffffffffff 01 0008 0000000000000fa0",
    ),
]
COMMITTED = OffsetValue(42, 5, "m", TS)
TOPIC_ID = bytes(range(16))
OFFSET_VECTORS = [
    (3, COMMITTED, "0003 000000000000002a 00000005 00016d 0000018bcfe56800"),
    (4, COMMITTED, "0004 000000000000002a 00000005 026d 0000018bcfe56800 00"),
    (
        4,
        COMMITTED._replace(topic_id=TOPIC_ID),
        "0004 000000000000002a 00000005 026d 0000018bcfe56800 01 00 10" + TOPIC_ID.hex(),
    ),
    (1, OffsetValue(42, -1, "m", TS, TS + 1), "0001 000000000000002a 00016d 0000018bcfe56800 0000018bcfe56801"),
]
GROUP = GroupValue(
    "consumer", 7, "range", "m-1", TS, (GroupMember("m-1", "static", "c", "/127.0.0.1", 300000, 10000, b"s", b"a"),)
)


def test_transaction_key_has_the_bytes_that_kafka_writes():
    assert transaction_key("my-txn").hex() == "000000066d792d74786e"
    assert read_transaction_key(transaction_key("my-txn")) == "my-txn"
    assert read_transaction_key(b"\0\1rest") is None


@pytest.mark.parametrize(("version", "value", "kafka"), TRANSACTION_VECTORS)
def test_transaction_value_has_the_bytes_that_kafka_writes(version, value, kafka):
    assert encode_transaction_value(value, version).hex() == kafka.replace(" ", "")
    assert decode_transaction_value(bytes.fromhex(kafka)) == value


def test_next_producer_id_survives():
    value = ONGOING._replace(previous_producer_id=1, next_producer_id=2, client_version=2)
    assert decode_transaction_value(encode_transaction_value(value)) == value


@pytest.mark.parametrize("partitions", [None, (), (("foo", (1,)),)])
@pytest.mark.parametrize("client_version", [0, 2])
@pytest.mark.parametrize("next_id", [-1, 12])
@pytest.mark.parametrize("previous_id", [-1, 7, 2**40])
def test_values_read_in_one_go_are_those_that_are_read_field_by_field(partitions, client_version, next_id, previous_id):
    value = TransactionValue(7, 3, 60_000, 4, partitions, 99, 98, previous_id, next_id, client_version)
    content = encode_transaction_value(value)
    assert decode_transaction_value(content) == transaction_records._decode_any(content) == value


@pytest.mark.parametrize("at", range(49))
@pytest.mark.parametrize("bit", range(8))
def test_damage_is_read_the_same_way_in_one_go_and_field_by_field(at, bit):
    content = bytearray(encode_transaction_value(TransactionValue(7, 3, 60_000, 4, (), 99, 98, 7, -1, 2)))
    assert len(content) == 49
    content[at] ^= 1 << bit
    outcomes = []
    for decode in (decode_transaction_value, transaction_records._decode_any):
        try:
            outcomes.append(decode(bytes(content)))
        except ProtocolError as problem:
            outcomes.append(str(problem))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("client_version", [0, 2])
def test_damage_of_partitions_is_read_the_same_way_in_one_go_and_field_by_field(client_version):
    places = (("ledger", (0, 7)), ("t", (1,)))
    whole = encode_transaction_value(TransactionValue(7, 3, 60_000, 1, places, 99, 98, 7, -1, client_version))
    for at in range(len(whole)):
        for value in (0, 1, 2, 3, 8, 255):
            content = whole[:at] + bytes([value]) + whole[at + 1 :]
            for damaged in (content, content[:at], content[:at] + content[at + 1 :]):
                outcomes = []
                for decode in (decode_transaction_value, transaction_records._decode_any):
                    try:
                        outcomes.append(decode(damaged))
                    except ProtocolError as problem:
                        outcomes.append(str(problem))
                assert outcomes[0] == outcomes[1]


def test_client_version_cannot_be_written_at_version_0():
    with pytest.raises(ValueError, match="version 0"):
        encode_transaction_value(ONGOING._replace(client_version=2), 0)


def test_a_newer_value_version_raises_unknown_version():
    for decode in (decode_transaction_value, decode_offset_value, decode_group_value):
        with pytest.raises(UnknownVersion):
            decode(b"\0\5" + bytes(50))


@pytest.mark.parametrize(("version", "value", "kafka"), OFFSET_VECTORS)
def test_offset_value_has_the_bytes_that_kafka_writes(version, value, kafka):
    assert encode_offset_value(value, version).hex() == kafka.replace(" ", "")
    assert decode_offset_value(bytes.fromhex(kafka)) == value


def test_offset_value_is_written_at_version_4_or_1_with_an_expiry():
    assert encode_offset_value(COMMITTED)[:2] == b"\0\4"
    assert encode_offset_value(COMMITTED._replace(leader_epoch=-1, expire_ms=TS))[:2] == b"\0\1"
    with pytest.raises(ValueError, match="expiry"):
        encode_offset_value(COMMITTED._replace(expire_ms=TS), 4)


def test_offsets_keys_read_back_and_unknown_types_are_none():
    assert offset_key("g", "foo", 1).hex() == "00010001670003666f6f00000001"
    assert read_offsets_key(offset_key("g", "foo", 1)) == OffsetKey("g", "foo", 1)
    assert read_offsets_key(b"\0\0" + offset_key("g", "foo", 1)[2:]) == OffsetKey("g", "foo", 1)
    assert group_key("g").hex() == "0002000167"
    assert read_offsets_key(group_key("g")) == GroupKey("g")
    assert read_offsets_key(b"\0\x10\0\1g") is None


@pytest.mark.parametrize("version", [3, 4])
def test_group_value_reads_back(version):
    assert decode_group_value(encode_group_value(GROUP, version)) == GROUP


def test_old_group_values_take_kafkas_defaults():
    value = decode_group_value(encode_group_value(GROUP, 0))
    assert value.state_timestamp_ms == -1
    assert (value.members[0].group_instance_id, value.members[0].rebalance_timeout_ms) == (None, 10000)
    assert decode_group_value(encode_group_value(GROUP, 2)).state_timestamp_ms == TS


def test_empty_group_has_neither_protocol_nor_leader():
    empty = GroupValue("consumer", 8, None, None, TS, ())
    assert decode_group_value(encode_group_value(empty)) == empty


@pytest.mark.parametrize(
    ("decode", "content"),
    [
        (decode_transaction_value, encode_transaction_value(TRANSACTION_VECTORS[1][1])),
        (decode_transaction_value, encode_transaction_value(ONGOING, 0)),
        (decode_offset_value, encode_offset_value(COMMITTED)),
        (decode_group_value, encode_group_value(GROUP)),
        (decode_group_value, encode_group_value(GROUP, 4)),
        (read_transaction_key, transaction_key("my-txn")),
        (read_offsets_key, offset_key("g", "foo", 1)),
    ],
)
def test_cut_or_longer_records_are_refused(decode, content):
    for broken in [content[:cut] for cut in range(len(content))] + [content + b"\0"]:
        with pytest.raises(ProtocolError):
            decode(broken)


def test_an_array_count_beyond_the_value_is_refused():
    head = bytes.fromhex("0000 0000000000000fa0 0003 0000ea60 01 7fffffff")
    with pytest.raises(ProtocolError, match="array of 2147483647"):
        decode_transaction_value(head + bytes(100))
