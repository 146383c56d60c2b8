"""Produce requests and responses against the library's bytes, and hostile requests."""

import struct
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.primitives import NodeEndpoint
from ottla.protocol.requests import codec
from ottla.protocol.requests.produce_wire import PartitionResponse, decode_produce_request, encode_produce_response
from tests.wire.messages import framed_by_library

VERSIONS = range(3, 14)
INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
NAMES = st.text(max_size=20)
IDS = st.binary(min_size=16, max_size=16)


def request_bytes(version, transactional_id, acks, timeout_ms, topics):
    """`topics`: [(name, 16 bytes of id, [(partition, records or None)])], encoded by the library."""
    request = codec.request_class(ApiKey.PRODUCE)
    topic_class = request.TopicProduceData
    message = request(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            topic_class(
                name=name,
                topic_id=uuid.UUID(bytes=topic_id),
                partition_data=[
                    topic_class.PartitionProduceData(index=partition, records=records) for partition, records in rows
                ],
            )
            for name, topic_id, rows in topics
        ],
    )
    return bytes(message.encode(version=version))


@settings(max_examples=60, deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    transactional_id=st.none() | NAMES,
    acks=INT16,
    timeout_ms=INT32,
    topics=st.lists(
        st.tuples(NAMES, IDS, st.lists(st.tuples(INT32, st.none() | st.binary(max_size=300)), max_size=3)), max_size=3
    ),
    trailing=st.binary(max_size=3),
)
def test_request_reads_as_the_library_wrote_it(version, transactional_id, acks, timeout_ms, topics, trailing):
    raw = request_bytes(version, transactional_id, acks, timeout_ms, topics) + trailing
    body = decode_produce_request(version, memoryview(raw))
    assert (body.transactional_id, body.acks, body.timeout_ms) == (transactional_id, acks, timeout_ms)
    assert body.trailing_bytes == len(trailing)
    by_id = version >= 13
    assert [name for name, _ in body.topics] == ["" if by_id else name for name, _, _ in topics]
    assert body.topic_ids == ([topic_id for _, topic_id, _ in topics] if by_id else [])
    assert [[(p, r if r is None else bytes(r)) for p, r in rows] for _, rows in body.topics] == [t[2] for t in topics]


def test_records_are_slices_of_the_frame():
    raw = bytearray(request_bytes(9, None, -1, 1000, [("topic", bytes(16), [(0, b"r" * 100)])]))
    records = decode_produce_request(9, memoryview(raw)).topics[0][1][0][1]
    raw[raw.index(b"rrr")] = ord("x")
    assert records[0] == ord("x")


NO_TAGS, ONE_TAG, TWO_TAGS = b"\x00", b"\x01" + b"\x07\x03abc", b"\x02" + b"\x07\x03abc" + b"\x09\x00"
"""How many there are, then number, size and bytes of each."""


@pytest.mark.parametrize("given", [ONE_TAG, TWO_TAGS], ids=["one", "two"])
@pytest.mark.parametrize("place", range(5))
def test_unknown_tagged_fields_are_skipped_in_every_position(place, given):
    tags = [given if place == at else NO_TAGS for at in range(5)]
    rows = [struct.pack(">i", index) + b"\x02" + records for index, records in ((4, b"a"), (5, b"b"))]
    topics = (
        b"\x03"
        + (b"\x02s" + b"\x03" + rows[0] + tags[0] + rows[1] + tags[1] + tags[2])
        + (b"\x02t" + b"\x02" + rows[0] + NO_TAGS + tags[3])
    )
    body = b"\x00" + struct.pack(">hi", 1, 9) + topics + tags[4]
    found = decode_produce_request(9, memoryview(body))
    read = [(name, [(index, bytes(records)) for index, records in partitions]) for name, partitions in found.topics]
    assert read == [("s", [(4, b"a"), (5, b"b")]), ("t", [(4, b"a")])]
    assert found.trailing_bytes == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_request_is_refused(version):
    raw = request_bytes(version, "txn", -1, 1000, [("topic", bytes(16), [(0, b"r" * 200), (1, None)])])
    decode_produce_request(version, memoryview(raw))
    for cut in range(len(raw)):
        with pytest.raises(ProtocolError):
            decode_produce_request(version, memoryview(raw[:cut]))


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (3, struct.pack(">hhii", -2, 1, 1, 0)),  # transactional id of length -2
        (3, struct.pack(">hhii", -1, 1, 1, -1)),  # topics null
        (3, struct.pack(">hhii", -1, 1, 1, -5)),
        (3, struct.pack(">hhii", -1, 1, 1, 2**31 - 1) + bytes(100)),
        (3, struct.pack(">hhiihi", -1, 1, 1, 1, -1, 0)),  # topic name null
        (3, struct.pack(">hhiihi", -1, 1, 1, 1, 0, -1)),  # partitions null
        (3, struct.pack(">hhiihiii", -1, 1, 1, 1, 0, 1, 0, -2)),  # records of length -2
        (3, struct.pack(">hhiihiii", -1, 1, 1, 1, 0, 1, 0, 2**31 - 1)),
        (3, struct.pack(">hhiih2si", -1, 1, 1, 1, 2, b"\xc3\x28", 0)),  # not UTF-8
        (9, b"\x00" + struct.pack(">hi", 1, 1) + b"\x00\x00"),  # topics null
        (9, b"\x00" + struct.pack(">hi", 1, 1) + b"\xff\xff\xff\xff\x07" + bytes(100)),
        (9, b"\x00" + struct.pack(">hi", 1, 1) + b"\x02\x00\x01\x00\x00"),  # topic name null
        (9, b"\x00" + struct.pack(">hi", 1, 1) + b"\x02\x02t\x00\x00\x00"),  # partitions null
        (9, b"\x00" + struct.pack(">hi", 1, 1) + b"\x80\x80\x80\x80\x80\x01"),  # varint of six bytes
        (9, b"\x00" + struct.pack(">hi", 1, 1) + b"\x01\x41" + bytes(200)),  # 65 tags
        (9, b"\x00" + struct.pack(">hi", 1, 1) + b"\x01\x01\x00\x05ab"),  # tag beyond the end
    ],
)
def test_hostile_request_is_refused(version, body):
    with pytest.raises(ProtocolError):
        decode_produce_request(version, memoryview(body))


@pytest.mark.parametrize("version", [0, 2, 14])
def test_versions_without_a_layout_are_refused(version):
    with pytest.raises(ProtocolError, match="is not in"):
        decode_produce_request(version, memoryview(bytes(50)))


@settings(max_examples=200, deadline=None)
@given(version=st.sampled_from(VERSIONS), body=st.binary(max_size=80))
def test_any_bytes_give_a_request_or_a_protocol_error(version, body):
    try:
        decoded = decode_produce_request(version, memoryview(body))
    except ProtocolError:
        return
    assert 0 <= decoded.trailing_bytes <= len(body)


ROWS = st.builds(
    PartitionResponse,
    topic=st.just(""),
    partition=INT32,
    error=INT16,
    base_offset=INT64,
    log_append_time_ms=INT64,
    log_start_offset=INT64,
    record_errors=st.lists(st.tuples(INT32, st.none() | NAMES), max_size=2),
    message=st.none() | NAMES,
    current_leader=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 99)),
)
ENDPOINTS = st.lists(st.builds(NodeEndpoint, node_id=INT32, host=NAMES, port=INT32, rack=st.none() | NAMES), max_size=2)


def library_response(topics, version, correlation_id, throttle_time_ms, endpoints):
    response = codec.response_class(ApiKey.PRODUCE)
    topic_class = response.TopicProduceResponse
    row_class = topic_class.PartitionProduceResponse
    message = response(
        version=version,
        throttle_time_ms=throttle_time_ms,
        responses=[
            topic_class(
                name=name,
                topic_id=uuid.UUID(bytes=topic_id),
                partition_responses=[
                    row_class(
                        index=row.partition,
                        error_code=row.error,
                        base_offset=row.base_offset,
                        log_append_time_ms=row.log_append_time_ms,
                        log_start_offset=row.log_start_offset,
                        record_errors=[
                            row_class.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                            for index, text in row.record_errors
                        ],
                        error_message=row.message,
                        **leader_of(row, row_class),
                    )
                    for row in rows
                ],
            )
            for name, topic_id, rows in topics
        ],
        node_endpoints=[response.NodeEndpoint(**e._asdict()) for e in endpoints],
    )
    return framed_by_library(message, 0, version, correlation_id)


def leader_of(row, row_class):
    if row.current_leader is None:
        return {}
    leader = row_class.LeaderIdAndEpoch(leader_id=row.current_leader[0], leader_epoch=row.current_leader[1])
    return {"current_leader": leader}


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    topics=st.lists(
        st.tuples(NAMES, IDS, st.lists(ROWS, min_size=1, max_size=3)), max_size=3, unique_by=lambda topic: topic[0]
    ),
    correlation_id=INT32,
    throttle_time_ms=INT32,
    endpoints=ENDPOINTS,
)
def test_response_has_the_bytes_that_the_library_writes(version, topics, correlation_id, throttle_time_ms, endpoints):
    rows = [row._replace(topic=name, topic_id=topic_id) for name, topic_id, rows in topics for row in rows]
    expected = library_response(topics, version, correlation_id, throttle_time_ms, endpoints)
    assert encode_produce_response(rows, version, correlation_id, throttle_time_ms, endpoints) == expected


@pytest.mark.parametrize("name", ["", "t", "ledger-ä", "t" * 126, "t" * 127, "t" * 249])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("endpoints", [[], [NodeEndpoint(1, "host", 9092)]], ids=["", "endpoints"])
def test_one_plain_row_has_the_bytes_that_the_library_writes(version, name, endpoints):
    row = PartitionResponse(name, 2**31 - 1, 45, 2**62, -1, 17, topic_id=bytes(range(16)))
    expected = library_response([(name, row.topic_id, [row])], version, 2**31 - 1, 7, endpoints)
    assert encode_produce_response([row], version, 2**31 - 1, 7, endpoints) == expected
