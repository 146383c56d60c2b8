"""Produce: each kind of invalid records is refused with its error and one log line, and nothing is appended.

`tests/unit/protocol/test_produced.py` has more of them, where Kafka answers otherwise or has no such check.
"""

import itertools
import struct

import pytest
from hostile import Case, batch, bytes_of, cases, compress_batch, expect, produce, record, records_at, replace, sound
from rig import CLOSED, FIND_COORDINATOR, PRODUCE, wait_until

from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import CONTROL, TRANSACTIONAL, seal
from ottla.protocol.compression import ZSTD
from ottla.protocol.errors import ErrorCode

VERSION = 9
SOUND = batch()
FAR_MS = 1 << 45  # some time in the year 3084
PRODUCER_IDS = itertools.count(900_000_000)


def to_topic(records, **fields):
    """Return a Produce of these records to the topic that stays empty."""
    return lambda rig: produce((rig.topic, [(0, records)]), **fields)


def row(name, error, records, version=VERSION):
    return Case(name, to_topic(records, version=version), error, says=f"Produce v{version}")


def replace_and_seal(data, position, value):
    """Return `data` with other bytes at `position` and a valid CRC."""
    out = bytearray(replace(data, position, value))
    seal(out)
    return bytes(out)


def legacy(magic):
    """Return a message of the formats before v2: offset, size, CRC, magic, attributes, [timestamp], key, value."""
    fixed = struct.pack(">bb", magic, 0) + (struct.pack(">q", -1) if magic else b"")
    body = bytes(4) + fixed + struct.pack(">i", -1) + struct.pack(">i1s", 1, b"v")
    return struct.pack(">qi", 0, len(body)) + body


CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
ENVELOPE = [
    row("records-empty", INVALID, b""),
    row("records-of-5-bytes", INVALID, SOUND[:5]),
    row("magic-0", INVALID, legacy(0)),
    row("magic-1", INVALID, legacy(1)),
    row("magic-3", CORRUPT, replace(SOUND, 16, b"\3")),
    row("magic-minus-1", CORRUPT, replace(SOUND, 16, b"\xff")),
    row("two-batches", INVALID, SOUND * 2),
    row("batch-and-garbage", CORRUPT, SOUND + bytes(61)),
    row("base-offset-5", INVALID, batch(base_offset=5)),
    row("base-offset-minus-1", INVALID, batch(base_offset=-1)),
    row("length-beyond-the-buffer", INVALID, replace(SOUND, 8, struct.pack(">i", len(SOUND)))),
    row("length-13", CORRUPT, replace(SOUND, 8, struct.pack(">i", 13))),
    row("length-minus-1", CORRUPT, replace(SOUND, 8, struct.pack(">i", -1))),
    row("length-20", CORRUPT, replace(SOUND, 8, struct.pack(">i", 20))),
    row("crc-wrong", CORRUPT, replace(SOUND, 17, b"\0\0\0\0")),
    row("last-byte-flipped", CORRUPT, SOUND[:-1] + bytes([SOUND[-1] ^ 1])),
]
HEADERS = [
    row("count-2-delta-0", INVALID, batch(record_count=2)),
    row("count-1-delta-1", INVALID, batch(last_offset_delta=1)),
    row("count-0", INVALID, batch(record_count=0)),
    row("count-minus-1", INVALID, batch(record_count=-1, last_offset_delta=-2)),
    row("count-lowest", INVALID, batch(record_count=-(2**31), last_offset_delta=2**31 - 1)),
    row("more-records-than-bytes", INVALID, batch(record_count=2**31 - 1, last_offset_delta=2**31 - 2)),
    row("empty-batch", INVALID, batch(b"", records=0)),
    row("control", INVALID, batch(attributes=CONTROL)),
    row("control-with-producer", INVALID, batch(attributes=CONTROL, producer_id=7, producer_epoch=0, base_sequence=0)),
    row("sequence-minus-1", INVALID, batch(producer_id=7, producer_epoch=0)),
    row("zstd-in-v6", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, compress_batch(ZSTD, record(0)), version=6),
]
RECORDS = [
    row("record-overrun", INVALID, replace_and_seal(SOUND, 61, b"\x7e")),
    row("record-length-minus-1", INVALID, replace_and_seal(SOUND, 61, b"\x01")),
    row("record-length-0", INVALID, replace_and_seal(SOUND, 61, b"\x00")),
    row("bytes-behind-the-last-record", INVALID, batch(record(0) + b"\0")),
    row("one-record-of-two-missing", INVALID, batch(record(0), records=2)),
    row("key-overrun", INVALID, replace_and_seal(SOUND, 65, b"\x7e")),
    row("value-overrun", INVALID, replace_and_seal(SOUND, 67, b"\x7e")),
    row("header-count-minus-3", INVALID, replace_and_seal(SOUND, 69, b"\x05")),
    row("header-count-2^30", INVALID, batch(b"\x1a" + record(0)[1:-1] + b"\x80\x80\x80\x80\x08" + b"\0\0")),
]


def assert_refusal(rig, case, peer):
    peer.send(bytes_of(rig, case))
    reply = peer.reply(PRODUCE, int(case.says.rpartition("v")[2]))
    assert reply is not CLOSED
    expect(case.answer)(reply)
    if rig.is_ours:
        (line,) = rig.lines_about(peer)
        assert case.says in line and case.answer.name in line and f"'{rig.topic}'-0" in line


@cases(*ENVELOPE, *HEADERS, *RECORDS)
def test_bad_batch(rig, case):
    with rig.connect() as peer:
        assert_refusal(rig, case, peer)
        peer.send(produce(version=VERSION))
        assert peer.frame() is not CLOSED


def status(reply):
    return [
        (topic.name, row.index, ErrorCode(row.error_code))
        for topic in reply.responses
        for row in topic.partition_responses
    ]


@pytest.fixture
def ask(rig):
    """Send a Produce and get the reply; one connection for the test."""
    with rig.connect() as peer:

        def ask(*topics, version=VERSION, **fields):
            peer.send(produce(*topics, version=version, **fields))
            return peer.reply(PRODUCE, version)

        ask.peer = peer
        yield ask


on_both = cases(Case("", b""))


@on_both
def test_acks_2_is_refused(rig, case, ask):
    reply = ask((rig.topic, [(0, SOUND)]), acks=2)
    assert status(reply) == [(rig.topic, 0, ErrorCode.INVALID_REQUIRED_ACKS)]


@on_both
def test_acks_0_with_an_error_closes(rig, case, ask):
    assert ask(("nowhere\n[x] ERROR", [(0, SOUND)]), acks=0) is CLOSED
    if rig.is_ours:
        (line,) = rig.lines_about(ask.peer)
        assert "Produce" in line and "UNKNOWN_TOPIC_OR_PARTITION" in line


@cases(
    *(
        Case(repr(place)[:12], place)
        for place in (("nowhere", 0), ("", 0), ("a b", 0), ("x" * 300, 0), (None, 1), (None, -1))
    )
)
def test_unknown_place(rig, case, ask):
    topic, index = case.data
    topic = rig.topic if topic is None else topic
    assert status(ask((topic, [(index, SOUND)]))) == [(topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


INTERNAL = ("__consumer_offsets", "__transaction_state")


@cases(*(Case(f"{t}-as-{c}", (t, c), alike=c == "hostile") for t in INTERNAL for c in ("hostile", "__admin_client")))
def test_internal_topic_is_never_written(rig, case, ask):
    topic, client_id = case.data
    create_internal_topics(rig)
    end = rig.end_offset(topic)
    reply = ask((topic, [(0, SOUND)]), client_id=client_id)
    assert status(reply) == [(topic, 0, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert rig.end_offset(topic) == end


def create_internal_topics(rig):
    """Create both by asking for a coordinator."""
    with rig.connect() as peer:
        for kind, topic in enumerate(INTERNAL):
            peer.send(sound(FIND_COORDINATOR, 2, key="k", key_type=kind))
            peer.frame()
            wait_until(lambda topic=topic: rig.end_offset(topic) is not None)


@on_both
def test_bad_partition_leaves_its_neighbours_alone(rig, case, ask):
    topic = rig.new_topic(partitions=3)
    reply = ask((topic, [(0, SOUND), (1, replace(SOUND, 17, bytes(4))), (2, SOUND)]))
    # Kafka's order of topics in the response differs.
    assert [error for _, _, error in sorted(status(reply))] == [ErrorCode.NONE, CORRUPT, ErrorCode.NONE]
    assert [rig.end_offset(topic, index) for index in range(3)] == [1, 0, 1]


@on_both
def test_null_key_on_a_compacted_topic(rig, case, ask):
    topic = rig.new_topic(cleanup_policy="compact")
    reply = ask((topic, [(0, records_at(-1, (b"a", None, b"c", None)))]))
    (row,) = reply.responses[0].partition_responses
    assert (row.error_code, [e.batch_index for e in row.record_errors]) == (INVALID, [1, 3])
    assert rig.end_offset(topic) == 0


@on_both
def test_far_timestamp_names_the_records(rig, case, ask):
    reply = ask((rig.topic, [(0, records_at(FAR_MS, (b"a", b"b")))]))
    (row,) = reply.responses[0].partition_responses
    assert (row.error_code, [e.batch_index for e in row.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])


@on_both
def test_batch_above_the_limits(rig, case, ask):
    small = rig.new_topic(max_message_bytes="1000")
    wide = rig.new_topic(max_message_bytes="4000000", segment_bytes="1048576")
    large = bytes(build_batch([(b"k", b"v" * 2000)]))
    huge = bytes(build_batch([(b"k", b"v" * 1_500_000)]))
    assert status(ask((small, [(0, large)]))) == [(small, 0, ErrorCode.MESSAGE_TOO_LARGE)]
    assert status(ask((wide, [(0, huge)]))) == [(wide, 0, ErrorCode.RECORD_LIST_TOO_LARGE)]
    assert status(ask((small, [(0, replace(large, 17, bytes(4)))]))) == [(small, 0, ErrorCode.MESSAGE_TOO_LARGE)]
    assert (rig.end_offset(small), rig.end_offset(wide)) == (0, 0)


@on_both
def test_sequences(rig, case, ask):
    topic = rig.new_topic()
    producer = {"producer_id": next(PRODUCER_IDS), "producer_epoch": 3}

    def outcome(**fields):
        (row,) = ask((topic, [(0, batch(**(producer | fields)))])).responses[0].partition_responses
        return ErrorCode(row.error_code), row.base_offset

    assert outcome(base_sequence=5) == (ErrorCode.NONE, 0)  # an unknown producer may begin anywhere
    assert outcome(base_sequence=5) == (ErrorCode.NONE, 0)  # an exact repeat
    assert outcome(base_sequence=7) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert outcome(base_sequence=5, records=2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert outcome(base_sequence=6, producer_epoch=2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert outcome(base_sequence=6, producer_epoch=4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert outcome(base_sequence=6) == (ErrorCode.NONE, 1)
    assert rig.end_offset(topic) == 2


@on_both
def test_transactional_batch_needs_its_transactional_id(rig, case, ask):
    create_internal_topics(rig)
    records = batch(attributes=TRANSACTIONAL, producer_id=next(PRODUCER_IDS), producer_epoch=0, base_sequence=0)
    errors = [status(ask((rig.topic, [(0, records)]), transactional_id=name))[0][2] for name in (None, "nobody's")]
    assert errors == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
