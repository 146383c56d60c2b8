"""Answers to Fetch requests for one partition, against the library's encoder in every version."""

import uuid

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.requests.fetched import (
    HIGHEST_VERSION,
    LOWEST_VERSION,
    NAMED_VERSION,
    READ_COMMITTED,
    Fetched,
    read_fetch_response,
)
from ottla.protocol.requests.frames import response_header_size

VERSIONS = range(LOWEST_VERSION, HIGHEST_VERSION + 1)
RECORDS = b"the records" * 100


def frame_of(version, topics, error=0):
    message = codec.response_class(ApiKey.FETCH)(
        throttle_time_ms=7, error_code=error, session_id=0, responses=topics, node_endpoints=[]
    )
    header = (1).to_bytes(4, "big") + b"\0" * (response_header_size(ApiKey.FETCH, version) - 4)
    return memoryview(header + bytes(message.encode(version=version)))


def topics_of(version, records, error=0, aborted=None, count=1):
    response = codec.response_class(ApiKey.FETCH).FetchableTopicResponse
    row = response.PartitionData(
        partition_index=3,
        error_code=error,
        high_watermark=50,
        last_stable_offset=40,
        log_start_offset=10,
        aborted_transactions=aborted,
        preferred_read_replica=-1,
        records=records,
    )
    name = {"topic": "ledger"} if version <= NAMED_VERSION else {"topic_id": uuid.UUID(int=5)}
    return [response(**name, partitions=[row])] * count


@pytest.mark.parametrize("version", VERSIONS)
def test_the_records_are_found_where_they_are(version):
    frame = frame_of(version, topics_of(version, RECORDS))
    found = read_fetch_response(frame, version)
    assert frame[found.records_start : found.records_end] == RECORDS
    log_start = 10 if version >= 5 else -1
    assert found == Fetched(0, 7, True, 50, log_start, found.records_start, found.records_end, stable_offset=40)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_without_the_partition_names_none(version):
    assert read_fetch_response(frame_of(version, []), version) == Fetched(0, 7)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_of_the_partition_is_read(version):
    found = read_fetch_response(frame_of(version, topics_of(version, b"", error=6)), version)
    assert (found.error, found.records_end - found.records_start) == (6, 0)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 7])
def test_an_error_of_the_whole_answer_is_read(version):
    assert read_fetch_response(frame_of(version, [], error=71), version) == Fetched(71, 7)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_aborted_transactions_are_read(version):
    aborted = codec.response_class(ApiKey.FETCH).FetchableTopicResponse.PartitionData.AbortedTransaction
    rows = [aborted(producer_id=1, first_offset=12), aborted(producer_id=2, first_offset=13)]
    frame = frame_of(version, topics_of(version, RECORDS, aborted=rows))
    found = read_fetch_response(frame, version, READ_COMMITTED)
    assert frame[found.records_start : found.records_end] == RECORDS
    assert found.aborted == ((1, 12), (2, 13))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_is_cut_short_is_refused(version):
    frame = frame_of(version, topics_of(version, RECORDS))
    whole = read_fetch_response(frame, version)
    for size in (*range(whole.records_start), whole.records_end - 1):
        with pytest.raises(ProtocolError):
            read_fetch_response(frame[:size], version)


def test_an_answer_for_two_topics_is_refused():
    with pytest.raises(ProtocolError, match="2 topics in the answer for one partition"):
        read_fetch_response(frame_of(12, topics_of(12, RECORDS, count=2)), 12)
