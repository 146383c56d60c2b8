"""Topics and records on the admin port of a broker in memory: fates, paging, bounds, and hostile records."""

import sys
from base64 import b64decode
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from picture import Picture
from test_http_bounded import holds_nobody
from web import request

from ottla.admin.routes import Router
from ottla.admin.serving import picture_routes
from ottla.admin.topics.walk import RAW_BYTES
from ottla.broker.config.server import STANDARD_AUTHORIZER
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import ATTRIBUTES_OFFSET, CRC_OFFSET, HEADER_SIZE, seal
from ottla.protocol.compression import GZIP, ZSTD
from ottla.protocol.errors import ErrorCode
from tests.api.callers import LEDGER, ORDERS, Producer, commit

RECORDS = f"/v1/topics/{ORDERS}/0/records"
HOSTILE = "<img src=x onerror=alert(1)>\"'</script>\u202e\0"


@pytest.fixture
def picture():
    picture = Picture(message_max_bytes=20_000_000)
    yield picture
    assert picture.broker.bugs == []


def write(picture, *values, topic=ORDERS, index=0, **more):
    """Append one batch of these values to a partition, as a client does; a value may be a whole record."""
    records = [value if isinstance(value, tuple) else (None, value) for value in values]
    data = build_batch(records, **{"timestamp_ms": 1_000} | more)
    topics = [{"name": topic, "partition_data": [{"index": index, "records": bytes(data)}]}]
    reply = picture.broker.call(K.PRODUCE, 8, transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=topics)
    row = reply.responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.NONE, row
    return row.base_offset


def append(picture, data):
    """Append a batch to a partition without a check of its records."""
    partition = picture.parts.cluster.partition(ORDERS, 0)
    assert partition.append_own(bytearray(data)).error is ErrorCode.NONE


def offsets_of(seen):
    return [row["offset"] for row in seen["records"]]


def test_topics_are_listed_by_name_with_sums(picture):
    write(picture, b"a", b"b")
    Producer(picture.broker).begin(1)
    seen = picture.get("/v1/topics?internal=false")
    assert [row["topic"] for row in seen["topics"]] == sorted((LEDGER, ORDERS))
    rows = {row["topic"]: row for row in seen["topics"]}
    assert (rows[ORDERS]["offsets"], rows[ORDERS]["held"], rows[LEDGER]["held"]) == (2, 0, 1)
    assert rows[ORDERS]["bytes"] > HEADER_SIZE and not rows[ORDERS]["internal"]
    assert "__transaction_state" in [row["topic"] for row in picture.get("/v1/topics")["topics"]]
    (first,) = picture.get("/v1/topics?internal=false&limit=1")["topics"]
    (second,) = picture.get(f"/v1/topics?internal=false&after={first['topic']}")["topics"]
    assert first != second
    assert picture.get("/v1/topics?prefix=nothing")["topics"] == []


def test_a_topic_shows_its_partitions_in_pages_and_the_configs_that_are_no_defaults(picture):
    picture.broker.create_topic("wide", 10, **{"cleanup.policy": "compact"})
    seen = picture.get("/v1/topics/wide?from=8&limit=5")
    assert [row["partition"] for row in seen["partitions"]] == [8, 9]
    assert seen["partition_count"] == 10 and seen["replication_factor"] == 1
    assert {"name": "cleanup.policy", "value": "compact"} in seen["configs"]
    (row,) = picture.get(f"/v1/topics/{ORDERS}")["partitions"]
    assert (row["leader"], row["log_start_offset"], row["high_watermark"], row["offline"]) == (1, 0, 0, None)


def test_each_record_has_the_fate_of_its_transaction(picture):
    first, second = Producer(picture.broker, "first"), Producer(picture.broker, "second")
    third = Producer(picture.broker, "third")
    first.begin(0)  # 0, its marker is 1
    first.end()
    second.begin(0)  # 2, its marker is 3
    second.end(committed=False)
    third.begin(0)  # 4: open
    first.add((LEDGER, [0]))
    assert first.produce(sequence=1)[1] == 5  # aborted after the last stable offset, its marker is 6
    first.end(committed=False)
    write(picture, b"without", topic=LEDGER)  # 7
    seen = picture.get(f"/v1/topics/{LEDGER}/0/records")
    fates = [(row["offset"], row["fate"], row["waiting_for"], row["transactional_id"]) for row in seen["records"]]
    assert fates == [
        (0, "committed", None, "first"),
        (2, "aborted", None, "second"),
        (4, "open", None, "third"),
        (5, "aborted", 4, "first"),
        (7, "none", 4, None),
    ]
    assert seen["held_by"] == {"first_offset": 4, "producer_id": third.producer_id, "transactional_id": "third"}
    assert (seen["last_stable_offset"], seen["high_watermark"]) == (4, 8)
    third.end()
    seen = picture.get(f"/v1/topics/{LEDGER}/0/records?offset=4")
    assert [row["fate"] for row in seen["records"]] == ["committed", "aborted", "none"]
    assert seen["held_by"] is None


def test_records_are_paged_in_both_directions_also_inside_of_a_batch(picture):
    for start in range(0, 30, 10):
        write(picture, *(b"%d" % number for number in range(start, start + 10)))
    newest = picture.get(f"{RECORDS}?limit=4")
    assert offsets_of(newest) == [26, 27, 28, 29] and (newest["first"], newest["next"]) == (26, 30)
    older = picture.get(f"{RECORDS}?limit=8&before={newest['first']}")
    assert offsets_of(older) == list(range(18, 26))
    newer = picture.get(f"{RECORDS}?limit=8&offset={older['first'] - 3}")
    assert offsets_of(newer) == list(range(15, 23)) and newer["next"] == 23
    assert picture.get(f"{RECORDS}?before=0")["records"] == []
    assert offsets_of(picture.get(f"{RECORDS}?before=99&limit=1")) == [29]
    assert [row["value"]["text"] for row in newer["records"]] == [str(number) for number in range(15, 23)]


def test_pages_cross_the_segments_of_a_log(picture):
    picture.broker.create_topic("rolled", **{"segment.bytes": "1048576"})
    for number in range(4):
        write(picture, b"%d" % number * 400_000, topic="rolled")
    assert len(list(picture.parts.cluster.partition("rolled", 0).log.segments)) > 1
    found, before = [], 4
    while before > 0:
        seen = picture.get(f"/v1/topics/rolled/0/records?before={before}")
        found[:0], before = offsets_of(seen), seen["first"]
    assert found == [0, 1, 2, 3]


def test_a_time_is_the_first_record_from_then_on(picture):
    for time_ms in (1_000, 2_000, 3_000):
        write(picture, b"x", timestamp_ms=time_ms)
    assert offsets_of(picture.get(f"{RECORDS}?time=1500")) == [1, 2]
    seen = picture.get(f"{RECORDS}?time=9000&limit=1")
    assert offsets_of(seen) == [2] and seen["note"].startswith("No record has this time")


def test_a_search_returns_the_records_whose_key_contains_the_text(picture):
    write(picture, *((b"user-%d" % (number % 10), b"x") for number in range(50)))
    assert offsets_of(picture.get(f"{RECORDS}?key=user-3&offset=0")) == [3, 13, 23, 33, 43]
    assert offsets_of(picture.get(f"{RECORDS}?key=r-3&limit=2")) == [33, 43]
    assert picture.get(f"{RECORDS}?key=nothing")["first"] == 0


def test_keys_values_and_headers_are_text_or_base64_and_are_cut_with_their_size(picture):
    write(picture, (HOSTILE.encode(), None, [(HOSTILE, b"\xff")]), (b"\xff\0", "é".encode() * 4_000), (None, b""))
    hostile, binary, empty = picture.get(RECORDS)["records"]
    assert hostile["key"]["text"] == HOSTILE and hostile["value"] is None
    assert hostile["headers"] == [[HOSTILE, {"size": 1, "base64": "/w=="}]]
    assert b64decode(binary["key"]["base64"]) == b"\xff\0"
    assert binary["value"] == {"size": 8_000, "text": "é" * 2_048}
    assert (empty["key"], empty["value"]) == (None, {"size": 0, "text": ""})


def test_a_value_is_cut_inside_of_a_character(picture):
    write(picture, b"x" + "é".encode() * 4_000)
    (row,) = picture.get(RECORDS)["records"]
    assert row["value"] == {"size": 8_001, "text": "x" + "é" * 2_047}


@pytest.mark.parametrize("compression", [0, ZSTD])
def test_a_value_of_ten_megabytes_is_shown_by_its_beginning(picture, compression):
    append(picture, build_batch([(b"key", bytes(10_000_000)), (None, b"next")], compression=compression))
    append(picture, build_batch([(None, b"after")]))
    seen = picture.get(f"{RECORDS}?offset=0")
    assert seen["records"][0]["value"]["size"] == 10_000_000
    assert seen["records"][0]["cut"] is (compression == 0)
    left_out = [row["first_offset"] for row in seen["left_out"]]
    assert left_out == ([1] if compression == 0 else [])
    assert offsets_of(picture.get(f"{RECORDS}?offset={seen['next']}"))[-1] == 2


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_bomb_is_left_out_with_the_reason(picture, codec):
    append(picture, build_batch([(None, bytes(RAW_BYTES))], compression=codec))
    append(picture, build_batch([(None, b"after")]))
    seen = picture.get(f"{RECORDS}?offset=0")
    (row,) = seen["left_out"]
    assert (row["first_offset"], row["last_offset"]) == (0, 0) and "16 MiB" in row["reason"]
    assert offsets_of(seen) == [1]
    assert offsets_of(picture.get(RECORDS)) == [1]


def test_a_compressed_batch_of_ten_megabytes_is_not_read(picture):
    data = build_batch([(None, bytes(10_000_000))])
    data[ATTRIBUTES_OFFSET + 1] = ZSTD
    seal(data)
    append(picture, data)
    (row,) = picture.get(RECORDS)["left_out"]
    assert "10,000," in row["reason"] and "at most 2 MiB" in row["reason"]


@pytest.mark.parametrize("fault", ["crc", "length", "count"])
def test_a_damaged_batch_is_left_out_and_takes_nothing_offline(picture, fault):
    data = build_batch([(b"k", b"v")])
    if fault == "length":
        data[HEADER_SIZE] = 0x7E
    elif fault == "count":
        data[57:61] = (1 << 30).to_bytes(4, "big")
    seal(data)
    if fault == "crc":
        data[CRC_OFFSET] ^= 1
    append(picture, data)
    seen = picture.get(RECORDS)
    assert seen["records"] == [] and len(seen["left_out"]) == 1
    assert picture.parts.cluster.partition(ORDERS, 0).offline is None


def test_deleted_and_missing_offsets_are_named(picture):
    for _ in range(6):
        write(picture, b"x")
    append(picture, build_batch([(None, b"y")], offset_deltas=[3], last_offset_delta=3))
    picture.parts.cluster.partition(ORDERS, 0).raise_log_start(2)
    seen = picture.get(f"{RECORDS}?offset=0")
    assert offsets_of(seen)[0] == 2 and seen["note"] == "The records before offset 2 were deleted"
    assert picture.get(f"{RECORDS}?before=4")["first"] == 2
    seen = picture.get(f"{RECORDS}?offset=6")
    assert offsets_of(seen) == [9] and "compacted away" in seen["note"] and seen["note"].endswith("9")
    assert picture.get(f"{RECORDS}?offset=99")["note"] == "The partition ends at offset 10"


@pytest.mark.parametrize(
    ("target", "status", "part"),
    [
        ("/v1/topics/nothing", 404, "no such topic"),
        ("/v1/topics/nothing/0/records", 404, "no such topic, or it was deleted"),
        (f"/v1/topics/{ORDERS}/9/records", 404, "no such partition"),
        (f"/v1/topics/{ORDERS}/x/records", 404, "no such partition"),
        (f"{RECORDS}?offset=1&before=2", 400, "both offset and before"),
        (f"{RECORDS}?offset=-1", 400, "offset must be"),
        (f"{RECORDS}?limit=101", 400, "limit must be"),
        (f"{RECORDS}?key={'x' * 1025}", 400, "key must have"),
        ("/v1/topics?internal=maybe", 400, "internal must be"),
    ],
)
def test_a_bad_request_is_refused_with_a_reason(picture, target, status, part):
    assert part in picture.get(target, status)["error"]


def test_an_offline_partition_is_refused_with_its_reason(picture):
    write(picture, b"x")
    picture.parts.cluster.partition(ORDERS, 0).take_offline("the disk is full")
    assert picture.get(RECORDS, 503)["error"] == f"{ORDERS}-0 is offline: the disk is full"


def test_contents_are_withheld_by_the_option_and_cannot_be_searched():
    picture = Picture(admin_show_records=False)
    write(picture, (b"secret", b"secret", [("secret", b"secret")]))
    assert b"secret" not in picture.fetch(RECORDS)
    seen = picture.get(RECORDS)
    assert seen["withheld"] == "admin.show.records is false" and seen["records"][0]["fate"] == "none"
    assert "cannot be searched" in picture.get(f"{RECORDS}?key=secret", 403)["error"]


@pytest.mark.parametrize("has_token", [False, True])
def test_a_broker_with_acls_shows_contents_with_a_token_only(has_token):
    picture = Picture(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS")
    write(picture, b"secret")
    picture.web.router = Router(picture_routes(picture.parts, picture.broker.clock, has_token=has_token))
    assert (b"secret" in picture.fetch(RECORDS)) is has_token
    assert (picture.get(RECORDS)["withheld"] is None) is has_token


@pytest.mark.slow
def test_the_largest_pieces_block_no_turn(picture):
    write(picture, *(b"%d" % number for number in range(40_000)))
    append(picture, build_batch([(None, bytes(100))] * 100_000, compression=ZSTD))
    picture.broker.create_topic("wide", 5_000)
    picture.broker.advance(20_000)
    targets = (f"{RECORDS}?key=nothing", f"{RECORDS}?offset=139000", "/v1/topics", "/v1/topics/wide?limit=1000")
    for target in targets:
        visitor = picture.web.connect()
        weight = picture.web.weigh(lambda visitor=visitor, target=target: visitor.send(request("GET", target)))
        assert b" 200 " in bytes(visitor.transport.written)[:40]
        assert holds_nobody(weight), target


def held_by(picture, offset):
    """Commit this offset of the ledger and return the transaction that the group waits for."""
    commit(picture.broker, (LEDGER, 0, offset))
    ((row,),) = (group["offsets"] for group in picture.get("/v1/groups")["groups"])
    return row["held_by"] and row["held_by"]["transactional_id"]


def test_a_group_is_held_back_if_no_record_is_left_before_the_open_transaction(picture):
    first, second = Producer(picture.broker, "first"), Producer(picture.broker, "second")
    first.begin(0)  # 0, its marker is 1
    first.end()
    first.add((LEDGER, [0]))
    first.produce(sequence=1)  # 2, aborted by 3
    first.end(committed=False)
    assert held_by(picture, 4) is None
    second.begin(0)  # 4: open
    assert held_by(picture, 4) == "second"
    assert held_by(picture, 1) == "second"
    assert held_by(picture, 0) is None
    second.end()
    assert held_by(picture, 1) is None


def test_the_wait_of_a_fetch_for_data_is_no_latency(picture):
    picture.parts.metrics.measure(picture.broker.clock.monotonic_ms)
    topics = [{"topic": ORDERS, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9_999}]}]
    limits = {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 9_999}
    picture.broker.call(K.FETCH, 4, **limits, isolation_level=0, topics=topics)
    fetch = picture.parts.metrics.apis[K.FETCH].time
    assert fetch.sum >= 500
    latency = picture.get("/v1/overview")["latency_ms"]["fetch"]
    assert latency["p99"] is not None and latency["p99"] < 1
