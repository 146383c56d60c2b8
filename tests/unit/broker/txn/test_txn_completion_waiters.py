"""Requests during the marker phase of their id: they wait for Complete for 50 ms at most, or do not wait."""

import pytest

from ottla.broker.config import Config
from ottla.broker.txn.states import TransactionStatus as S
from ottla.protocol.errors import ErrorCode as E

FOO, BAR = ("foo", 1), ("bar", 0)
BUSY, FENCED = E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED
HOUSEKEEPING_TIMERS = 2


@pytest.fixture(params=[1, 2], ids=["level 1", "level 2"])
def level(request):
    return request.param


@pytest.fixture
def rig(make_rig, level):
    return make_rig(level, waits=True).start()


def commit_slowly(rig, *, name="t", retries=1):
    """Commit a transaction whose marker takes 20, 60 or 140 ms. Return the producer for the next one."""
    producer = rig.producer(name)
    rig.add(name, producer, FOO)
    rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER] * retries
    answer = rig.end(name, producer, v2=rig.cluster.level == 2)
    assert answer.error is E.NONE
    assert rig.state(name).status is S.PREPARE_COMMIT
    return (answer.producer_id, answer.producer_epoch) if rig.cluster.level == 2 else producer


def open_transaction(rig):
    """Open a transaction and return its producer."""
    producer = rig.producer()
    rig.add("t", producer, FOO)
    return producer


def start(rig, coroutine):
    """Start a request that suspends. Return its activity and the list that gets its answer."""
    answers, activities = [], []
    rig.turns.event(lambda: activities.append(rig.turns.start(coroutine, answers.append, rig.bugs.append)))
    return activities[0], answers


def add(rig, producer, *partitions, name="t", **more):
    return rig.coordinator.add_partitions(name, *producer, partitions, **more)


def init(rig, expected=(-1, -1), name="t"):
    return rig.coordinator.init_producer_id(name, 60_000, *expected)


def is_calm(rig, name="t"):
    """Return whether no wait is left."""
    assert rig.shard_of(name).waiting == {}
    assert rig.clock.armed == HOUSEKEEPING_TIMERS
    return True


# ---- what waits, and for how long


def test_a_delayed_transaction_starts_when_its_request_is_decided(rig):
    producer = commit_slowly(rig)
    asked_ms = rig.clock.now_ms()
    rig.begin(add(rig, producer, BAR))
    rig.clock.advance(20)
    assert (rig.state().start_ms, rig.state().last_update_ms) == (asked_ms + 20, asked_ms + 20)


def test_ending_does_not_wait(rig, level):
    producer_id, epoch = commit_slowly(rig)
    v2 = level == 2
    assert rig.end("t", (producer_id, epoch - v2), v2=v2).error is BUSY


def test_add_partitions_without_waiting_is_concurrent_at_once(rig):
    producer = commit_slowly(rig)
    assert rig.ask(add(rig, producer, FOO, waits=False)) is BUSY


@pytest.mark.parametrize("asked", ["add", "init"])
def test_requests_are_concurrent_at_once_while_an_addition_is_logged(rig, asked):
    """Requests wait only for the marker phase. Here AddPartitionsToTxn is being logged."""
    producer = rig.producer()
    rig.log_of("t").hold = True
    first = rig.begin(add(rig, producer, FOO))
    answer = rig.ask(add(rig, producer, BAR) if asked == "add" else init(rig))
    assert getattr(answer, "error", answer) is BUSY
    rig.turns.event(rig.log_of("t").release)
    assert first == [E.NONE]


def test_the_record_of_the_outcome_is_waited_for_too(rig, level):
    producer = open_transaction(rig)
    rig.log_of("t").hold = True
    ended = rig.begin(rig.coordinator.end("t", *producer, True, v2=level == 2))
    answers = rig.begin(init(rig))
    rig.clock.advance(30)
    assert (ended, answers) == ([], [])
    rig.turns.event(rig.log_of("t").release)
    assert [each.error for each in (*ended, *answers)] == [E.NONE, E.NONE]
    assert is_calm(rig)


def test_a_fenced_producer_is_refused_after_the_markers_are_written(rig):
    producer_id, epoch = commit_slowly(rig)
    answers = rig.begin(add(rig, (producer_id, epoch - 1), FOO))
    rig.clock.advance(20)
    assert answers == [FENCED]


def test_an_id_does_not_wait_for_another(rig):
    other = rig.producer("other")
    commit_slowly(rig)
    assert rig.ask(add(rig, other, BAR, name="other")) is E.NONE


# ---- order


def test_requests_are_decided_in_the_order_in_which_they_came(rig):
    producer_id, epoch = commit_slowly(rig)
    told = []
    for number, coroutine in enumerate((init(rig), add(rig, (producer_id, epoch), FOO), init(rig))):
        rig.turns.event(
            lambda coroutine=coroutine, number=number: rig.turns.start(
                coroutine, lambda answer: told.append((number, answer)), rig.bugs.append
            )
        )
    rig.clock.advance(20)
    assert [number for number, _ in told] == [0, 1, 2]
    first, second, third = (answer for _, answer in told)
    assert (first.error, first.producer_epoch) == (E.NONE, epoch + 1)
    assert second is FENCED
    assert (third.error, third.producer_epoch) == (E.NONE, epoch + 2)
    assert is_calm(rig)


def test_a_waiting_init_aborts_the_transaction_of_the_add_before_it(rig, level):
    """AddPartitionsToTxn opens a transaction. The InitProducerId after it aborts that transaction, and waits again."""
    producer_id, epoch = commit_slowly(rig)
    first = rig.begin(add(rig, (producer_id, epoch), FOO))
    second = rig.begin(init(rig))
    third = rig.begin(add(rig, (producer_id, epoch), BAR))
    rig.clock.advance(20)
    assert (first, third) == ([E.NONE], [FENCED])
    assert [(each.error, each.producer_epoch) for each in second] == [(E.NONE, epoch + 2)]
    assert rig.state().status is S.EMPTY
    assert is_calm(rig)


def test_the_time_counts_from_the_first_wait(rig):
    """A second marker phase does not restart the timeout."""
    producer = commit_slowly(rig)
    rig.begin(add(rig, producer, BAR))
    answers = rig.begin(init(rig))
    rig.clock.advance(19)
    rig.sink.answers[BAR] = [E.NOT_LEADER_OR_FOLLOWER] * 9
    rig.clock.advance(30)
    assert rig.state().status is S.PREPARE_ABORT
    assert answers == []
    rig.clock.advance(1)
    assert [each.error for each in answers] == [BUSY]


def test_a_second_waiting_add_is_concurrent_while_the_first_is_logged(rig):
    producer = commit_slowly(rig)
    first, second = rig.begin(add(rig, producer, FOO)), rig.begin(add(rig, producer, BAR))
    rig.clock.advance(19)
    held = rig.log_of("t")
    held.hold = True
    rig.clock.advance(1)
    assert (first, second) == ([], [])  # Complete itself is not durable yet

    def complete_is_durable():
        held.release()
        held.hold = True

    rig.turns.event(complete_is_durable)
    assert (first, second) == ([], [BUSY])
    rig.turns.event(held.release)
    assert first == [E.NONE]


# ---- InitProducerId that aborts


def test_a_new_instance_waits_for_the_end_of_what_it_aborts(rig):
    producer_id, epoch = open_transaction(rig)
    answer = rig.ask(init(rig))  # its markers are written in the same turn
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (E.NONE, producer_id, epoch + 2)
    assert [marker.commit for _, _, marker in rig.sink.written] == [False]
    assert rig.ask(add(rig, (producer_id, epoch), FOO)) is FENCED
    assert is_calm(rig)


def test_the_second_of_two_waiting_inits_fences_the_first(rig):
    producer_id, epoch = open_transaction(rig)
    rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER]
    first, second = rig.begin(init(rig)), rig.begin(init(rig))
    rig.clock.advance(20)
    assert [(a.error, a.producer_epoch) for a in (*first, *second)] == [(E.NONE, epoch + 2), (E.NONE, epoch + 3)]
    assert rig.ask(add(rig, (producer_id, epoch + 2), FOO)) is FENCED
    assert rig.ask(add(rig, (producer_id, epoch + 3), FOO)) is E.NONE


def test_a_resuming_producer_gets_what_its_second_attempt_would_get(rig, level):
    """KIP-360: the fence of level 1 does not store the previous epoch, that of level 2 does."""
    producer_id, epoch = open_transaction(rig)
    answer = rig.ask(init(rig, expected=(producer_id, epoch)))
    if level == 1:
        assert (answer.error, answer.producer_epoch) == (FENCED, -1)
    else:
        assert (answer.error, answer.producer_epoch) == (E.NONE, epoch + 1)
    assert rig.state().status is (S.COMPLETE_ABORT if level == 1 else S.EMPTY)


def test_an_init_returns_concurrent_while_its_slow_abort_continues(rig):
    _, epoch = open_transaction(rig)
    rig.sink.answers[FOO] = [E.KAFKA_STORAGE_ERROR] * 4
    answers = rig.begin(init(rig))
    rig.clock.advance(50)
    assert [each.error for each in answers] == [BUSY]
    rig.clock.advance(1000)
    assert rig.state().status is S.COMPLETE_ABORT
    assert rig.init().producer_epoch == epoch + 2


def test_an_abort_whose_record_is_durable_late(rig):
    """The markers are written before the request continues, so it has nothing to wait for."""
    _, epoch = open_transaction(rig)
    rig.log_of("t").hold = True
    answers = rig.begin(init(rig))
    rig.clock.advance(200)
    assert answers == []
    rig.turns.event(rig.log_of("t").release)
    assert [(each.error, each.producer_epoch) for each in answers] == [(E.NONE, epoch + 2)]


def test_an_init_whose_abort_cannot_be_logged_fails_at_once(rig, level):
    producer = open_transaction(rig)
    rig.log_of("t").refuse = E.NOT_ENOUGH_REPLICAS
    assert rig.ask(init(rig)).error is E.COORDINATOR_NOT_AVAILABLE
    rig.log_of("t").refuse = E.NONE
    # The failed fence of level 1 stays: the old producer cannot continue, and its epoch is not bumped twice.
    assert rig.ask(add(rig, producer, BAR)) is (FENCED if level == 1 else E.NONE)
    assert rig.ask(init(rig)).producer_epoch == producer[1] + 2


def test_an_exhausted_producer_gets_its_new_id_at_once(rig, level):
    producer = open_transaction(rig)
    shard = rig.shard_of()
    shard.states["t"] = shard.states["t"]._replace(producer_epoch=32_766)
    answer = rig.ask(init(rig))
    assert answer.error is E.NONE
    assert answer.producer_id > producer[0]
    assert answer.producer_epoch == (0 if level == 1 else 1)


# ---- the clients have gone


def test_a_request_whose_connection_closes_is_never_decided(rig):
    producer = commit_slowly(rig)
    activity, answers = start(rig, add(rig, producer, BAR))
    activity.discard()
    assert rig.shard_of().waiting == {}
    rig.clock.advance(1000)
    assert answers == []
    assert rig.state().status is S.COMPLETE_COMMIT
    assert is_calm(rig)


def test_one_of_several_leaves_the_others_waiting(rig):
    producer = commit_slowly(rig)
    zombie, unanswered = start(rig, add(rig, producer, FOO))
    answers = rig.begin(init(rig))
    zombie.discard()
    rig.clock.advance(20)
    assert (unanswered, [each.error for each in answers]) == ([], [E.NONE])
    assert is_calm(rig)


def test_a_connection_that_closes_after_complete_and_before_the_decision(rig):
    """Complete is applied and the connection is lost in one turn: nothing is decided for it."""
    producer = commit_slowly(rig)
    activity, answers = start(rig, add(rig, producer, BAR))
    rig.log_of("t").hold = True
    rig.clock.advance(20)

    def both():
        rig.log_of("t").release()
        assert rig.state().status is S.COMPLETE_COMMIT
        activity.discard()

    rig.turns.event(both)
    assert answers == []
    assert rig.state().status is S.COMPLETE_COMMIT
    assert is_calm(rig)


def test_a_new_instance_that_hangs_up_has_aborted_and_nothing_more(rig):
    _, epoch = open_transaction(rig)
    rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER]
    activity, answers = start(rig, init(rig))
    activity.discard()
    rig.clock.advance(1000)
    assert answers == []
    assert (rig.state().status, rig.state().producer_epoch) == (S.COMPLETE_ABORT, epoch + 1)
    assert is_calm(rig)


def test_many_discarded_requests_leave_no_waits_and_no_timers(rig):
    producer = commit_slowly(rig, retries=9)
    for _ in range(100):
        activity, _ = start(rig, add(rig, producer, BAR))
        rig.clock.advance(1)
        activity.discard()
    assert rig.shard_of().waiting == {}
    rig.clock.advance(60_000)
    assert is_calm(rig)


def test_waiting_requests_are_answered_when_the_coordinator_stops(rig):
    producer = commit_slowly(rig, retries=9)
    answers = rig.begin(add(rig, producer, BAR))
    rig.turns.event(rig.coordinator.stop)
    assert answers == [BUSY]
    assert rig.shard_of().waiting == {}
    appended = len(rig.log_of("t").batches)
    rig.clock.advance(1000)
    assert len(rig.log_of("t").batches) == appended


def test_a_wait_ends_at_its_timeout_although_the_log_is_offline(rig):
    """Complete, which would end the wait after 20 ms, is neither logged nor tried again."""
    producer = commit_slowly(rig)
    answers = rig.begin(add(rig, producer, BAR))
    rig.log_of("t").refuse = E.KAFKA_STORAGE_ERROR
    rig.log_of("t").offline = "storage failed"
    rig.clock.advance(49)
    assert answers == []
    rig.clock.advance(1)
    assert answers == [BUSY]
    assert is_calm(rig)
    assert rig.ask(add(rig, producer, BAR)) is E.NOT_COORDINATOR


# ---- the setting


def test_postponed_markers_make_requests_concurrent_when_waiting_is_off(make_rig, level):
    rig = make_rig(level, waits=True)
    rig.config, rig.markers_delay_ms = Config(transaction_markers_wait_ms=0), 5
    rig.coordinator = rig._build()
    rig.start()
    producer = rig.producer()
    rig.add("t", producer, FOO)
    answer = rig.end("t", producer, v2=level == 2)
    if level == 2:
        producer = answer.producer_id, answer.producer_epoch
    rig.clock.advance(4)
    assert rig.sink.written == []
    assert rig.add("t", producer, FOO) is BUSY
    assert rig.init().error is BUSY
    rig.clock.advance(1)
    assert rig.state().status is S.COMPLETE_COMMIT
    assert rig.add("t", producer, FOO) is E.NONE
    assert rig.init().error is BUSY
    rig.clock.advance(5)
    assert rig.init().error is E.NONE


def test_an_outcome_without_partitions_is_never_postponed(make_rig):
    """The empty abort of transactions V2 needs no marker; Complete follows at once, in Kafka too."""
    rig = make_rig(2)
    rig.markers_delay_ms = 5
    rig.coordinator = rig._build()
    rig.start()
    producer = rig.producer()
    assert rig.end("t", producer, commit=False, v2=True).error is E.NONE
    assert rig.state().status is S.COMPLETE_ABORT


def test_postponed_markers_are_not_written_after_a_stop(make_rig):
    rig = make_rig()
    rig.markers_delay_ms = 5
    rig.coordinator = rig._build()
    rig.start()
    producer = rig.producer()
    rig.add("t", producer, FOO)
    rig.end("t", producer)
    rig.turns.event(rig.coordinator.stop)
    rig.clock.advance(100)
    assert rig.sink.written == []
    rig.restart()
    rig.clock.advance(5)
    assert rig.state().status is S.COMPLETE_COMMIT
