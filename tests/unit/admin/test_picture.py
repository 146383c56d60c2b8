"""Transactions, partitions, groups and refusals on the admin port of a broker in memory."""

import json
import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from picture import Picture

from ottla.admin.event_stream import MOST_STREAMS
from ottla.admin.groups import MOST_ASSIGNED
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.internal_topics.consumer_protocol import encode_assignment
from ottla.protocol.steps import to_the_end
from tests.api.callers import GROUP, LEDGER, Member, Producer, commit
from tests.api.consumer_groups import INTERVAL_MS
from tests.api.consumer_groups import Member as ConsumerMember

READ_COMMITTED = 1


@pytest.fixture
def picture():
    picture = Picture()
    yield picture
    assert picture.broker.bugs == []


def kinds(events):
    return [event["kind"] for event in events]


def commit_in_transaction(broker, producer, offset):
    assert producer.add_offsets() == 0
    topics = [
        {"name": LEDGER, "partitions": [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]}
    ]
    broker.call(K.TXN_OFFSET_COMMIT, 2, **producer.owner, group_id=GROUP, topics=topics)


def fetch_and_wait(broker, isolation, offset=0):
    topics = [{"topic": LEDGER, "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 9_999}]}]
    limits = {"replica_id": -1, "max_wait_ms": 30_000, "min_bytes": 1, "max_bytes": 9_999}
    reader = broker.client()
    reader.send(K.FETCH, 4, **limits, isolation_level=isolation, topics=topics)
    return reader


def test_a_broker_at_a_glance(picture):
    Producer(picture.broker).begin(0)
    picture.broker.advance(5_000)
    seen = picture.get("/v1/overview")
    assert (seen["open_transactions"], seen["node_id"], seen["transaction_version"]) == (1, 1, 2)
    assert 5_000 <= seen["oldest_open_ms"] <= 5_500
    assert seen["started_ms"] < seen["now_ms"]
    assert seen["disk"]["offline"] is False
    assert seen["bucket"]["open"] == 1
    assert seen["disk"]["bytes"] > 0 and seen["connections"] == 1


def test_rates_and_durations_are_those_of_the_last_ten_seconds(picture):
    producer = Producer(picture.broker)
    picture.get("/v1/overview")
    for number in range(20):
        picture.broker.advance(500)
        producer.add((LEDGER, [0]))
        producer.produce(sequence=number)
        producer.end()
    seen = picture.get("/v1/overview")
    assert 10_000 <= seen["over_ms"] <= 11_000
    assert 1.5 <= seen["rates"]["transactions_committed"] <= 2.5
    assert 5.5 <= seen["rates"]["requests"] <= 6.5
    assert seen["rates"]["produced_bytes"] > 50 * seen["rates"]["produced_records"] > 50
    assert seen["rates"]["errors"] == seen["rates"]["transactions_aborted"] == 0
    for _ in range(15):
        picture.broker.advance(1_000)
        seen = picture.get("/v1/overview")
    assert 9_000 <= seen["over_ms"] <= 11_500
    assert seen["rates"]["requests"] == 0


def test_an_open_transaction_with_its_partitions_and_what_it_waits_for(picture):
    producer = Producer(picture.broker)
    producer.begin(2, 0)
    (row,) = picture.get("/v1/transactions")["transactions"]
    assert row["partitions"] == [
        {"topic": LEDGER, "partition": 2, "first_offset": 0},
        {"topic": LEDGER, "partition": 0, "first_offset": 0},
    ]
    assert (row["transactional_id"], row["state"], row["records"]) == ("txn", "Ongoing", 2)
    assert row["bytes"] > 100 and row["partitions_left_out"] == 0
    assert row["waits_for"].startswith("its producer, or the timeout in ")
    producer.end()
    assert picture.get("/v1/transactions")["transactions"] == []
    states = {
        each["transactional_id"]: each["state"] for each in picture.get("/v1/transactions?state=all")["transactions"]
    }
    assert states == {"anybody": "Empty", "txn": "CompleteCommit"}


def test_transactions_are_listed_oldest_first_up_to_a_limit(picture):
    for name in ("c", "a", "b"):
        Producer(picture.broker, name).begin(0)
        picture.broker.advance(10)
    seen = picture.get("/v1/transactions?limit=2")
    assert [row["transactional_id"] for row in seen["transactions"]] == ["c", "a"]
    assert (seen["total"], seen["left_out"]) == (3, 1)
    assert [row["transactional_id"] for row in picture.get("/v1/transactions?prefix=b")["transactions"]] == ["b"]


@pytest.mark.parametrize(
    "target",
    [
        "/v1/transactions?state=none",
        "/v1/transactions?limit=0",
        "/v1/transactions?limit=1e3",
        "/v1/groups?limit=1001",
        "/v1/partitions?limit=x",
        "/v1/history?from_ms=-1",
        "/v1/history?from_ms=2&to_ms=1",
        "/v1/events?since=%D9%A1",
    ],
)
def test_a_question_that_makes_no_sense_is_refused(picture, target):
    assert picture.get(target, status=400)["error"]


def test_a_partition_held_back_is_listed_first_with_its_waiting_fetches(picture):
    picture.broker.create_topic("a-first")
    producer = Producer(picture.broker)
    producer.begin(0)
    readers = [fetch_and_wait(picture.broker, READ_COMMITTED), fetch_and_wait(picture.broker, 0, offset=1)]
    seen = picture.get("/v1/partitions?limit=3")
    held, *others = seen["partitions"]
    assert (held["topic"], held["last_stable_offset"], held["high_watermark"]) == (LEDGER, 0, 1)
    (opened,) = held["open"]
    assert (opened["transactional_id"], opened["first_offset"]) == ("txn", 0)
    assert opened["started_ms"] <= picture.get("/v1/overview")["now_ms"]
    assert (held["waiting_fetches"], held["waiting_committed"]) == (2, 1)
    assert others[0]["topic"] == "a-first"
    assert seen["left_out"] == seen["total"] - 3
    assert [reader.replies for reader in readers] == [[], []]
    producer.end()
    ended = picture.get(f"/v1/partitions?prefix={LEDGER}")["partitions"][0]
    assert (ended["open"], ended["waiting_fetches"], ended["waiting_committed"]) == ([], 0, 0)
    assert [len(reader.replies) for reader in readers] == [1, 1]


def test_why_a_partition_is_held_back_and_what_ends_it(picture):
    producer = Producer(picture.broker)
    producer.begin(0)
    told = picture.get(f"/v1/partitions/{LEDGER}/0/why")
    assert told["text"].startswith(
        f"{LEDGER}-0: 1 offset is held back, from 0 on, by producer id {producer.producer_id}"
    )
    assert "'txn' (in time, open for" in told["text"]
    assert any("forceTerminateTransaction" in command for command in told["commands"])
    producer.end()
    assert "nothing is held back" in picture.get(f"/v1/partitions/{LEDGER}/0/why")["text"]


def test_a_transaction_missing_at_its_coordinator_is_called_forgotten(picture):
    producer = Producer(picture.broker)
    producer.begin(0)
    for shard in picture.parts.transactions.shards():
        shard.states.pop("txn", None), shard.open.pop("txn", None)
    told = picture.get(f"/v1/partitions/{LEDGER}/0/why")
    assert "(forgotten, last active" in told["text"]
    assert any(command.startswith(f"ottla txn abort {LEDGER} 0 ") for command in told["commands"])


@pytest.mark.parametrize(
    "place",
    [f"{LEDGER}/99", "nothing/0", f"{LEDGER}/-1", f"{LEDGER}/%D9%A1", f"{LEDGER}/{'9' * 5_000}", "..%2f..%2fetc/0"],
)
def test_a_partition_that_is_not_there(picture, place):
    assert picture.get(f"/v1/partitions/{place}/why", status=404)["error"].startswith("There is no such partition")


def test_a_group_with_members_offsets_and_what_is_pending(picture):
    producer = Producer(picture.broker)
    producer.begin(0)
    producer.end()
    member = Member(picture.broker)
    member.join()
    share = struct.pack(">hih6siii", 0, 1, 6, LEDGER.encode(), 1, 3, -1)
    assert member.sync((member, share)).error_code == 0
    producer.add((LEDGER, [0]))
    commit(picture.broker, (LEDGER, 0, 1), group_id="another")
    seen = picture.get("/v1/groups")
    another, group = seen["groups"]
    assert (group["group_id"], group["state"], group["protocol_type"]) == (GROUP, "Stable", "consumer")
    assert (group["type"], group["epoch"], group["assignment_epoch"]) == ("classic", 1, None)
    assert (group["members"][0]["epoch"], group["members"][0]["assignment"]) == (None, [[LEDGER, [3]]])
    assert (another["group_id"], another["state"]) == ("another", "Empty")
    (offset,) = another["offsets"]
    assert (offset["committed"], offset["log_end_offset"], offset["lag"], offset["lag_below_lso"]) == (1, 2, 1, 1)
    assert seen["total"] == 2


def test_groups_of_the_consumer_protocol_are_shown_with_state_and_assignments(picture):
    first, second = (ConsumerMember(picture.broker, name, GROUP) for name in "ab")
    first.join([LEDGER])
    (group,) = picture.get("/v1/groups")["groups"]
    assert (group["state"], group["protocol_type"]) == ("Stable", "consumer")
    assert (group["type"], group["epoch"], group["assignment_epoch"]) == ("consumer", 2, 2)
    assert group["members"][0]["epoch"] == 2
    ((topic, partitions),) = group["members"][0]["assignment"]
    assert (topic, sorted(partitions)) == (LEDGER, [0, 1, 2, 3])
    second.join([LEDGER])
    assert picture.get("/v1/groups")["groups"][0]["state"] == "Assigning"
    picture.broker.advance(INTERVAL_MS + 200)
    first.beat(2)
    (group,) = picture.get("/v1/groups")["groups"]
    assert (group["state"], group["epoch"], group["assignment_epoch"]) == ("Reconciling", 3, 3)


def test_an_offset_that_is_pending_in_a_transaction(picture):
    producer = Producer(picture.broker)
    producer.begin(0)
    commit_in_transaction(picture.broker, producer, 5)
    (group,) = picture.get("/v1/groups")["groups"]
    (offset,) = group["offsets"]
    assert offset["committed"] is None
    assert offset["pending"] == [{"producer_id": producer.producer_id, "transactional_id": "txn", "offset": 5}]
    producer.end()
    (group,) = picture.get("/v1/groups")["groups"]
    assert (group["offsets"][0]["committed"], group["offsets"][0]["pending"]) == (5, [])


@pytest.mark.parametrize(
    "share", [b"", b"\x00", b"\xff" * 20, struct.pack(">hi", 0, 2**31 - 1), struct.pack(">hihi", 0, 1, 0, 2**31 - 1)]
)
def test_a_malformed_assignment_is_listed_as_empty(picture, share):
    member = Member(picture.broker)
    member.join()
    member.sync((member, share))
    assert picture.get("/v1/groups")["groups"][0]["members"][0]["assignment"] == []


def test_long_assignment_is_listed_up_to_the_bound(picture):
    member = Member(picture.broker)
    member.join()
    many = {f"topic-{number}": range(3) for number in range(MOST_ASSIGNED)}
    member.sync((member, to_the_end(encode_assignment(many.items(), 3))))
    shown = picture.get("/v1/groups")["groups"][0]["members"][0]["assignment"]
    assert sum(len(partitions) for _, partitions in shown) == MOST_ASSIGNED
    assert shown[0] == ["topic-0", [0, 1, 2]]


def test_the_history_of_transactions(picture):
    committed, aborted = Producer(picture.broker), Producer(picture.broker, "other")
    committed.begin(0, 1)
    aborted.begin(0)
    committed.end()
    aborted.end(committed=False)
    picture.broker.advance(100)
    seen = picture.get("/v1/history")
    mine = [event for event in seen["events"] if event["transactional_id"] == "txn"]
    assert kinds(mine) == ["begun", "partition", "partition", "prepared", "marker", "marker", "completed"]
    assert (mine[-1]["commit"], mine[-1]["records"]) == (True, 2)
    assert "topic" not in mine[0] and mine[1]["topic"] == LEDGER
    assert sum(each["committed"] for each in seen["buckets"]) == 1
    assert sum(each["aborted"] for each in seen["buckets"]) == 1
    assert seen["left_out"] == 0
    before = picture.get(f"/v1/history?to_ms={mine[0]['at_ms'] - 1}")
    assert before["events"] == [] and before["to_ms"] == mine[0]["at_ms"] - 1


def test_a_new_instance_fences_the_old_one(picture):
    old = Producer(picture.broker)
    old.begin(0)
    Producer(picture.broker)
    picture.broker.advance(100)
    old.end()
    seen = picture.get("/v1/history")
    ended = [event["commit"] for event in seen["events"] if event["kind"] == "completed"]
    assert ended == [False]
    assert [event.get("error") for event in seen["events"] if event["kind"] == "fenced"] == [None, "PRODUCER_FENCED"]
    assert sum(each["fenced"] for each in seen["buckets"]) == 2


def test_a_transaction_that_times_out(picture):
    Producer(picture.broker, timeout_ms=1_000).begin(0)
    picture.broker.advance(30_000)
    told = kinds(picture.get("/v1/history")["events"])
    assert sorted(told) == ["begun", "completed", "marker", "partition", "prepared", "timed_out"]


def test_the_stream_sends_each_event_and_an_overview_every_second(picture):
    follower = picture.follow()
    assert "Content-Type: text/event-stream" in follower.head
    ((event, overview),) = follower.news(0.1)
    assert (event, overview["open_transactions"]) == ("overview", 0)
    Producer(picture.broker).begin(0)
    told = follower.news()
    assert kinds(data for event, data in told if event == "txn") == ["begun", "partition"]
    told = follower.news(3_000)
    assert [event for event, _ in told] == ["overview"] * 3
    assert told[-1][1]["bucket"]["open"] == 1


def test_a_stream_since_a_sequence_number_sends_the_missed_events(picture):
    producer = Producer(picture.broker)
    producer.begin(0)
    last = picture.get("/v1/history")["events"][-1]["seq"]
    producer.end()
    follower = picture.follow(f"/v1/events?since={last}")
    assert kinds(data for event, data in follower.news() if event == "txn") == ["prepared", "marker", "completed"]
    again = picture.follow("/v1/events?since=999999")
    assert [data["seq"] for event, data in again.news() if event == "txn"] == [1, 2, 3, 4, 5]


def test_events_that_were_not_recorded_are_reported_as_a_gap(picture):
    follower = picture.follow()
    follower.news(0.1)
    for number in range(30_000):
        picture.events.began(f"txn-{number}", 1, 0, [(LEDGER, 0)])
    told = follower.news(1_000)
    gaps = [data["left_out"] for event, data in told if event == "gap"]
    assert sum(gaps) == picture.events.left_out > 30_000
    assert len([event for event, _ in told if event == "txn"]) == picture.events.next_seq - 1


def test_events_missed_by_a_slow_reader_are_reported_as_a_gap(picture, monkeypatch):
    monkeypatch.setattr("ottla.broker.events.MOST_EVENTS", 500)
    follower = picture.follow()
    follower.visitor.transport.takes = 0
    for number in range(1_500):
        picture.events.began(f"txn-{number}", 1, 0, ())
        if not number % 500:
            picture.broker.advance(2_000)
    follower.visitor.transport.take(1_000_000)
    told = follower.news(500)
    assert [data["left_out"] for event, data in told if event == "gap"] == [999]
    seqs = [data["seq"] for event, data in told if event == "txn"]
    assert seqs == [1, *range(1_001, 1_501)]


def test_a_follower_that_reads_nothing_is_cut_off_with_little_buffered(picture):
    follower = picture.follow()
    follower.visitor.transport.takes = 0
    for number in range(1_500):
        picture.events.began(f"txn-{number}", 1, 0, ())
    picture.broker.advance(11_000)
    assert follower.visitor.transport.aborted
    assert len(follower.visitor.transport.written) < 65_536


def test_there_are_only_so_many_streams_and_a_place_is_free_when_one_ends(picture):
    followers = [picture.follow() for _ in range(MOST_STREAMS)]
    assert "close one" in picture.get("/v1/events", status=503)["error"]
    followers.pop().visitor.hang_up()
    assert picture.follow().news(1_100)
    assert "close one" in picture.get("/v1/events", status=503)["error"]


def test_hostile_names_are_returned_unchanged_or_cut_to_256_characters(picture):
    names = ['"><script>alert(1)</script>', "\u2028\x00\n\r\t\x1b[31m", "é" * 5_000, "𝒳" * 300]
    follower = picture.follow()
    for name in names:
        Producer(picture.broker, name).begin(0)
    shown = [row["transactional_id"] for row in picture.get("/v1/transactions")["transactions"]]
    assert sorted(shown) == sorted(name if len(name) <= 256 else name[:255] + "…" for name in names)
    told = [data["transactional_id"] for event, data in follower.news() if event == "txn"]
    assert set(told) == set(shown)


def test_an_export_is_one_page_with_all_that_is_seen_and_no_name_ends_its_script(picture):
    hostile = "</script><script>alert(1)</script><!--"
    Producer(picture.broker, hostile).begin(0)
    page = picture.fetch("/v1/export").decode()
    _, _, advance = page.partition('<script type="application/json" id="data">')
    data, _, behind = advance.partition("</script>")
    exported = json.loads(data)
    assert set(exported) == {
        *("exported_ms", "overview", "history", "transactions", "partitions", "topics", "groups", "refusals")
    }
    assert exported["transactions"]["transactions"][0]["transactional_id"] == hostile
    assert [event["kind"] for event in exported["history"]["events"]] == ["begun", "partition"]
    assert exported["partitions"]["partitions"][0]["open"][0]["transactional_id"] == hostile
    assert behind.rstrip().endswith("</html>") and "alert(1)" not in behind
    assert 'src="' not in page and 'http-equiv="Content-Security-Policy"' in page
    nothing = picture.fetch("/v1/export?from_ms=0&to_ms=1").decode()
    assert '"events":[]' in nothing
