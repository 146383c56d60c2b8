"""The codec's edges: limits, counts, varints, headers, versions."""

import struct
import subprocess
import sys

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import (
    FIRST_FLEXIBLE_VERSION,
    MAX_ENTRIES,
    RequestHeader,
    is_flexible,
    parse_request_header,
)

SERVED = [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 22, 24, 25, 26, 27, 28, 32, 60, 61, 65, 66]


@pytest.mark.parametrize("api_key", SERVED)
def test_messages_of_every_served_api_exist(api_key):
    title = ApiKey(api_key).title
    assert codec.request_class(api_key).__name__ == title + "Request"
    assert codec.response_class(api_key).__name__ == title + "Response"
    lowest, highest = codec.schema_versions(api_key)
    assert 0 <= lowest <= highest


def test_library_is_loaded_on_first_use_only():
    script = (
        "import sys; from ottla.protocol.requests import codec; assert 'kafka' not in sys.modules;"
        "codec.request_class(26); assert 'kafka' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(("api_key", "version"), [(26, 6), (26, -1), (0, 2), (99, 0), (4, 0)])
def test_unknown_keys_and_versions_are_refused(api_key, version):
    with pytest.raises(ProtocolError):
        codec.decode_request(api_key, version, bytes(100))


def test_body_above_the_limit_is_refused_except_for_produce():
    with pytest.raises(ProtocolError, match="exceeds 1000"):
        codec.decode_request(ApiKey.METADATA, 1, bytes(1001), limit_bytes=1000)
    request = codec.request_class(0)
    topic = request.TopicProduceData
    partition = topic.PartitionProduceData(index=0, records=bytes(2000))
    body = request(acks=1, topic_data=[topic(name="t", partition_data=[partition])]).encode(version=3)
    assert len(codec.decode_request(0, 3, bytes(body), limit_bytes=1000).topic_data) == 1


def test_trailing_bytes_are_counted():
    body = struct.pack(">h1sqhB", 1, b"t", 7, 1, 1)
    assert codec.read_request(ApiKey.END_TXN, 1, body)[1] == 0
    message, trailing = codec.read_request(ApiKey.END_TXN, 1, body + b"more")
    assert (message.transactional_id, message.producer_id, trailing) == ("t", 7, 4)


def test_message_does_not_refer_to_the_frame():
    frame = bytearray(struct.pack(">h3s", 3, b"abc") + bytes(2))
    message = codec.decode_request(ApiKey.HEARTBEAT, 0, memoryview(struct.pack(">h3sih1s", 3, b"abc", 1, 1, b"m")))
    sync = codec.decode_request(
        ApiKey.SYNC_GROUP,
        0,
        memoryview(bytearray(frame[:5] + struct.pack(">ih1siH1si2s", 1, 1, b"m", 1, 1, b"m", 2, b"xy"))),
    )
    assert message.group_id == "abc"
    assert isinstance(sync.assignments[0].assignment, bytes)


@pytest.mark.parametrize("count", [2**31 - 1, 1000, -5, -(2**31)])
def test_an_impossible_array_count_is_refused(count):
    with pytest.raises(ProtocolError):
        codec.decode_request(ApiKey.METADATA, 1, struct.pack(">i", count) + bytes(100))


def test_null_and_empty_arrays_differ():
    assert codec.decode_request(ApiKey.METADATA, 1, struct.pack(">i", -1)).topics is None
    assert codec.decode_request(ApiKey.METADATA, 1, struct.pack(">i", 0)).topics == []


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xc3"])
def test_strings_must_be_utf8(raw):
    body = struct.pack(f">ih{len(raw)}s", 1, len(raw), raw)
    with pytest.raises(ProtocolError, match="UTF-8"):
        codec.decode_request(ApiKey.METADATA, 1, body)


FIND = b"\x00\x02\x05txn1\x00"
"""FindCoordinator v4: key type 0, one key "txn1", no tags."""


def test_padded_varints_are_read_as_kafka_does():
    assert codec.decode_request(ApiKey.FIND_COORDINATOR, 4, FIND).coordinator_keys == ["txn1"]
    padded = b"\x00\x82\x80\x80\x80\x00\x85\x00txn1\x80\x00"
    assert codec.decode_request(ApiKey.FIND_COORDINATOR, 4, padded).coordinator_keys == ["txn1"]


@pytest.mark.parametrize("count", [b"\x82\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x1f"])
def test_varints_beyond_32_bits_are_refused(count):
    with pytest.raises(ProtocolError):
        codec.decode_request(ApiKey.FIND_COORDINATOR, 4, b"\x00" + count + FIND[2:])


def test_known_tag_must_have_the_size_of_its_value():
    fetch = codec.request_class(ApiKey.FETCH)(cluster_id="abc", topics=[])
    body = bytes(fetch.encode(version=12))
    tagged = b"\x01\x00\x04\x04abc"
    assert body.endswith(tagged)
    assert codec.decode_request(ApiKey.FETCH, 12, body).cluster_id == "abc"
    for broken in (b"\x01\x00\x03\x04abc", b"\x01\x00\x05\x04abcd", b"\x01\x00\x04\x05abc"):
        with pytest.raises(ProtocolError):
            codec.decode_request(ApiKey.FETCH, 12, body.removesuffix(tagged) + broken)


def test_nullable_struct_marker_is_minus_one_or_one():
    body = b"\x01" + struct.pack(">i", 5)  # no topics, a limit
    assert codec.decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body + b"\xff\x00").cursor is None
    cursor = codec.decode_request(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body + b"\x01\x02t\x00\x00\x00\x01\x00\x00"
    ).cursor
    assert (cursor.topic_name, cursor.partition_index) == ("t", 1)
    for marker in (b"\x00", b"\x02", b"\xfe"):
        with pytest.raises(ProtocolError, match="marker"):
            codec.decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body + marker + b"\x02t\x00\x00\x00\x01\x00\x00")


def test_many_tagged_structs_are_read_in_one_walk():
    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, 0, 0) + b"\x01\x7f\x00"

    def fetch(count):
        body = struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, 0) + b"\x02\x02t" + varint(count + 1) + partition * count
        return codec.decode_request(ApiKey.FETCH, 12, body + b"\x00\x01\x01\x00")

    most = MAX_ENTRIES - 1  # the topic is an entry too
    assert len(fetch(most).topics[0].partitions) == most
    with pytest.raises(ProtocolError, match=f"more than {MAX_ENTRIES} entries"):
        fetch(most + 1)


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_response_has_its_header_in_both_forms():
    assert codec.response_encoder(ApiKey.END_TXN, 1)(9, 0, 47) == [struct.pack(">iiih", 10, 9, 0, 47)]
    assert codec.response_encoder(ApiKey.END_TXN, 3)(9, 0, 47) == [struct.pack(">iiBihB", 12, 9, 0, 0, 47, 0)]


def test_api_versions_response_never_has_a_flexible_header():
    assert codec.response_encoder(ApiKey.API_VERSIONS, 3)(9) == [struct.pack(">iihBiB", 12, 9, 0, 1, 0, 0)]


def test_too_new_api_versions_is_answered_in_version_zero():
    frame = codec.encode_unsupported_api_versions(9, 0, 4)
    assert frame == struct.pack(">iihihhh", 16, 9, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 4)
    correlation_id, response = codec.decode_response(ApiKey.API_VERSIONS, 4, frame[4:])
    assert (correlation_id, response.error_code, response.api_keys[0].max_version) == (9, 35, 4)


@pytest.mark.parametrize("version", [0, 3])
def test_every_cut_response_is_refused(version):
    frame = b"".join(codec.response_encoder(26, version)(9, error_code=1))[4:]
    assert codec.decode_response(26, version, frame)[1].error_code == 1
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            codec.decode_response(26, version, frame[:cut])
    with pytest.raises(ProtocolError, match="after the response"):
        codec.decode_response(26, version, frame + b"\x00")


def test_request_frame_reads_back():
    message = codec.request_class(26)(transactional_id="t", producer_id=5, producer_epoch=1, committed=True)
    for version in range(6):
        frame = codec.encode_request(message, version, 3, "me")
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header, body = parse_request_header(memoryview(frame)[4:])
        assert header == RequestHeader(26, version, 3, "me")
        found = codec.decode_request(26, version, body)
        assert (found.transactional_id, found.producer_id, found.producer_epoch, found.committed) == ("t", 5, 1, True)


def test_table_of_flexible_versions_has_no_api_without():
    assert 17 not in FIRST_FLEXIBLE_VERSION
    assert 47 not in FIRST_FLEXIBLE_VERSION
    assert not is_flexible(17, 1)
    assert not is_flexible(12345, 32767)
