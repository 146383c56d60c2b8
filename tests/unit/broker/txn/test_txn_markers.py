"""Marker fan-out: several answers of partitions at once, the budget of a turn, the back-off, durability.

The effect of each answer is tested in `tests/tables`.
"""

import itertools

import pytest

from ottla.broker.cluster.marker_channels import MarkerAnswer
from ottla.broker.turns import SHARE_US
from ottla.broker.txn import markers
from ottla.broker.txn.states import TransactionStatus as S
from ottla.protocol.errors import ErrorCode as E

FOO, BAR = ("foo", 1), ("bar", 0)
DROPPED = [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED]


def end_transaction(rig, *partitions, commit=True):
    producer = rig.producer()
    rig.add("t", producer, *partitions)
    assert rig.end("t", producer, commit).error is E.NONE
    return producer


def where(rig):
    return [(topic, index) for topic, index, _ in rig.sink.written]


@pytest.mark.parametrize("answer", DROPPED, ids=lambda error: error.name)
def test_a_transaction_that_every_partition_drops_ends(rig, answer):
    rig.sink.answers = {FOO: [answer], BAR: [answer]}
    end_transaction(rig, FOO, BAR, commit=False)
    assert where(rig) == []
    assert rig.state().status is S.COMPLETE_ABORT


def test_a_dropped_marker_does_not_stop_the_retry_of_another(rig):
    rig.sink.answers = {FOO: [E.INVALID_PRODUCER_EPOCH], BAR: [E.NOT_LEADER_OR_FOLLOWER]}
    end_transaction(rig, FOO, BAR)
    assert rig.coordinator.describe("t").partitions == (BAR,)
    rig.clock.advance(20)
    assert where(rig) == [BAR]
    assert rig.state().status is S.COMPLETE_COMMIT


def test_a_lasting_error_is_logged_once(rig, caplog):
    rig.sink.answers[FOO] = [E.CORRUPT_MESSAGE] * 9 + [E.INVALID_RECORD] * 9
    end_transaction(rig, FOO)
    rig.clock.advance(60_000)
    assert [r.getMessage().split(": ")[1].split()[0] for r in caplog.records] == ["CORRUPT_MESSAGE", "INVALID_RECORD"]
    assert rig.state().status is S.COMPLETE_COMMIT


def test_the_back_off_grows_to_one_second(rig):
    rig.sink.answers[FOO] = [E.KAFKA_STORAGE_ERROR] * 20
    end_transaction(rig, FOO)
    rig.clock.advance(20 + 40 + 80 + 160 + 320 + 640)
    before = len(rig.sink.answers[FOO])
    rig.clock.advance(5000)
    assert before - len(rig.sink.answers[FOO]) == 5


@pytest.mark.parametrize("refusal", [E.MESSAGE_TOO_LARGE, E.INVALID_PRODUCER_EPOCH], ids=lambda error: error.name)
def test_complete_is_logged_again_after_an_error_that_no_log_should_give(rig, refusal):
    """Any error of a log that is online is retried: no other task would log Complete."""
    rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER]
    end_transaction(rig, FOO)
    rig.log_of("t").refuse = refusal
    rig.clock.advance(5000)
    rig.log_of("t").refuse = E.NONE
    rig.clock.advance(1000)
    assert rig.state().status is S.COMPLETE_COMMIT
    assert where(rig) == [FOO]


def test_complete_waits_for_its_durability(rig):
    producer = rig.producer()
    rig.add("t", producer, FOO)
    rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER]
    rig.end("t", producer)
    rig.log_of("t").hold = True
    rig.clock.advance(20)
    assert rig.state().status is S.PREPARE_COMMIT
    assert rig.add("t", producer, FOO) is E.CONCURRENT_TRANSACTIONS
    rig.turns.event(rig.log_of("t").release)
    assert rig.state().status is S.COMPLETE_COMMIT
    assert rig.add("t", producer, FOO) is E.NONE


def slow(monkeypatch):
    """Eight markers are a share."""
    monkeypatch.setattr(markers, "MARKER_US", SHARE_US / 8)


def test_markers_of_one_turn_take_at_most_a_share(rig, monkeypatch):
    rig.cluster.topics["wide"] = rig.cluster.topics["foo"].__class__(partition_count=40)
    producer = rig.producer()
    rig.add("t", producer, *[("wide", index) for index in range(40)])
    slow(monkeypatch)
    rig.end("t", producer)
    counts = [len(rig.sink.written)]
    while rig.clock.one_turn():
        counts.append(len(rig.sink.written))
    assert counts[0] <= 10
    assert all(later - earlier <= 10 for earlier, later in itertools.pairwise(counts))
    assert where(rig) == [("wide", index) for index in range(40)]
    assert rig.state().status is S.COMPLETE_COMMIT


def test_the_budget_is_shared_by_all_transactions_of_a_turn(rig, monkeypatch):
    names = [f"t{number}" for number in range(15)]
    producers = {name: rig.producer(name) for name in names}
    for name in names:
        rig.add(name, producers[name], FOO)
    slow(monkeypatch)

    def all_at_once():
        for name in names:
            coroutine = rig.coordinator.end(name, *producers[name], True, v2=False)
            rig.turns.later(lambda coroutine=coroutine: rig.turns.start(coroutine, lambda _: None, rig.bugs.append))

    rig.turns.event(all_at_once)
    assert 0 < len(rig.sink.written) < 10
    rig.clock.settle()
    assert len(rig.sink.written) == len(names)
    assert {rig.state(name).status for name in names} == {S.COMPLETE_COMMIT}


def test_requests_that_follow_one_another_in_a_turn_share_its_budget(rig, monkeypatch):
    names = [f"t{number}" for number in range(30)]
    producers = {name: rig.producer(name) for name in names}
    for name in names:
        rig.add(name, producers[name], FOO)
    slow(monkeypatch)
    waiting = iter(names)

    def next_request(_=None):
        # The markers of the request before are written by now: each has its own look at the budget.
        name = next(waiting, None)
        if name is not None:
            coroutine = rig.coordinator.end(name, *producers[name], True, v2=False)
            rig.turns.start(coroutine, lambda _: rig.turns.later(next_request), rig.bugs.append)

    rig.turns.event(next_request)
    assert 0 < len(rig.sink.written) < 10
    rig.clock.settle()
    assert len(rig.sink.written) == 30


def test_a_wide_transaction_does_not_hold_up_a_small_one(rig, monkeypatch):
    rig.cluster.topics["wide"] = rig.cluster.topics["foo"].__class__(partition_count=400)
    wide, small = rig.producer("wide"), rig.producer("small")
    rig.add("wide", wide, *[("wide", index) for index in range(400)])
    rig.add("small", small, BAR)
    slow(monkeypatch)
    rig.end("wide", wide)
    rig.end("small", small)
    for _ in range(3):
        rig.clock.one_turn()
    assert rig.state("small").status is S.COMPLETE_COMMIT
    assert rig.state("wide").status is S.PREPARE_COMMIT
    rig.clock.settle()
    assert rig.state("wide").status is S.COMPLETE_COMMIT


def test_complete_is_logged_after_all_markers_are_durable(rig):
    rig.sink.flushing = True
    end_transaction(rig, FOO, BAR)
    assert where(rig) == [FOO, BAR]
    assert rig.state().status is S.PREPARE_COMMIT
    rig.sink.undurable.pop(FOO)(E.NONE)
    rig.clock.settle()
    assert rig.state().status is S.PREPARE_COMMIT
    rig.sink.undurable.pop(BAR)(E.NONE)
    rig.clock.settle()
    assert rig.state().status is S.COMPLETE_COMMIT


def test_a_marker_whose_flush_failed_is_written_again(rig):
    rig.sink.flushing = True
    end_transaction(rig, FOO, BAR)
    rig.sink.undurable.pop(BAR)(E.NONE)
    rig.sink.undurable.pop(FOO)(E.KAFKA_STORAGE_ERROR)
    rig.clock.advance(19)
    assert where(rig) == [FOO, BAR]
    rig.clock.advance(1)
    assert where(rig) == [FOO, BAR, FOO]
    rig.sink.undurable.pop(FOO)(E.NONE)
    rig.clock.settle()
    assert rig.state().status is S.COMPLETE_COMMIT


def test_markers_durable_at_once_are_written_once_and_complete(rig, monkeypatch):
    rig.sink.flushing = True
    monkeypatch.setattr(rig.sink, "when_durable", lambda topic, index, callback: callback(E.NONE))
    end_transaction(rig, FOO, BAR)
    rig.clock.settle()
    assert rig.state().status is S.COMPLETE_COMMIT
    assert where(rig) == [FOO, BAR]


def send(rig, *later):
    """End a transaction whose partition `foo` another broker leads; return its answer to come."""
    answer = MarkerAnswer(*FOO, None)
    rig.sink.answers = {FOO: [answer, *later]}
    end_transaction(rig, FOO, BAR)
    rig.clock.advance(60_000)
    assert where(rig) == [BAR] and rig.coordinator.describe("t").partitions == (FOO,)
    return answer


def give(rig, answer, error):
    rig.turns.event(lambda: answer.give(error))


@pytest.mark.parametrize("error", [E.NONE, *DROPPED], ids=lambda error: error.name)
def test_the_last_answer_of_another_broker_ends_the_transaction(rig, caplog, error):
    give(rig, send(rig), error)
    assert rig.state().status is S.COMPLETE_COMMIT and where(rig) == [BAR]
    assert ("will never accept" in caplog.text) is (error in DROPPED)


def test_a_marker_that_another_broker_does_not_write_is_sent_again_after_the_back_off(rig):
    give(rig, send(rig), E.REQUEST_TIMED_OUT)
    assert where(rig) == [BAR]
    rig.clock.advance(20)
    assert where(rig) == [BAR, FOO] and rig.state().status is S.COMPLETE_COMMIT


def test_an_unexpected_answer_of_another_broker_is_logged_once(rig, caplog):
    answers = [MarkerAnswer(*FOO, None) for _ in range(2)]
    give(rig, send(rig, *answers), E.CORRUPT_MESSAGE)
    for answer in answers:
        rig.clock.advance(1_000)
        give(rig, answer, E.CORRUPT_MESSAGE)
    rig.clock.advance(1_000)
    assert rig.state().status is S.COMPLETE_COMMIT and caplog.text.count("CORRUPT_MESSAGE is unexpected") == 1


def test_an_answer_to_a_resigned_coordinator_changes_nothing(rig):
    answer = send(rig)
    (shard,) = [each for each in rig.coordinator.shards() if each.states]
    shard.resigned = True
    give(rig, answer, E.INVALID_PRODUCER_EPOCH)
    rig.clock.advance(60_000)
    assert rig.state().status is S.PREPARE_COMMIT and shard.transient["t"].awaiting == {FOO: None}
