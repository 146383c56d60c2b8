"""Properties: written data reads back, accepted data is readable, garbage ends in ProtocolError."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol import batch as b
from ottla.protocol import indexes, snapshot
from ottla.protocol.batch_header import HEADER_SIZE, assemble, assign_offsets, crc_is_valid, iter_batches, read_header
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.internal_topics import metadata_records
from ottla.protocol.internal_topics.offsets_records import (
    OffsetValue,
    decode_group_value,
    decode_offset_value,
    encode_offset_value,
    read_offsets_key,
)
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    decode_transaction_value,
    encode_transaction_value,
    read_transaction_key,
)
from ottla.protocol.records import NewRecord, iter_records
from ottla.protocol.requests.produced import check_produced_batch
from ottla.testkit import scanner

EXAMPLES = settings(max_examples=75, deadline=None)

short_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=70), short_bytes), max_size=3)
timestamps = st.integers(-1, 2**42)
new_records = st.lists(st.builds(NewRecord, short_bytes, short_bytes, headers, timestamps), min_size=1, max_size=80)
codecs = st.integers(0, 4)
int16, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))


def scan(batch):
    found, _ = scanner._read_batch(Path("memory"), bytes(batch), 0)
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers), r.sequence) for r in found.records()]


@pytest.mark.slow
@EXAMPLES
@given(new_records, codecs, st.integers(0, 2**31 - 1), st.integers(0, 2**62))
def test_a_built_batch_is_accepted_and_reads_back(records, codec, sequence, offset):
    batch = b.build_batch(records, compression=codec, producer_id=7, producer_epoch=1, base_sequence=sequence)
    verdict = check_produced_batch(memoryview(bytes(batch)))
    times = [record.timestamp_ms for record in records]
    assert (verdict.error, verdict.message) == (ErrorCode.NONE, "")
    assert (verdict.min_timestamp, verdict.max_timestamp) == (min(times), max(times))
    assert verdict.has_null_key == any(record.key is None for record in records)

    assign_offsets(batch, offset, 3)
    header = read_header(batch)
    assert crc_is_valid(batch, header)
    found = list(iter_records(batch, header))
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in found] == [tuple(r) for r in records]
    assert [r.offset for r in found] == list(range(offset, offset + len(records)))
    assert [r.sequence for r in found] == [(sequence + i) % 2**31 for i in range(len(records))]
    assert scan(batch) == [tuple(record) for record in found]


@pytest.mark.slow
@EXAMPLES
@given(new_records, st.data())
def test_a_damaged_batch_is_either_refused_or_readable(records, data):
    """The CRC is valid, so only the walk over the frames protects readers from the bytes."""
    batch = b.build_batch(records)
    payload = bytearray(batch[HEADER_SIZE:])
    for at in data.draw(st.lists(st.integers(0, len(payload) - 1), min_size=1, max_size=3)):
        payload[at] = data.draw(st.integers(0, 255))
    damaged = assemble(read_header(batch), payload)
    verdict = check_produced_batch(memoryview(damaged))
    header = read_header(damaged)
    if verdict.error != ErrorCode.NONE:
        assert verdict.error == ErrorCode.INVALID_RECORD
        with pytest.raises((ProtocolError, AssertionError)):
            found = list(iter_records(damaged, header))
            assert [record.offset for record in found] == list(range(len(records)))
            assert all(-(2**63) <= record.timestamp < 2**63 for record in found)
        return
    found = list(iter_records(damaged, header))
    assert [record.offset for record in found] == list(range(len(records)))
    assert verdict.max_timestamp == max(record.timestamp for record in found)
    assert verdict.min_timestamp == min(record.timestamp for record in found)
    assert verdict.has_null_key == any(record.key is None for record in found)
    assert scan(damaged) == [tuple(record) for record in found]


@pytest.mark.slow
@EXAMPLES
@given(new_records, codecs, st.data())
def test_any_changed_byte_of_a_batch_gets_a_verdict(records, codec, data):
    batch = b.build_batch(records, compression=codec)
    at = data.draw(st.integers(0, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    verdict = check_produced_batch(memoryview(batch), max_decompressed_bytes=1 << 20)
    if 12 <= at < 16:
        assert verdict.error == ErrorCode.NONE  # the leader epoch is the broker's to write
    else:
        assert verdict.error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@EXAMPLES
@given(st.integers(1, 7), st.binary(max_size=300), new_records, st.data())
def test_any_compressed_section_gets_a_verdict(codec, garbage, records, data):
    batch = b.build_batch(records, compression=codec if codec <= 4 else 0)
    payload = bytes(batch[HEADER_SIZE:])
    cut = data.draw(st.integers(0, len(payload)))
    header = read_header(batch)._replace(attributes=codec)
    damaged = assemble(header, payload[:cut] + garbage)
    verdict = check_produced_batch(memoryview(damaged), max_decompressed_bytes=1 << 20)
    assert isinstance(verdict.error, ErrorCode)
    if verdict.error == ErrorCode.NONE:
        assert len(list(iter_records(damaged, read_header(damaged)))) == len(records)


@EXAMPLES
@given(st.binary(max_size=400))
def test_any_bytes_get_a_verdict(content):
    assert check_produced_batch(memoryview(content)).error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@EXAMPLES
@given(
    st.binary(max_size=200),
    st.sampled_from(
        [
            decode_transaction_value,
            decode_offset_value,
            decode_group_value,
            read_transaction_key,
            read_offsets_key,
            metadata_records.decode_metadata_record,
            snapshot.decode_snapshot,
            lambda content: list(indexes.iter_aborted_txns(content)),
            lambda content: list(indexes.iter_offset_entries(content)),
            lambda content: list(indexes.iter_time_entries(content)),
            lambda content: list(iter_batches(content)),
        ]
    ),
    st.sampled_from([b"", b"\0\0", b"\0\1", b"\0\2", b"\0\3", b"\0\4", b"\1\2\0", b"\1\3\2", b"\1\5\2", b"\1\4\0"]),
)
def test_garbage_ends_in_a_protocol_error_or_a_value(content, decode, prefix):
    try:
        decode(prefix + content)
    except ProtocolError as error:
        assert str(error)


@EXAMPLES
@given(st.lists(st.builds(snapshot.ProducerEntry, int64, int16, int32, int64, int32, int64, int32, int64), max_size=5))
def test_snapshots_survive(entries):
    assert snapshot.decode_snapshot(snapshot.encode_snapshot(entries)) == entries


partition_lists = st.none() | st.lists(
    st.tuples(st.text(max_size=30), st.lists(int32, max_size=4).map(tuple)), max_size=3
).map(tuple)
transaction_values = st.builds(
    TransactionValue, int64, int16, int32, st.integers(0, 7), partition_lists, int64, int64, int64, int64, int16
)


@EXAMPLES
@given(transaction_values)
def test_transaction_values_survive(value):
    assert decode_transaction_value(encode_transaction_value(value)) == value


@EXAMPLES
@given(
    st.builds(
        OffsetValue,
        int64,
        int32,
        st.text(max_size=50),
        int64,
        st.just(-1),
        st.none() | st.binary(min_size=16, max_size=16),
    )
)
def test_offset_values_survive(value):
    assert decode_offset_value(encode_offset_value(value)) == value
    assert encode_offset_value(value) == encode_offset_value(value, 4)
