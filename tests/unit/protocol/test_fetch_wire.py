"""Fetch responses against the library's bytes."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.primitives import NodeEndpoint
from ottla.protocol.requests import codec
from ottla.protocol.requests.fetch_wire import (
    INLINE_BYTES,
    FetchableTopicResponse,
    FetchPartitionData,
    encode_fetch_response,
)
from tests.wire.messages import framed_by_library

VERSIONS = range(4, 19)
INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
NAMES = st.text(max_size=20)
RECORDS = (
    st.none() | st.binary(max_size=50) | st.sampled_from([0, 126, 127, 128, 16382, 16383, INLINE_BYTES + 1]).map(bytes)
)
PARTITIONS = st.builds(
    FetchPartitionData,
    partition=INT32,
    error=INT16,
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    aborted=st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
    records=RECORDS,
    preferred_read_replica=INT32,
    diverging_epoch=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 99)),
    current_leader=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 99)),
)
TOPICS = st.builds(
    FetchableTopicResponse,
    topic=NAMES,
    partitions=st.lists(PARTITIONS, max_size=3),
    topic_id=st.binary(min_size=16, max_size=16),
)
ENDPOINTS = st.lists(st.builds(NodeEndpoint, node_id=INT32, host=NAMES, port=INT32, rack=st.none() | NAMES), max_size=2)


def library_partition(partition):
    row_class = codec.response_class(ApiKey.FETCH).FetchableTopicResponse.PartitionData
    tags = {}
    if partition.diverging_epoch is not None:
        epoch, end_offset = partition.diverging_epoch
        tags["diverging_epoch"] = row_class.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if partition.current_leader is not None:
        node, epoch = partition.current_leader
        tags["current_leader"] = row_class.LeaderIdAndEpoch(leader_id=node, leader_epoch=epoch)
    aborted = partition.aborted
    if aborted is not None:
        aborted = [row_class.AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted]
    return row_class(
        partition_index=partition.partition,
        error_code=partition.error,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=aborted,
        preferred_read_replica=partition.preferred_read_replica,
        records=partition.records,
        **tags,
    )


def library_response(topics, version, correlation_id, error, session_id, throttle_time_ms, endpoints):
    response = codec.response_class(ApiKey.FETCH)
    message = response(
        version=version,
        throttle_time_ms=throttle_time_ms,
        error_code=error,
        session_id=session_id,
        responses=[
            response.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=uuid.UUID(bytes=topic.topic_id),
                partitions=[library_partition(partition) for partition in topic.partitions],
            )
            for topic in topics
        ],
        node_endpoints=[response.NodeEndpoint(**endpoint._asdict()) for endpoint in endpoints],
    )
    return framed_by_library(message, 1, version, correlation_id)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    topics=st.lists(TOPICS, max_size=3),
    correlation_id=INT32,
    error=INT16,
    session_id=INT32,
    throttle_time_ms=INT32,
    endpoints=ENDPOINTS,
)
def test_response_has_the_bytes_that_the_library_writes(
    version, topics, correlation_id, error, session_id, throttle_time_ms, endpoints
):
    ours = encode_fetch_response(topics, version, correlation_id, error, session_id, throttle_time_ms, endpoints)
    expected = library_response(topics, version, correlation_id, error, session_id, throttle_time_ms, endpoints)
    assert b"".join(ours) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_large_records_are_passed_on_and_not_copied(version):
    log = memoryview(bytearray(3 * INLINE_BYTES))
    partition = FetchPartitionData(0, 0, 9, 9, 0, [(1, 2)], log)
    buffers = encode_fetch_response([FetchableTopicResponse("topic", [partition])], version, 1)
    assert any(buffer is log for buffer in buffers)
    assert sum(map(len, buffers)) == int.from_bytes(buffers[0][:4], "big") + 4
    assert all(len(buffer) for buffer in buffers)


@pytest.mark.parametrize("version", (11, 12))
@pytest.mark.parametrize("count", (255, 256, 257, 1_000))
def test_many_aborted_transactions_are_written_like_few(version, count):
    aborted = [(number, 2 * number) for number in range(count)]
    topics = [FetchableTopicResponse("topic", [FetchPartitionData(0, 0, 9, 9, 0, aborted, b"")])]
    ours = encode_fetch_response(topics, version, 1)
    assert b"".join(ours) == library_response(topics, version, 1, 0, 0, 0, ())


def test_small_responses_are_one_buffer():
    partitions = [FetchPartitionData(index, 0, 9, 9, 0, None, bytes(100)) for index in range(3)]
    assert len(encode_fetch_response([FetchableTopicResponse("topic", partitions)], 12, 1)) == 1
