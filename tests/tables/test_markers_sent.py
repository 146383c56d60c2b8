"""Marker fan-out: the tables FAN and MARK, on the coordinator with partition leaders in memory."""

import logging

from ottla.broker.txn.markers import _NEXT
from ottla.broker.txn.states import TransactionStatus as S
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.values import TransactionMarker
from tests.tables.rows import BUSY, PID, row, rows

FOO, BAR = ("foo", 1), ("bar", 0)
UNAVAILABLE = E.NOT_LEADER_OR_FOLLOWER


def end_transaction(rig, *partitions, commit=True, v2=False):
    producer = rig.producer()
    if partitions:
        rig.add("t", producer, *partitions)
    assert rig.end("t", producer, commit, v2=v2).error is E.NONE
    return producer


def places(rig):
    return [(topic, index) for topic, index, _ in rig.sink.written]


def count_batches(rig):
    return len(rig.log_of("t").batches)


@row("FAN-1 commit", "FAN-1 abort", "FAN-7 commit", "FAN-7 abort")
def test_each_partition_gets_its_marker_and_then_complete_is_logged(row, rig):
    commit = "commit" in row
    rig.sink.answers[BAR] = [UNAVAILABLE]
    end_transaction(rig, FOO, BAR, commit=commit)
    assert places(rig) == [FOO]
    assert (rig.state().status, count_batches(rig)) == (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT, 3)
    rig.clock.advance(20)
    assert places(rig) == [FOO, BAR]
    assert (rig.state().status, count_batches(rig)) == (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT, 4)
    rig.clock.advance(5_000)
    assert (places(rig), count_batches(rig)) == ([FOO, BAR], 4)


@row("FAN-2 commit", "FAN-2 abort")
def test_a_loaded_prepare_record_sends_all_markers_again(row, rig):
    commit = "commit" in row
    rig.sink.answers[BAR] = [UNAVAILABLE] * 99
    end_transaction(rig, FOO, BAR, commit=commit)
    assert places(rig) == [FOO]
    rig.sink.answers.clear()
    rig.log_of("t").leader_epoch = 8
    rig.restart()
    marker = TransactionMarker(PID, 0, 8, commit, 0)
    assert rig.sink.written[1:] == [(*FOO, marker), (*BAR, marker)]
    assert rig.state()[:3] == (PID, 0, S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)


@row("FAN-3 V1 commit", "FAN-3 V1 abort", "FAN-3 V2 commit", "FAN-3 V2 abort")
def test_a_marker_has_the_epochs_outcome_and_version(row, rig):
    rig.cluster.level = 2
    v2, commit = "V2" in row, "commit" in row
    end_transaction(rig, FOO, commit=commit, v2=v2)
    expected = TransactionMarker(PID, 1 if v2 else 0, rig.log_of("t").leader_epoch, commit, 2 if v2 else 0)
    assert rig.sink.written == [(*FOO, expected)]


@row("FAN-4 no such topic", "FAN-4 no such partition", "FAN-4 deleted while its marker is retried")
def test_a_deleted_or_unknown_partition_receives_no_marker(row, rig):
    if "deleted" in row:
        rig.sink.answers[FOO] = [E.KAFKA_STORAGE_ERROR] * 99
        end_transaction(rig, FOO, BAR)
        rig.clock.advance(100)
        assert rig.state().status is S.PREPARE_COMMIT
        del rig.cluster.topics["foo"]
        rig.clock.advance(1000)
    else:
        end_transaction(rig, ("nowhere", 0) if "topic" in row else ("foo", 4), BAR)
    assert places(rig) == [BAR]
    assert rig.state().status is S.COMPLETE_COMMIT


@row("FAN-8 NOT_ENOUGH_REPLICAS", "FAN-8 REQUEST_TIMED_OUT", "FAN-8 UNKNOWN_TOPIC_OR_PARTITION")
def test_complete_is_logged_again_when_its_log_was_not_available(row, rig):
    rig.sink.answers[FOO] = [UNAVAILABLE]
    producer = end_transaction(rig, FOO)
    rig.log_of("t").refuse = E[row.split()[1]]
    rig.clock.advance(20)
    assert (places(rig), rig.state().status) == ([FOO], S.PREPARE_COMMIT)
    assert rig.end("t", producer).error is BUSY
    rig.log_of("t").refuse = E.NONE
    rig.clock.advance(100)
    assert (places(rig), rig.state().status) == ([FOO], S.COMPLETE_COMMIT)


@row("FAN-9 NOT_LEADER_OR_FOLLOWER", "FAN-9 KAFKA_STORAGE_ERROR", "FAN-9 COORDINATOR_LOAD_IN_PROGRESS")
def test_complete_is_logged_again_while_its_log_is_online(row, rig):
    rig.sink.answers[FOO] = [UNAVAILABLE]
    end_transaction(rig, FOO)
    before = count_batches(rig)
    rig.log_of("t").refuse = E[row.split()[1]]
    rig.clock.advance(20)
    assert (places(rig), rig.state().status, count_batches(rig)) == ([FOO], S.PREPARE_COMMIT, before)
    rig.log_of("t").refuse = E.NONE
    rig.clock.advance(1_000)
    assert (places(rig), rig.state().status, count_batches(rig)) == ([FOO], S.COMPLETE_COMMIT, before + 1)


@row("FAN-9 offline")
def test_complete_is_left_to_the_next_start_when_its_log_is_offline(row, rig, caplog):
    rig.sink.answers[FOO] = [UNAVAILABLE]
    end_transaction(rig, FOO)
    rig.log_of("t").refuse, rig.log_of("t").offline = E.KAFKA_STORAGE_ERROR, "storage failed"
    rig.clock.advance(5_000)
    assert (places(rig), rig.state().status) == ([FOO], S.PREPARE_COMMIT)
    assert "KAFKA_STORAGE_ERROR" in caplog.text
    assert rig.clock.armed == 2  # the two housekeeping timers
    rig.log_of("t").offline = None
    rig.restart()
    assert rig.state().status is S.COMPLETE_COMMIT


@row("FAN-10 empty abort", "FAN-10 loaded")
def test_no_partitions_no_markers(row, rig):
    rig.cluster.level = 2
    if "loaded" in row:
        producer = rig.producer()
        rig.log_of("t").hold = True
        rig.begin(rig.coordinator.end("t", *producer, False, v2=True))
        rig.log_of("t").high_watermark = rig.log_of("t").log_end_offset  # Prepare survives, Complete is not logged
        rig.restart()
    else:
        end_transaction(rig, commit=False, v2=True)
    assert rig.sink.written == []
    assert rig.state()[:3] == (PID, 1, S.COMPLETE_ABORT)
    assert count_batches(rig) == 3


RETRIED = (
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.NOT_LEADER_OR_FOLLOWER,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT,
    E.KAFKA_STORAGE_ERROR,
)
DONE = (E.NONE, E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION)
REFUSED = (E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED)
BUGS = (E.CORRUPT_MESSAGE, E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE, E.INVALID_REQUIRED_ACKS, E.INVALID_TXN_STATE)


def test_every_other_answer_is_an_error():
    assert set(_NEXT) == {*RETRIED, *DONE, *REFUSED}
    assert _NEXT.keys().isdisjoint(BUGS)


@rows([(f"MARK-{4 if error else 1} {error.name}", error) for error in DONE])
def test_the_partition_is_done(case, rig):
    _, error = case
    rig.sink.answers[FOO] = [error]
    end_transaction(rig, FOO, BAR)
    assert places(rig) == ([BAR] if error else [FOO, BAR])
    assert rig.state().status is S.COMPLETE_COMMIT
    rig.clock.advance(5_000)
    assert rig.sink.answers[FOO] == [] and len(places(rig)) == (1 if error else 2)


@rows([(f"MARK-2 {error.name}", error) for error in RETRIED])
def test_a_marker_is_retried_with_backoff_after_a_retriable_error(case, rig):
    rig.sink.answers[FOO] = [case[1]] * 3
    end_transaction(rig, FOO, BAR)
    assert places(rig) == [BAR]
    rig.clock.advance(20 + 40 + 79)
    assert (places(rig), rig.state().status) == ([BAR], S.PREPARE_COMMIT)
    rig.clock.advance(1)
    assert (places(rig), rig.state().status) == ([BAR, FOO], S.COMPLETE_COMMIT)


@rows([(f"MARK-3 {error.name}", error) for error in REFUSED])
def test_a_partition_that_refuses_is_dropped_and_the_transaction_ends(case, rig, caplog):
    _, error = case
    rig.sink.answers[FOO] = [error]
    producer = end_transaction(rig, FOO, BAR)
    rig.clock.advance(5_000)
    assert (places(rig), rig.state().status) == ([BAR], S.COMPLETE_COMMIT)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    facts = ("foo-1", "commit marker of t ", f"producer id {PID}", "epoch 0,", "coordinator epoch 3", error.name)
    assert [fact for fact in (*facts, "`ottla txn orphans`") if fact not in record.getMessage()] == []
    assert rig.add("t", producer, FOO) is E.NONE


@rows([(f"MARK-5 {error.name}", error) for error in BUGS])
def test_an_unexpected_marker_error_is_logged_and_retried(case, rig, caplog):
    _, error = case
    rig.sink.answers[FOO] = [error] * 2
    end_transaction(rig, FOO, BAR)
    rig.clock.advance(59)
    assert (places(rig), rig.state().status) == ([BAR], S.PREPARE_COMMIT)
    told = [(record.levelno, error.name in record.getMessage()) for record in caplog.records]
    assert told == [(logging.ERROR, True)]
    rig.clock.advance(1)
    assert (places(rig), rig.state().status) == ([BAR, FOO], S.COMPLETE_COMMIT)
