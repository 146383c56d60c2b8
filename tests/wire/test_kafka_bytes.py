"""Messages that Apache Kafka 4.3.1 serialised itself (by WriteMessages.java): read, and written back to the same."""

import gzip
from pathlib import Path

import pytest

from ottla.protocol.primitives import NodeEndpoint
from ottla.protocol.requests import codec
from ottla.protocol.requests.fetch_wire import FetchableTopicResponse, FetchPartitionData, encode_fetch_response
from ottla.protocol.requests.frames import is_flexible, response_header_size
from ottla.protocol.requests.produce_wire import PartitionResponse, decode_produce_request, encode_produce_response
from ottla.protocol.values import ZERO_UUID
from ottla.protocol.walker import compile_reader
from tests.wire.messages import library_bytes

FILE = Path(__file__).parents[1] / "data" / "wire" / "messages-4.3.1.txt.gz"
PRODUCE, FETCH = 0, 1


def rows():
    for line in gzip.decompress(FILE.read_bytes()).decode().splitlines():
        key, version, kind, body = line.split(" ")
        yield int(key), int(version), kind, bytes.fromhex(body)


ROWS = list(rows())


def message_of(key, version, kind, body):
    message_class = codec.request_class(key) if kind == "request" else codec.response_class(key)
    message, taken = compile_reader(message_class, version, flexible=is_flexible(key, version))(body)
    assert taken == len(body), (key, version, kind)
    return message_class, message


@pytest.mark.slow
def test_messages_read_and_write_back():
    for key, version, kind, body in ROWS:
        message_class, message = message_of(key, version, kind, body)
        assert library_bytes(message, message_class, version) == body, (key, version, kind)


def test_every_version_that_kafka_serves_is_there():
    oracle = {(key, version) for key, version, _, _ in ROWS}
    for key in {key for key, _ in oracle}:
        lowest, highest = codec.schema_versions(key)
        versions = [version for known, version in oracle if known == key]
        assert lowest <= min(versions)
        assert max(versions) <= highest


def sound(values):
    return all(value is not None for value in values)


def test_the_handwritten_produce_reader_agrees_with_the_compiled_one():
    compared = 0
    for key, version, kind, body in ROWS:
        if key != PRODUCE or kind != "request":
            continue
        _, message = message_of(key, version, kind, body)
        ours = decode_produce_request(version, memoryview(body))
        assert (ours.transactional_id, ours.acks, ours.timeout_ms, ours.trailing_bytes) == (
            message.transactional_id,
            message.acks,
            message.timeout_ms,
            0,
        )
        if version >= 13:
            assert ours.topic_ids == [t.topic_id.bytes if t.topic_id else ZERO_UUID for t in message.topic_data]
        else:
            assert [name for name, _ in ours.topics] == [topic.name for topic in message.topic_data]
        assert [[(p, None if r is None else bytes(r)) for p, r in partitions] for _, partitions in ours.topics] == [
            [(row.index, row.records) for row in topic.partition_data] for topic in message.topic_data
        ]
        compared += 1
    assert compared == 22


def endpoints_of(message):
    return [NodeEndpoint(e.node_id, e.host, e.port, e.rack) for e in message.node_endpoints or ()]


def leader_of(row):
    leader = row.current_leader
    return None if leader is None else (leader.leader_id, leader.leader_epoch)


def test_handwritten_produce_responses_equal_kafkas_bytes():
    compared = 0
    for key, version, kind, body in ROWS:
        if key != PRODUCE or kind != "response":
            continue
        _, message = message_of(key, version, kind, body)
        if not sound(topic.partition_responses for topic in message.responses):
            continue
        if any(not topic.partition_responses for topic in message.responses):
            continue  # rows name their topic, so a topic without rows cannot be said; none is ever sent
        answers = [
            PartitionResponse(
                topic.name,
                row.index,
                row.error_code,
                row.base_offset,
                row.log_append_time_ms,
                row.log_start_offset,
                [(e.batch_index, e.batch_index_error_message) for e in row.record_errors],
                row.error_message,
                topic.topic_id.bytes if topic.topic_id else ZERO_UUID,
                leader_of(row),
            )
            for topic in message.responses
            for row in topic.partition_responses
        ]
        frame = encode_produce_response(answers, version, 5, message.throttle_time_ms, endpoints_of(message))
        assert frame[4 + response_header_size(PRODUCE, version) :] == body, version
        compared += 1
    assert compared >= 10


def read_partition(row):
    aborted = row.aborted_transactions
    diverging = row.diverging_epoch
    return FetchPartitionData(
        row.partition_index,
        row.error_code,
        row.high_watermark,
        row.last_stable_offset,
        row.log_start_offset,
        None if aborted is None else [(entry.producer_id, entry.first_offset) for entry in aborted],
        row.records,
        row.preferred_read_replica,
        None if diverging is None else (diverging.epoch, diverging.end_offset),
        leader_of(row),
    )


def test_handwritten_fetch_responses_equal_kafkas_bytes():
    compared = 0
    for key, version, kind, body in ROWS:
        if key != FETCH or kind != "response":
            continue
        _, message = message_of(key, version, kind, body)
        if any(row.snapshot_id is not None for topic in message.responses for row in topic.partitions):
            continue  # snapshots are of the metadata log; a broker of one node sends none
        topics = [
            FetchableTopicResponse(
                topic.topic,
                [read_partition(row) for row in topic.partitions],
                topic.topic_id.bytes if topic.topic_id else ZERO_UUID,
            )
            for topic in message.responses
        ]
        buffers = encode_fetch_response(
            topics, version, 5, message.error_code, message.session_id, message.throttle_time_ms, endpoints_of(message)
        )
        assert b"".join(buffers)[4 + response_header_size(FETCH, version) :] == body, version
        compared += 1
    assert compared >= 15


@pytest.mark.parametrize("kind", ["request", "response"])
def test_oracle_covers_what_is_served(kind):
    assert len({(key, version) for key, version, known, _ in ROWS if known == kind}) > 200
