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
def watcher():
    return Watched()


def test_a_transaction_is_five_events_with_what_it_wrote(watcher):
    watcher.transaction(records=3)
    assert watcher.kinds == ["begun", "partition", "prepared", "marker", "completed"]
    begun, joined, prepared, marker, completed = watcher.kept
    assert [event.seq for event in watcher.kept] == [1, 2, 3, 4, 5]
    assert (joined.topic, joined.partition, marker.commit) == ("ledger", 0, True)
    assert (begun.records, prepared.records, completed.records, completed.size_bytes) == (None, 3, 3, 100)
    assert watcher.events.written("txn") is None


def test_written_returns_records_and_bytes_of_an_open_transaction(watcher):
    watcher.events.began("txn", 1, 0, [LEDGER])
    watcher.events.wrote("txn", 2, 200)
    watcher.events.wrote("txn", 1, 50)
    watcher.events.wrote("another", 1, 50)
    assert watcher.events.written("txn") == (3, 250)
    assert watcher.events.written("another") is None


def test_the_end_of_a_transaction_without_a_begin_has_no_record_count(watcher):
    watcher.end()
    assert watcher.kinds == ["prepared", "marker", "completed"]
    assert watcher.kept[-1].records is None


def test_seconds_count_what_ended_in_them_and_what_was_open(watcher):
    watcher.open = 7
    watcher.transaction()
    watcher.transaction(commit=False)
    watcher.events.record_fencing("txn", 1, 0)
    watcher.pass_time(3_000)
    watcher.open = 2
    watcher.transaction()
    first, second, third, last = watcher.events.seconds()
    assert (first.at_ms, first.committed, first.aborted, first.fenced, first.open) == (START_MS, 1, 1, 1, 2)
    assert (second.at_ms, second.committed, third.at_ms) == (START_MS + 1_000, 0, START_MS + 2_000)
    assert (last.at_ms, last.committed, last.open) == (START_MS + 3_000, 1, 2)
    assert watcher.events.last_whole_second() is third


def test_there_is_no_more_of_anything_than_its_limit(watcher):
    for number in range(MOST_SECONDS + 50):
        watcher.transaction(f"txn-{number}")
        watcher.events.record_refusal(f"Api{number}", "ERROR", "client", "peer", None, "why")
        watcher.pass_time(1_000)
    assert len(watcher.events.seconds()) == MOST_SECONDS
    assert len([*watcher.events.refusals()]) == MOST_REFUSALS
    for _ in range(60):
        for number in range(300):
            watcher.transaction(f"txn-{number}")
        watcher.pass_time(1_000)
    assert len(watcher.kept) == MOST_EVENTS
    assert watcher.kept[-1].seq - watcher.kept[0].seq == MOST_EVENTS - 1


def test_a_long_silence_takes_as_long_as_a_short_one(watcher):
    watcher.transaction()
    watcher.pass_time(400 * 24 * 3600 * 1000)
    seconds = watcher.events.seconds()
    assert len(seconds) == MOST_SECONDS
    assert [each.at_ms for each in seconds] == [*range(seconds[0].at_ms, seconds[-1].at_ms + 1, 1_000)]


def test_only_a_large_clock_step_back_resets_the_seconds(watcher):
    watcher.pass_time(100_000)
    watcher.transaction()
    watcher.pass_time(-CLOCK_WENT_BACK_MS // 2)
    watcher.transaction()
    assert watcher.events.seconds()[-1].committed == 2
    watcher.pass_time(-CLOCK_WENT_BACK_MS)
    watcher.transaction()
    (second,) = watcher.events.seconds()
    assert second.committed == 1


def test_events_are_found_by_their_time(watcher):
    for _ in range(3):
        watcher.transaction()
        watcher.pass_time(1_000)
    assert watcher.events.at_or_after(0) == 1
    assert watcher.events.at_or_after(START_MS + 1) == 6
    assert watcher.events.at_or_after(START_MS + 1_000) == 6
    assert watcher.events.at_or_after(START_MS + 9_000) == watcher.events.next_seq


def test_beyond_the_limit_partitions_are_left_out_first(watcher):
    per_second = EVENTS_PER_SECOND * 2 // 5
    for _ in range(2):
        for number in range(per_second):
            watcher.transaction(f"txn-{number}")
        watcher.pass_time(1_000)
    second = [event.kind for event in watcher.kept if event.at_ms >= START_MS + 1_000]
    assert "marker" not in second and "partition" not in second
    assert watcher.events.left_out >= 2 * per_second
    watcher.pass_time(2_000)
    watcher.transaction()
    assert watcher.kinds[-5:] == ["begun", "partition", "prepared", "marker", "completed"]


@pytest.mark.parametrize("per_second", [1_000, 3_000, 20_000])
def test_far_beyond_it_whole_transactions_are_left_out_and_all_are_counted(watcher, per_second):
    for _ in range(4):
        for number in range(per_second):
            watcher.transaction(f"txn-{number}")
        watcher.pass_time(1_000)
    later = [event for event in watcher.kept if event.at_ms >= START_MS + 2_000]
    assert len(later) <= 2 * 2 * EVENTS_PER_SECOND
    begun = [event.transactional_id for event in later if event.kind == "begun"]
    assert begun
    assert sorted(begun) == sorted(event.transactional_id for event in later if event.kind == "completed")
    assert [each.committed for each in watcher.events.seconds()[:4]] == [per_second] * 4
    offered = 4 * 5 * per_second
    assert watcher.events.next_seq - 1 + watcher.events.left_out == offered
    assert sum(each.left_out for each in watcher.events.seconds()) == watcher.events.left_out


def test_a_transaction_with_a_begin_event_has_its_end_event_under_load(watcher):
    watcher.events.began("first", 1, 0, [LEDGER])
    for number in range(20_000):
        watcher.transaction(f"txn-{number}")
    watcher.end("first")
    assert [e.kind for e in watcher.kept if e.transactional_id == "first"] == [
        *("begun", "partition", "prepared", "completed")
    ]


def test_one_client_that_is_refused_all_the_time_is_one_row_and_does_not_fill_the_ring(watcher):
    # Hashes of texts differ from run to run, and one id in 256 is kept at every level.
    name = next(name for name in map("txn-{}".format, itertools.count()) if hash(name) & 1)
    for _ in range(10_000):
        watcher.events.record_refusal("EndTxn", "INVALID_TXN_STATE", "client", "peer", name, "why", (1, 0))
    (row,) = watcher.events.refusals()
    assert row.times == 10_000
    assert len(watcher.kept) < 10_000
    assert watcher.kept[0].error == "INVALID_TXN_STATE"


def test_long_names_are_cut(watcher):
    watcher.transaction("x" * 30_000)
    watcher.events.record_refusal("Produce", "ERROR", "c" * 9_000, "p" * 9_000, "x" * 30_000, "r" * 90_000)
    (row,) = watcher.events.refusals()
    assert {len(event.transactional_id) for event in watcher.kept} == {NAME_CHARS}
    assert max(map(len, (row.client_id, row.peer, row.transactional_id))) == NAME_CHARS
    assert len(row.reason) <= 500


def test_a_transaction_of_many_partitions_does_not_fill_the_ring(watcher):
    watcher.events.began("txn", 1, 0, [("ledger", index) for index in range(10_000)])
    assert len(watcher.kept) == 1 + PARTITIONS_AT_ONCE
    assert watcher.events.left_out == 10_000 - PARTITIONS_AT_ONCE
