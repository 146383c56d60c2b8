"""Refused requests on the admin port: the ones that it lists, and the fields of each row."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from picture import Picture

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, OF_NOBODY, ORDERS, Producer, batch, produce


@pytest.fixture
def picture():
    picture = Picture()
    yield picture
    assert picture.broker.bugs == []


def refusals(picture):
    return picture.get("/v1/refusals")["refusals"]


def test_a_fenced_producer_is_listed_and_recorded_in_the_history(picture):
    old = Producer(picture.broker)
    Producer(picture.broker)
    assert old.end() == E.PRODUCER_FENCED
    (row,) = refusals(picture)
    assert (row["api"], row["error"], row["client_id"]) == ("EndTxn", "PRODUCER_FENCED", "client")
    assert row["transactional_id"] == "txn" and row["count"] == 1 and row["peer"]
    assert row["reason"] == f"producer_id {old.producer_id}, producer_epoch {old.epoch}"
    history = picture.get("/v1/history")
    (event,) = history["events"]
    assert (event["kind"], event["error"], event["producer_epoch"]) == ("fenced", "PRODUCER_FENCED", old.epoch)
    assert sum(bucket["fenced"] for bucket in history["buckets"]) == 1


def test_repeated_refusals_share_a_row_with_a_count_latest_first(picture):
    producer = Producer(picture.broker)
    for _ in range(3):
        assert producer.end() == E.INVALID_TXN_STATE
    assert produce(picture.broker, b"no batch")[0] == E.INVALID_RECORD
    latest, other = refusals(picture)
    assert (latest["api"], latest["error"], latest["transactional_id"]) == ("Produce", "INVALID_RECORD", None)
    assert latest["reason"].startswith(f"'{LEDGER}'-0 INVALID_RECORD")
    assert (other["error"], other["count"]) == ("INVALID_TXN_STATE", 3)
    assert [event["kind"] for event in picture.get("/v1/history")["events"]] == ["refused"] * 3


def test_a_request_with_refused_rows_is_listed_with_its_first_error(picture):
    producer = Producer(picture.broker)
    assert set(producer.add(("nothing", [0, 1])).values()) == {E.UNKNOWN_TOPIC_OR_PARTITION}
    rows = [{"partition_index": 7, "committed_offset": 1, "committed_metadata": ""}]
    topics = [{"name": ORDERS, "partitions": rows}]
    picture.broker.call(K.OFFSET_COMMIT, 8, **OF_NOBODY, topics=topics)
    offsets, added = refusals(picture)
    assert (added["api"], added["error"]) == ("AddPartitionsToTxn", "UNKNOWN_TOPIC_OR_PARTITION")
    assert added["reason"] == "the first of 2 rows with errors" and added["transactional_id"] == "txn"
    assert (offsets["api"], offsets["error"]) == ("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION")
    assert offsets["reason"] == f"group_id {OF_NOBODY['group_id']}"


def test_a_request_with_hundreds_of_refused_rows_is_listed_once(picture):
    rows = [{"partition_index": index, "committed_offset": 1, "committed_metadata": ""} for index in range(10, 400)]
    picture.broker.call(K.OFFSET_COMMIT, 8, **OF_NOBODY, topics=[{"name": ORDERS, "partitions": rows}])
    (row,) = refusals(picture)
    assert (row["error"], row["reason"]) == ("UNKNOWN_TOPIC_OR_PARTITION", "the first of 390 rows with errors")
    assert row["count"] == 1


def test_routine_errors_such_as_member_id_required_are_not_listed(picture):
    producer = Producer(picture.broker)
    producer.begin(0)
    assert producer.init(4).error_code == E.NONE
    reply = picture.broker.call(
        K.JOIN_GROUP,
        5,
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    assert reply.error_code == E.MEMBER_ID_REQUIRED
    assert refusals(picture) == []


def test_a_connection_closed_for_a_bad_request_header_is_listed(picture):
    client = picture.broker.client()
    client.send_bytes(b"\x00\x00\x00\x0a\x00\x00\x00\x63" + bytes(6))
    assert client.closed
    (row,) = refusals(picture)
    assert (row["api"], row["error"]) == ("Produce", "connection closed")
    assert "v99: bad request header" in row["reason"]


def test_a_long_transactional_id_is_cut_and_an_empty_one_is_null(picture):
    asked = {"producer_id": 1, "producer_epoch": 0, "committed": True}
    picture.broker.call(K.END_TXN, 3, transactional_id="x" * 9_000, **asked)
    picture.broker.call(K.END_TXN, 3, transactional_id="", **asked)
    empty, long = refusals(picture)
    assert len(long["transactional_id"]) == 256
    assert empty["transactional_id"] is None
    assert produce(picture.broker, batch())[0] == E.NONE
