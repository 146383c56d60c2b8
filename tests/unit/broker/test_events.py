"""The ring of events: the events that it holds and leaves out, and its counters."""

import itertools

import pytest

from ottla.broker.events import (
    CLOCK_WENT_BACK_MS,
    EVENTS_PER_SECOND,
    MOST_EVENTS,
    MOST_REFUSALS,
    MOST_SECONDS,
    NAME_CHARS,
    PARTITIONS_AT_ONCE,
    Events,
)

LEDGER = ("ledger", 0)
START_MS = 1_700_000_000_000


class Watched:
    """Events with a clock that the test moves."""

    def __init__(self):
        self.now_ms, self.open = START_MS, 0
        self.events = Events(lambda: self.now_ms, lambda: self.open)

    def transaction(self, name="txn", commit=True, records=1):
        self.events.began(name, 1, 0, [LEDGER])
        self.events.wrote(name, records, 100)
        self.end(name, commit)

    def end(self, name="txn", commit=True):
        self.events.record_prepare(name, 1, 0, commit)
        self.events.record_marker(name, 1, 0, *LEDGER, commit)
        self.events.record_completion(name, 1, 0, commit)

    def pass_time(self, for_ms):
        self.now_ms += for_ms

    @property
    def kept(self):
        return [self.events.get(seq) for seq in range(self.events.first_seq, self.events.next_seq)]

    @property
    def kinds(self):
        return [event.kind for event in self.kept]


@pytest.fixture
def watched():
    return Watched()


def test_a_transaction_is_five_events_with_what_it_wrote(watched):
    watched.transaction(records=3)
    assert watched.kinds == ["begun", "partition", "prepared", "marker", "completed"]
    begun, joined, prepared, marker, completed = watched.kept
    assert [event.seq for event in watched.kept] == [1, 2, 3, 4, 5]
    assert (joined.topic, joined.partition, marker.commit) == ("ledger", 0, True)
    assert (begun.records, prepared.records, completed.records, completed.size_bytes) == (None, 3, 3, 100)
    assert watched.events.written("txn") is None


def test_what_an_open_transaction_has_written_is_known(watched):
    watched.events.began("txn", 1, 0, [LEDGER])
    watched.events.wrote("txn", 2, 200)
    watched.events.wrote("txn", 1, 50)
    watched.events.wrote("another", 1, 50)
    assert watched.events.written("txn") == (3, 250)
    assert watched.events.written("another") is None


def test_what_was_open_before_has_an_end_without_figures(watched):
    watched.end()
    assert watched.kinds == ["prepared", "marker", "completed"]
    assert watched.kept[-1].records is None


def test_seconds_count_what_ended_in_them_and_what_was_open(watched):
    watched.open = 7
    watched.transaction()
    watched.transaction(commit=False)
    watched.events.record_fencing("txn", 1, 0)
    watched.pass_time(3_000)
    watched.open = 2
    watched.transaction()
    first, second, third, last = watched.events.seconds()
    assert (first.at_ms, first.committed, first.aborted, first.fenced, first.open) == (START_MS, 1, 1, 1, 2)
    assert (second.at_ms, second.committed, third.at_ms) == (START_MS + 1_000, 0, START_MS + 2_000)
    assert (last.at_ms, last.committed, last.open) == (START_MS + 3_000, 1, 2)
    assert watched.events.last_whole_second() is third


def test_there_is_no_more_of_anything_than_its_limit(watched):
    for number in range(MOST_SECONDS + 50):
        watched.transaction(f"txn-{number}")
        watched.events.record_refusal(f"Api{number}", "ERROR", "client", "peer", None, "why")
        watched.pass_time(1_000)
    assert len(watched.events.seconds()) == MOST_SECONDS
    assert len([*watched.events.refusals()]) == MOST_REFUSALS
    for _ in range(60):
        for number in range(300):
            watched.transaction(f"txn-{number}")
        watched.pass_time(1_000)
    assert len(watched.kept) == MOST_EVENTS
    assert watched.kept[-1].seq - watched.kept[0].seq == MOST_EVENTS - 1


def test_a_long_silence_takes_as_long_as_a_short_one(watched):
    watched.transaction()
    watched.pass_time(400 * 24 * 3600 * 1000)
    seconds = watched.events.seconds()
    assert len(seconds) == MOST_SECONDS
    assert [each.at_ms for each in seconds] == [*range(seconds[0].at_ms, seconds[-1].at_ms + 1, 1_000)]


def test_a_clock_that_is_set_back_a_little_changes_nothing_and_much_begins_anew(watched):
    watched.pass_time(100_000)
    watched.transaction()
    watched.pass_time(-CLOCK_WENT_BACK_MS // 2)
    watched.transaction()
    assert watched.events.seconds()[-1].committed == 2
    watched.pass_time(-CLOCK_WENT_BACK_MS)
    watched.transaction()
    (second,) = watched.events.seconds()
    assert second.committed == 1


def test_events_are_found_by_their_time(watched):
    for _ in range(3):
        watched.transaction()
        watched.pass_time(1_000)
    assert watched.events.at_or_after(0) == 1
    assert watched.events.at_or_after(START_MS + 1) == 6
    assert watched.events.at_or_after(START_MS + 1_000) == 6
    assert watched.events.at_or_after(START_MS + 9_000) == watched.events.next_seq


def test_beyond_the_limit_partitions_are_left_out_first(watched):
    per_second = EVENTS_PER_SECOND * 2 // 5
    for _ in range(2):
        for number in range(per_second):
            watched.transaction(f"txn-{number}")
        watched.pass_time(1_000)
    second = [event.kind for event in watched.kept if event.at_ms >= START_MS + 1_000]
    assert "marker" not in second and "partition" not in second
    assert watched.events.left_out >= 2 * per_second
    watched.pass_time(2_000)
    watched.transaction()
    assert watched.kinds[-5:] == ["begun", "partition", "prepared", "marker", "completed"]


@pytest.mark.parametrize("per_second", [1_000, 3_000, 20_000])
def test_far_beyond_it_whole_transactions_are_left_out_and_all_are_counted(watched, per_second):
    for _ in range(4):
        for number in range(per_second):
            watched.transaction(f"txn-{number}")
        watched.pass_time(1_000)
    later = [event for event in watched.kept if event.at_ms >= START_MS + 2_000]
    assert len(later) <= 2 * 2 * EVENTS_PER_SECOND
    begun = [event.transactional_id for event in later if event.kind == "begun"]
    assert begun
    assert sorted(begun) == sorted(event.transactional_id for event in later if event.kind == "completed")
    assert [each.committed for each in watched.events.seconds()[:4]] == [per_second] * 4
    offered = 4 * 5 * per_second
    assert watched.events.next_seq - 1 + watched.events.left_out == offered
    assert sum(each.left_out for each in watched.events.seconds()) == watched.events.left_out


def test_who_was_seen_to_begin_is_seen_to_end_whatever_comes_between(watched):
    watched.events.began("first", 1, 0, [LEDGER])
    for number in range(20_000):
        watched.transaction(f"txn-{number}")
    watched.end("first")
    assert [e.kind for e in watched.kept if e.transactional_id == "first"] == [
        *("begun", "partition", "prepared", "completed")
    ]


def test_one_client_that_is_refused_all_the_time_is_one_row_and_does_not_fill_the_ring(watched):
    # Hashes of texts differ from run to run, and one id in 256 is kept at every level.
    name = next(name for name in map("txn-{}".format, itertools.count()) if hash(name) & 1)
    for _ in range(10_000):
        watched.events.record_refusal("EndTxn", "INVALID_TXN_STATE", "client", "peer", name, "why", (1, 0))
    (row,) = watched.events.refusals()
    assert row.times == 10_000
    assert len(watched.kept) < 10_000
    assert watched.kept[0].error == "INVALID_TXN_STATE"


def test_long_names_are_cut(watched):
    watched.transaction("x" * 30_000)
    watched.events.record_refusal("Produce", "ERROR", "c" * 9_000, "p" * 9_000, "x" * 30_000, "r" * 90_000)
    (row,) = watched.events.refusals()
    assert {len(event.transactional_id) for event in watched.kept} == {NAME_CHARS}
    assert max(map(len, (row.client_id, row.peer, row.transactional_id))) == NAME_CHARS
    assert len(row.reason) <= 500


def test_a_transaction_of_many_partitions_does_not_fill_the_ring(watched):
    watched.events.began("txn", 1, 0, [("ledger", index) for index in range(10_000)])
    assert len(watched.kept) == 1 + PARTITIONS_AT_ONCE
    assert watched.events.left_out == 10_000 - PARTITIONS_AT_ONCE
