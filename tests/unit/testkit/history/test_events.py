"""Each request and its reply as an object, as docs/json.md has it."""

import json

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.testkit.history import events
from tests.unit.testkit.history.passing import Passing


def test_an_end_of_a_transaction():
    passing = Passing()
    passing.end_txn(version=5, told=(5, 1))
    (event,) = events(passing.entries())
    assert event == {
        "t": 1,
        "ended": 2,
        "peer": "peer:1",
        "client_id": "client",
        "api": "EndTxn",
        "version": 5,
        "request": {"transactional_id": "tx", "producer_id": 5, "producer_epoch": 0, "committed": True},
        "reply": {"throttle_time_ms": 0, "error_code": 0, "producer_id": 5, "producer_epoch": 1},
        "closed": None,
        "faults": [],
    }


def test_a_produce_event_lists_its_batches_and_a_few_records():
    passing = Passing()
    passing.send(b"paid", b"\xff", sequence=3)
    (event,) = events(passing.entries())
    assert event["request"]["topic_data"][0]["partition_data"][0]["records"] == {
        "bytes": 80,
        "count": 2,
        "batches": [
            {
                "base_offset": 0,
                "count": 2,
                "producer_id": 5,
                "producer_epoch": 0,
                "base_sequence": 3,
                "transactional": True,
                "control": False,
            }
        ],
        "records": [
            {"offset": 0, "key": None, "value": "paid"},
            {"offset": 1, "key": None, "value": {"base64": "/w=="}},
        ],
    }


def test_many_records_are_counted_only():
    passing = Passing()
    passing.send(*[b"x"] * 21)
    (event,) = events(passing.entries())
    records = event["request"]["topic_data"][0]["partition_data"][0]["records"]
    assert records["count"] == 21
    assert "records" not in records


def test_an_event_whose_reply_was_lost_has_the_reason():
    passing = Passing()
    passing.end_txn(lost=True)
    (event,) = events(passing.entries())
    assert event["reply"] is None
    assert event["closed"] == "lost"


def test_an_unreadable_request_is_an_event_with_its_api():
    passing = Passing()
    entry = passing.journal.begin(b"\0\x1a\0\x63\0\0\0\1\0\1c\0", "peer:1")
    passing.journal.record_reply(entry, (b"\0\0\0\2??",))
    unknown = passing.journal.begin(b"\x01\xf4\0\1\0\0\0\1\0\1c", "peer:1")
    passing.journal.record_reply(unknown, ())
    first, second = events(passing.entries())
    assert (first["api"], first["version"], first["request"], first["reply"]) == ("EndTxn", 99, None, None)
    assert second["api"] == "API 500"


def test_a_request_of_every_api_is_written_as_json():
    passing = Passing()
    for api_key in ApiKey:
        version = codec.schema_versions(api_key)[1]
        frame = codec.encode_request(codec.request_class(api_key)(version=version), version, 1, "c")[4:]
        passing.journal.begin(frame, "peer:1")
    shown = list(events(passing.entries()))
    json.dumps(shown)
    assert all(event["request"] is not None for event in shown)
