"""Invalid frames, headers and bodies: an error code where Kafka has one, else the broker closes the connection."""

import socket
import struct

import pytest
from hostile import (
    CORRELATION_ID,
    Case,
    body_of,
    bytes_of,
    cases,
    count,
    encode_frame,
    nullable_text,
    produce,
    request,
    sound,
    text,
)
from rig import CLOSED, CREATE_TOPICS, FETCH, FIND_COORDINATOR, INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, PRODUCE

from ottla.broker.api.table import TABLE
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

API_VERSIONS = ApiKey.API_VERSIONS
METADATA_V9_FLAGS = b"\0\0\0"
LEGAL_METADATA = encode_frame(struct.pack(">hhih", METADATA, 1, CORRELATION_ID, -1) + struct.pack(">i", 0))
INT32_MAX = 2**31 - 1
MINUS_2 = struct.pack(">hi", -2, 1)
TLS_HELLO = bytes.fromhex("16030102000100 01fc0303".replace(" ", "")) + bytes(64)


def size(number):
    return struct.pack(">i", number) + bytes(32)


def header(api_key, version, client_id_length=-1, rest=b""):
    return encode_frame(struct.pack(">hhih", api_key, version, CORRELATION_ID, client_id_length) + rest)


def metadata(topics, tail=METADATA_V9_FLAGS):
    """Return Metadata v9 with a topics field of any bytes."""
    return request(METADATA, 9, topics + tail)


def metadata_tags(tags):
    """Return Metadata v9 about no topic, with a tag section of any bytes."""
    return request(METADATA, 9, count(0, True) + b"\0\0\0" + tags)


def assert_closed_with_one_line(rig, case, peer):
    assert peer.frame() is CLOSED
    if rig.is_ours:
        (line,) = rig.lines_about(peer)
        assert case.says in line


FRAMES = [
    Case("size-minus-1", size(-1), says="frame size -1"),
    Case("size-lowest", size(-(2**31)), says="frame size"),
    Case("size-zero", size(0), says="frame size 0"),
    Case("size-above-100-MiB", size(104_857_601), says="frame size 104857601"),
    Case("size-highest", size(INT32_MAX), says="frame size"),
    Case("metadata-above-1-MiB", struct.pack(">ih", 1_048_577, METADATA) + bytes(8), alike=False, says="API 3"),
    Case("http", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", says="an HTTP request"),
    Case("tls-hello", TLS_HELLO, says="a TLS handshake"),
    Case("header-of-1-byte", encode_frame(b"\0"), says="header"),
    Case("header-of-9-bytes", encode_frame(bytes(9)), says="header"),
    Case("client-id-beyond-the-end", header(METADATA, 1, 9, b"cli"), says="Metadata v1"),
    Case("client-id-length-minus-2", header(METADATA, 1, -2, bytes(4)), alike=False, says="Metadata v1"),
    Case("client-id-not-utf8", header(METADATA, 1, 2, b"\xff\xfe" + bytes(4)), alike=False, says="Metadata v1"),
    Case("header-without-tags", header(METADATA, 9), says="Metadata v9"),
    Case("header-tag-count-highest", header(METADATA, 9, -1, b"\xff\xff\xff\xff\x07"), says="Metadata v9"),
    Case("header-65-tags", header(METADATA, 9, -1, b"\x41" + b"\x63\0" * 65), alike=False, says="Metadata v9"),
]
APIS = [
    Case("api-9999", header(9999, 0, rest=bytes(8)), says="API 9999 v0"),
    Case("get-telemetry-subscriptions", header(71, 0, rest=bytes(17)), alike=False, says="API 71 v0"),
    Case("push-telemetry", header(72, 0, rest=bytes(25)), alike=False, says="API 72 v0"),
    Case("api-minus-1", header(-1, 0, rest=bytes(8)), says="API -1 v0"),
    Case("api-removed-leader-and-isr", header(4, 0, rest=bytes(8)), says="API 4 v0"),
    Case("api-of-controllers-vote", header(52, 0, rest=bytes(8)), says="API 52 v0"),
    Case("api-of-controllers-heartbeat", header(63, 0, rest=bytes(8)), says="API 63 v0"),
    Case("metadata-v99", header(METADATA, 99, rest=bytes(8)), says="Metadata v99"),
    Case("metadata-v-minus-1", header(METADATA, -1, rest=bytes(8)), says="Metadata v-1"),
    Case("produce-v2", header(PRODUCE, 2, rest=bytes(10)), says="Produce v2"),
    Case("fetch-v3", header(FETCH, 3, rest=bytes(20)), says="Fetch v3"),
    Case("create-topics-v1", header(CREATE_TOPICS, 1, rest=bytes(9)), says="CreateTopics v1"),
    Case("api-versions-v99-without-tags", header(API_VERSIONS, 99), says="ApiVersions v99"),
]
BODIES = [
    Case("string-beyond-the-end", request(METADATA, 1, struct.pack(">ih", 1, 99) + b"t"), says="Metadata v1"),
    Case("compact-string-beyond-the-end", metadata(b"\x02\x63t"), says="Metadata v9"),
    Case("null-name", request(METADATA, 1, struct.pack(">ih", 1, -1)), says="Metadata v1"),
    Case("null-compact-name", metadata(b"\x02\x00\x00"), says="Metadata v9"),
    Case("string-length-minus-2", request(INIT_PRODUCER_ID, 0, MINUS_2), alike=False, says="InitProducerId v0"),
    Case("varint-of-6-bytes", metadata(b"\x80\x80\x80\x80\x80\x01"), says="Metadata v9"),
    Case("count-highest", request(METADATA, 1, struct.pack(">i", INT32_MAX)), says="Metadata v1"),
    Case("compact-count-highest", metadata(b"\xff\xff\xff\xff\x07"), says="Metadata v9"),
    Case("count-minus-5", request(METADATA, 1, struct.pack(">i", -5)), alike=False, says="Metadata v1"),
    Case("tag-count-highest", metadata_tags(b"\xff\xff\xff\xff\x07"), says="Metadata v9"),
    Case("tags-65", metadata_tags(b"\x41" + b"\x63\0" * 65), alike=False, says="Metadata v9"),
    Case("tag-beyond-the-end", metadata_tags(b"\x01\x63\x05ab"), says="Metadata v9"),
    Case("name-not-utf8", metadata(b"\x02\x03\xff\xfe\0"), alike=False, says="Metadata v9"),
    Case(
        "transactional-id-not-utf8",
        request(INIT_PRODUCER_ID, 1, text(b"\xff\xfe", False) + struct.pack(">i", 1000)),
        alike=False,
        says="InitProducerId v1",
    ),
    Case("produce-id-not-utf8", produce(transactional_id=b"\xff\xfe"), alike=False, says="Produce v9"),
    Case("produce-name-not-utf8", produce((b"\xff\xfe", [])), alike=False, says="Produce v9"),
    Case(
        "produce-records-beyond-the-end",
        request(PRODUCE, 3, nullable_text(None, False) + struct.pack(">hiihiii", -1, 9, 1, 0, 1, 0, 500)),
        says="Produce v3",
    ),
    Case(
        "produce-partition-count-highest",
        request(PRODUCE, 3, nullable_text(None, False) + struct.pack(">hiihi", -1, 9, 1, 0, INT32_MAX)),
        says="Produce v3",
    ),
]


@cases(*FRAMES, *APIS, *BODIES)
def test_closes(rig, case):
    with rig.connect() as peer:
        peer.send(bytes_of(rig, case))
        assert_closed_with_one_line(rig, case, peer)


def sound_requests():
    """Return a valid request of each of many APIs: (API key, version, body)."""
    coordinator = {"key": "k", "key_type": 1}
    fetch = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 9, "isolation_level": 0, "topics": []}
    fetch |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    fields = {
        PRODUCE: {"transactional_id": None, "acks": -1, "timeout_ms": 1, "topic_data": []},
        FETCH: fetch,
        LIST_OFFSETS: {"replica_id": -1, "isolation_level": 0, "topics": []},
        METADATA: {"topics": []},
        CREATE_TOPICS: {"topics": [], "timeout_ms": 1, "validate_only": False},
        FIND_COORDINATOR: coordinator | {"coordinator_keys": ["k"]},
        INIT_PRODUCER_ID: {"transactional_id": "t", "transaction_timeout_ms": 1},
    }
    for api_key, values in fields.items():
        version = TABLE[api_key].max_version
        yield pytest.param(api_key, version, body_of(codec.request_class(api_key)(**values), version), id=str(api_key))


@pytest.mark.parametrize(("api_key", "version", "body"), [*sound_requests()])
def test_body_cut_anywhere_closes(rig, api_key, version, body):
    for end in range(len(body)):
        with rig.connect() as peer:
            peer.send(request(api_key, version, body[:end]))
            assert peer.frame() is CLOSED, f"{end} of {len(body)} bytes"
            (line,) = rig.lines_about(peer)
            assert TABLE[api_key].title in line


@cases(
    Case("v99", header(API_VERSIONS, 99, rest=b"\0")),
    Case("v6", header(API_VERSIONS, 6, rest=b"\0"), alike=False),
    Case("v-minus-1", header(API_VERSIONS, -1)),
)
def test_api_versions_not_served_is_answered_in_version_0(rig, case):
    with rig.connect() as peer:
        peer.send(case.data)
        reply = peer.frame()
    correlation_id, error, rows = struct.unpack_from(">ihi", reply)
    assert (correlation_id, error, rows) == (CORRELATION_ID, ErrorCode.UNSUPPORTED_VERSION, 1)
    assert struct.unpack_from(">hhh", reply, 10) == (API_VERSIONS, 0, TABLE[API_VERSIONS].max_version)
    assert len(reply) == 16


def software(name, version="1.0"):
    return sound(API_VERSIONS, 3, client_software_name=name, client_software_version=version)


@cases(
    Case("empty-name", software("")),
    Case("empty-version", software("x", "")),
    Case("name-with-blank", software("a b")),
    Case("name-ends-with-dash", software("a-")),
    Case("name-with-newline", software("a\n")),
)
def test_malformed_software_name_is_an_invalid_request(rig, case):
    with rig.connect() as peer:
        peer.send(case.data)
        assert peer.reply(API_VERSIONS, 3).error_code == ErrorCode.INVALID_REQUEST
        if rig.is_ours:
            (line,) = rig.lines_about(peer)
            assert "ApiVersions v3" in line


@cases(
    Case("trailing-bytes", request(METADATA, 1, struct.pack(">i", 0) + b"left over")),
    Case("trailing-bytes-flexible", metadata(count(0, True), b"\0\0\0\0" + b"left over")),
    Case("tags-unknown-and-unordered", metadata_tags(b"\x03" + b"\x63\0" + b"\x61\x02ab" + b"\x62\0")),
    Case("tags-64", metadata_tags(b"\x40" + b"\x63\0" * 64), alike=False),
    Case("header-tags-64", header(METADATA, 9, -1, b"\x40" + b"\x63\0" * 64 + b"\x01\0\0\0\0"), alike=False),
    Case("null-client-id", LEGAL_METADATA),
)
def test_is_served_all_the_same(rig, case):
    with rig.connect() as peer:
        for _ in range(2):
            peer.send(case.data)
            assert peer.frame() is not CLOSED
        assert not rig.is_ours or not rig.lines_about(peer)


@cases(*(Case(repr(name), name) for name in ("", "a b", ".", "..", "x" * 250, "grüße", "a\nb", "a/b")))
def test_illegal_topic_name_in_metadata(rig, case):
    with rig.connect() as peer:
        for version in (1, 9, 12):
            row = {"name": case.data, "topic_id": None}
            topics = [codec.request_class(METADATA).MetadataRequestTopic(**row)]
            peer.send(sound(METADATA, version, topics=topics, allow_auto_topic_creation=True))
            (topic,) = peer.reply(METADATA, version).topics
            assert (ErrorCode(topic.error_code), topic.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, case.data)


def test_replies_before_a_bad_frame_are_sent(rig):
    with rig.connect() as peer:
        peer.send(LEGAL_METADATA * 3 + size(-1))
        assert [peer.frame() is CLOSED for _ in range(4)] == [False, False, False, True]
        assert len(rig.lines_about(peer)) == 1


def test_frames_in_single_bytes_are_served(rig):
    with rig.connect() as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in LEGAL_METADATA * 2:
            peer.send(bytes([byte]))
        assert CLOSED not in (peer.frame(), peer.frame())
