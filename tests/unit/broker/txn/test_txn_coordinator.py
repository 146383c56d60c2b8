"""The coordinator: decide, log, apply, markers, for one id at a time."""

import pytest

from ottla.broker.txn.log import read_changes
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NO_PARTITIONS
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.records import iter_records
from ottla.protocol.values import TransactionMarker

FOO, BAR = ("foo", 1), ("bar", 0)


def changes(rig, name="t"):
    return [
        change.state
        for header, batch in rig.log_of(name).batches
        for change in read_changes(header, batch, "test")
        if change.transactional_id == name
    ]


def statuses(rig, name="t"):
    return [state.status if state else None for state in changes(rig, name)]


def test_a_transaction_from_init_to_complete(rig):
    producer = rig.producer("t")
    assert producer == (4000, 0)
    assert rig.add("t", producer, FOO) is E.NONE
    assert rig.add("t", producer, FOO, BAR) is E.NONE
    assert rig.end("t", producer).error is E.NONE
    assert statuses(rig) == [S.EMPTY, S.ONGOING, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT]
    marker = TransactionMarker(4000, 0, coordinator_epoch=3, commit=True, transaction_version=0)
    assert rig.sink.written == [("foo", 1, marker), ("bar", 0, marker)]
    assert rig.state().partitions == {}
    assert rig.shard_of().transient == {}


def test_complete_is_logged_in_the_turn_of_end_txn(rig):
    producer = rig.producer()
    rig.add("t", producer, FOO)
    rig.end("t", producer)
    assert rig.state().status is S.COMPLETE_COMMIT
    assert rig.add("t", producer, BAR) is E.NONE


def test_markers_follow_the_reply(rig):
    producer = rig.producer()
    rig.add("t", producer, FOO)
    seen = []
    coroutine = rig.coordinator.end("t", *producer, True, v2=False)
    rig.turns.event(
        lambda: rig.turns.start(coroutine, lambda answer: seen.append(list(rig.sink.written)), rig.bugs.append)
    )
    assert seen == [[]]
    assert len(rig.sink.written) == 1


def test_the_answer_waits_until_the_record_is_durable(rig):
    producer = rig.producer()
    rig.add("t", producer, FOO)
    rig.log_of("t").hold = True
    answer = rig.begin(rig.coordinator.end("t", *producer, True, v2=False))
    assert answer == []
    assert rig.state().status is S.ONGOING
    assert rig.sink.written == []
    assert rig.add("t", producer, BAR) is E.CONCURRENT_TRANSACTIONS
    assert rig.init().error is E.CONCURRENT_TRANSACTIONS
    assert rig.end("t", producer).error is E.CONCURRENT_TRANSACTIONS
    assert rig.coordinator.verify("t", *producer, [FOO]) == [E.NONE]
    rig.turns.event(rig.log_of("t").release)
    assert [each.error for each in answer] == [E.NONE]
    assert rig.state().status is S.COMPLETE_COMMIT


def test_an_id_being_created_is_busy_and_unknown_to_verification(rig):
    rig.log_of("t").hold = True
    answer = rig.begin(rig.coordinator.init_producer_id("t", 60_000))
    assert rig.init().error is E.CONCURRENT_TRANSACTIONS
    assert rig.add("t", (4000, 0), FOO) is E.CONCURRENT_TRANSACTIONS
    assert rig.coordinator.verify("t", 4000, 0, [FOO]) == [E.INVALID_PRODUCER_ID_MAPPING]
    rig.turns.event(rig.log_of("t").release)
    assert (answer[0].producer_id, answer[0].producer_epoch) == (4000, 0)


@pytest.mark.parametrize(
    ("logged", "answered"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE),
    ],
    ids=lambda error: error.name,
)
def test_a_failed_append_changes_nothing_and_has_its_error(rig, logged, answered):
    producer = rig.producer()
    rig.add("t", producer, FOO)
    before = rig.state()
    rig.log_of("t").refuse = logged
    assert rig.end("t", producer).error is answered
    assert rig.add("t", producer, BAR) is answered
    assert rig.state() is before
    rig.log_of("t").refuse = E.NONE
    assert rig.end("t", producer).error is E.NONE


def test_a_new_instance_aborts_the_open_transaction_and_fences_the_old_one(rig):
    old = rig.producer()
    rig.add("t", old, FOO)
    assert rig.init().error is E.CONCURRENT_TRANSACTIONS
    assert [marker[2].commit for marker in rig.sink.written] == [False]
    assert rig.sink.written[0][2].producer_epoch == 1
    new = rig.producer()
    assert new == (4000, 2)
    assert rig.add("t", old, FOO) is E.PRODUCER_FENCED
    assert rig.end("t", old).error is E.PRODUCER_FENCED
    assert rig.coordinator.verify("t", *old, [FOO]) == [E.PRODUCER_FENCED]
    assert rig.add("t", new, FOO) is E.NONE


def test_a_fence_that_could_not_be_logged_still_fences(rig):
    old = rig.producer()
    rig.add("t", old, FOO)
    rig.log_of("t").refuse = E.NOT_ENOUGH_REPLICAS
    assert rig.init().error is E.COORDINATOR_NOT_AVAILABLE
    rig.log_of("t").refuse = E.NONE
    assert rig.end("t", old).error is E.PRODUCER_FENCED
    assert rig.init().error is E.CONCURRENT_TRANSACTIONS
    assert rig.state()[:3] == (4000, 1, S.COMPLETE_ABORT)
    assert rig.shard_of().transient == {}


def test_resume_by_producer_id_and_epoch_and_its_repetition(rig):
    first = rig.producer()
    second = rig.init(expected=first)
    assert (second.error, second.producer_epoch) == (E.NONE, 1)
    again = rig.init(expected=first)
    assert (again.error, again.producer_epoch) == (E.NONE, 1)
    rig.restart()
    assert rig.init(expected=first).error is E.PRODUCER_FENCED


def test_idempotent_producers_get_fresh_ids_and_leave_no_record(rig):
    answers = [rig.init(None, timeout_ms=0, expected=(7, 7)) for _ in range(2)]
    assert [(a.error, a.producer_id, a.producer_epoch) for a in answers] == [(E.NONE, 4000, 0), (E.NONE, 4001, 0)]
    assert all(not each.batches for each in rig.cluster.logs)


@pytest.mark.parametrize(
    ("name", "timeout_ms", "expected", "error"),
    [
        ("t", 60_000, (7, -1), E.INVALID_REQUEST),
        ("t", 60_000, (-1, 7), E.INVALID_REQUEST),
        (None, 60_000, (-1, 7), E.INVALID_REQUEST),
        ("", 60_000, (-1, -1), E.INVALID_REQUEST),
        ("t", 0, (-1, -1), E.INVALID_TRANSACTION_TIMEOUT),
        ("t", -5, (-1, -1), E.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_001, (-1, -1), E.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_000, (-1, -1), E.NONE),
        ("t", 1, (-1, -1), E.NONE),
    ],
)
def test_init_producer_id_checks_its_request_first(rig, name, timeout_ms, expected, error):
    answer = rig.init(name, timeout_ms, expected)
    assert answer.error is error
    if error:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_no_producer_id_means_try_again(rig):
    rig.cluster.no_ids = True
    assert rig.init(None).error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.init("t").error is E.COORDINATOR_LOAD_IN_PROGRESS
    rig.cluster.no_ids = False
    assert rig.init("t").error is E.NONE


def test_the_empty_id_is_refused_everywhere(rig):
    assert rig.add("", (1, 1), FOO) is E.INVALID_REQUEST
    assert rig.end("", (1, 1)).error is E.INVALID_REQUEST
    assert rig.coordinator.verify("", 1, 1, [FOO, BAR]) == [E.INVALID_REQUEST] * 2
    assert rig.coordinator.describe("").error is E.INVALID_REQUEST


def test_unknown_ids(rig):
    assert rig.add("nobody", (1, 1), FOO) is E.INVALID_PRODUCER_ID_MAPPING
    assert rig.end("nobody", (1, 1)).error is E.INVALID_PRODUCER_ID_MAPPING
    assert rig.coordinator.verify("nobody", 1, 1, [FOO]) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert rig.coordinator.describe("nobody").error is E.TRANSACTIONAL_ID_NOT_FOUND


def test_without_the_topic_there_is_no_coordinator_and_then_there_is(rig):
    topic = rig.cluster.topics.pop("__transaction_state")
    rig.restart()
    assert rig.init().error is E.NOT_COORDINATOR
    rig.cluster.topics["__transaction_state"] = topic
    assert rig.init().error is E.NONE


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_the_value_version_follows_the_feature_level(make_rig, level, version):
    rig = make_rig(level).start()
    rig.producer()
    (header, batch), *_ = rig.log_of("t").batches
    (record,) = iter_records(batch, header)
    assert record.value[:2] == bytes((0, version))
    assert (header.compression, header.record_count, header.is_transactional) == (0, 1, False)


def test_version_2_moves_the_epoch_with_each_transaction(make_rig):
    rig = make_rig(2).start()
    producer = rig.producer()
    for number in range(3):
        assert rig.add("t", producer, FOO) is E.NONE
        answer = rig.end("t", producer, v2=True)
        assert (answer.error, answer.producer_epoch) == (E.NONE, number + 1)
        again = rig.end("t", producer, v2=True)
        assert (again.error, again.producer_epoch) == (E.NONE, number + 1)
        producer = (answer.producer_id, answer.producer_epoch)
    assert [written[2].producer_epoch for written in rig.sink.written] == [1, 2, 3]
    assert {written[2].transaction_version for written in rig.sink.written} == {2}


def test_version_2_changes_the_producer_id_when_its_epochs_are_used_up(make_rig):
    rig = make_rig(2).start()
    rig.producer()
    shard = rig.shard_of()
    shard.states["t"] = shard.states["t"]._replace(producer_epoch=32766)
    rig.add("t", (4000, 32766), FOO)
    answer = rig.end("t", (4000, 32766), v2=True)
    assert (answer.producer_id, answer.producer_epoch) == (4001, 0)
    assert rig.sink.written[0][2][:2] == (4000, 32767)
    assert rig.state()[:3] == (4001, 0, S.COMPLETE_COMMIT)
    assert rig.end("t", (4000, 32766), v2=True).error is E.NONE
    assert rig.add("t", (4001, 0), FOO) is E.NONE


def test_version_2_empty_abort_sends_no_marker_and_moves_the_epoch(make_rig):
    rig = make_rig(2).start()
    producer = rig.producer()
    answer = rig.end("t", producer, commit=False, v2=True)
    assert (answer.error, answer.producer_epoch) == (E.NONE, 1)
    assert rig.sink.written == []
    assert statuses(rig) == [S.EMPTY, S.PREPARE_ABORT, S.COMPLETE_ABORT]


def test_describe_lists_what_still_waits_for_a_marker(rig):
    producer = rig.producer()
    rig.add("t", producer, FOO, BAR)
    assert rig.coordinator.describe("t").partitions == (FOO, BAR)
    rig.sink.answers[BAR] = [E.NOT_LEADER_OR_FOLLOWER]
    rig.end("t", producer)
    assert rig.coordinator.describe("t").state.status is S.PREPARE_COMMIT
    assert rig.coordinator.describe("t").partitions == (BAR,)


def test_the_shared_empty_set_stays_empty(rig):
    for name in "abc":
        producer = rig.producer(name)
        rig.add(name, producer, FOO)
        rig.end(name, producer)
    assert NO_PARTITIONS == {}


def test_a_log_that_is_offline_has_no_coordinator(rig):
    producer = rig.producer()
    rig.log_of("t").offline = "bad batch at position 4711"
    assert rig.add("t", producer, FOO) is E.NOT_COORDINATOR
    rig.restart()
    assert rig.init().error is E.NOT_COORDINATOR
    rig.log_of("t").offline = None
    assert rig.add("t", producer, FOO) is E.NONE
