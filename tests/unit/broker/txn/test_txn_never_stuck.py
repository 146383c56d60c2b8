"""Events between Prepare and Complete, on real logs: the transaction ends in every case.

The kills between any two steps are in `test_txn_on_real_logs.py` and in the simulation.
"""

import pytest

from lab.metadata import create_topic, delete_topic, update_features
from ottla.broker.cluster.features import FeatureUpdate
from ottla.broker.log.results import FetchIsolation
from ottla.broker.txn import machine, state_manager
from ottla.broker.txn.states import TransactionStatus as S
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.values import TransactionMarker

LEDGER = [("ledger", index) for index in range(4)]
OUTCOMES = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
GENERATIONS = pytest.mark.parametrize("v2", [False, True], ids=["V1", "V2"])


def open_transaction(parts, places=LEDGER, v2=False):
    answer = parts.ask(parts.coordinator.init_producer_id("t", 60_000))
    producer = answer.producer_id, answer.producer_epoch
    assert parts.ask(parts.coordinator.add_partitions("t", *producer, places, 2 if v2 else 0)) is E.NONE
    for place in places:
        assert parts.write(producer, 0, place).error is E.NONE
    return producer


def end_transaction(parts, producer, commit=True, v2=False):
    """Send EndTxn and return the producer for the next transaction."""
    answer = parts.ask(parts.coordinator.end("t", *producer, commit, v2=v2))
    assert answer.error is E.NONE
    return (answer.producer_id, answer.producer_epoch) if v2 else producer


def prepare(parts, commit=True, v2=False):
    """Decide a transaction whose markers are all refused."""
    parts.sink.hearing = 0
    producer = end_transaction(parts, open_transaction(parts, v2=v2), commit, v2)
    assert state(parts).status in (S.PREPARE_COMMIT, S.PREPARE_ABORT)
    return producer


def state(parts):
    return parts.coordinator.describe("t").state


def is_complete(parts, commit=True):
    return state(parts).status is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)


def list_aborts(parts, place):
    return parts.cluster.partition(*place).read(0, 1 << 20, isolation=FetchIsolation.TXN_COMMITTED).aborted


# ---- markers


@OUTCOMES
@GENERATIONS
def test_markers_with_lost_replies_are_retried_and_end_nothing_twice(parts, v2, commit):
    """The request is applied, its reply is lost, it is sent again: an equal epoch with nothing open is success."""
    deliver, lost = parts.sink.write_marker, {LEDGER[0]: 1, LEDGER[2]: 3}
    errors = []

    def write_marker(topic, index, marker):
        errors.append(deliver(topic, index, marker))
        if lost.get((topic, index)):
            lost[topic, index] -= 1
            return E.REQUEST_TIMED_OUT
        return errors[-1]

    parts.sink.write_marker = write_marker
    first = open_transaction(parts, v2=v2)
    producer = end_transaction(parts, first, commit, v2)
    assert parts.coordinator.describe("t").partitions == (LEDGER[0], LEDGER[2])
    parts.clock.advance(20 + 40 + 80)
    assert set(errors) == {E.NONE}
    assert is_complete(parts, commit)
    assert [parts.markers(place) for place in LEDGER] == [2, 1, 4, 1]
    for place in LEDGER:
        stable, end = parts.offsets(place)
        assert stable == end
        assert list_aborts(parts, place) == ([] if commit else [(first[0], 0)])
    # The next transaction is not touched by what was sent again.
    assert parts.ask(parts.coordinator.add_partitions("t", *producer, LEDGER[:1], 2 if v2 else 0)) is E.NONE
    assert parts.write(producer, 0 if v2 else 1, LEDGER[0]).error is E.NONE
    assert parts.offsets(LEDGER[0])[0] == 3


@OUTCOMES
@GENERATIONS
def test_a_partition_that_has_seen_a_newer_coordinator_is_left_out_and_found_by_its_producers(parts, v2, commit):
    """TRANSACTION_COORDINATOR_FENCED by the log itself, as a power loss that took the coordinator back leaves it."""
    producer = open_transaction(parts, v2=v2)
    foreign = TransactionMarker(producer[0], producer[1], 9, True, 1)
    assert parts.sink.write_marker(*LEDGER[0], foreign) is E.NONE
    assert parts.write(producer, 1, LEDGER[0]).error is E.NONE
    end_transaction(parts, producer, commit, v2)
    assert is_complete(parts, commit)
    assert [parts.offsets(place) for place in LEDGER] == [(2, 3), (2, 2), (2, 2), (2, 2)]
    (orphan,) = parts.cluster.partition(*LEDGER[0]).producers()
    assert (orphan.producer_id, orphan.epoch) == producer
    assert (orphan.coordinator_epoch, orphan.current_txn_first_offset) == (9, 2)
    # What DescribeProducers shows is what the abort of an administrator needs.
    assert parts.sink.write_marker(*LEDGER[0], TransactionMarker(*producer, 9, False, 0)) is E.NONE
    assert parts.offsets(LEDGER[0]) == (4, 4)


@GENERATIONS
def test_a_partition_that_has_seen_a_newer_epoch_is_left_out(parts, v2):
    producer = open_transaction(parts, v2=v2)
    newer = TransactionMarker(producer[0], producer[1] + 7, 0, False, 1)
    assert parts.sink.write_marker(*LEDGER[3], newer) is E.NONE
    end_transaction(parts, producer, v2=v2)
    assert is_complete(parts)
    assert [parts.offsets(place) for place in LEDGER] == [(2, 2)] * 4


# ---- partitions that go and come


@OUTCOMES
def test_a_partition_that_is_offline_is_waited_for_and_gets_its_marker_after_a_restart(parts, commit):
    producer = open_transaction(parts)
    parts.cluster.partition(*LEDGER[1]).take_offline("a disk is away")
    end_transaction(parts, producer, commit)
    parts.clock.advance(5000)
    assert parts.coordinator.describe("t").partitions == (LEDGER[1],)
    parts.kill()
    parts.start()
    assert is_complete(parts, commit)
    assert parts.offsets(LEDGER[1]) == (2, 2)
    assert list_aborts(parts, LEDGER[1]) == ([] if commit else [(producer[0], 0)])


def test_a_topic_that_is_deleted_between_prepare_and_complete(parts):
    prepare(parts)
    delete_topic(parts.cluster, parts.cluster.topics["ledger"])
    parts.clock.advance(20)
    assert is_complete(parts)


def test_a_topic_that_is_deleted_and_made_again_between_prepare_and_complete(parts):
    """The new partitions of the name get the markers, which end nothing there; those that are no more are left out."""
    producer = prepare(parts)
    delete_topic(parts.cluster, parts.cluster.topics["ledger"])
    create_topic(parts.cluster, "ledger", 2)
    parts.sink.hearing = -1
    parts.clock.advance(20)
    assert is_complete(parts)
    assert [parts.offsets(place) for place in LEDGER[:2]] == [(1, 1), (1, 1)]
    assert parts.ask(parts.coordinator.add_partitions("t", *producer, LEDGER[:1])) is E.NONE
    assert parts.write(producer, 0, LEDGER[0]).error is E.NONE


# ---- level changes


@OUTCOMES
@GENERATIONS
@pytest.mark.parametrize("restarts", [False, True], ids=["", "restart"])
@pytest.mark.parametrize(("before", "after"), [(b, a) for b in range(3) for a in range(3) if a != b])
def test_the_level_changes_between_prepare_and_complete(parts, before, after, v2, commit, restarts):
    change_level(parts, before)
    if v2 and before == 0:
        return  # level 0 cannot store transactions V2, so none begins
    producer = prepare(parts, commit, v2)
    change_level(parts, after)
    if restarts:
        parts.kill()
        parts.start()
    parts.sink.hearing = -1
    parts.clock.advance(20)
    assert is_complete(parts, commit)
    assert [parts.offsets(place) for place in LEDGER] == [(2, 2)] * 4
    again = parts.ask(parts.coordinator.init_producer_id("t", 60_000))
    assert (again.error, again.producer_id, again.producer_epoch) == (E.NONE, producer[0], producer[1] + 1)


@pytest.mark.parametrize("after", [0, 1])
def test_the_level_falls_while_an_exhausted_producer_gets_its_new_id(parts, after):
    producer = open_transaction(parts, v2=True)
    shard = next(shard for shard in parts.coordinator.shards() if "t" in shard.states)
    shard.states["t"] = shard.states["t"]._replace(producer_epoch=32_766)
    parts.sink.hearing = 0
    fresh = end_transaction(parts, (producer[0], 32_766), v2=True)
    assert fresh[0] > producer[0]
    change_level(parts, after)
    parts.kill()
    parts.start()
    assert is_complete(parts)
    assert (state(parts).producer_id, state(parts).producer_epoch) == fresh


def change_level(parts, level):
    if level != parts.coordinator.states.level:
        update_features(parts.cluster, [FeatureUpdate("transaction.version", level, 2)])


# ---- exceptions


@OUTCOMES
def test_a_write_that_breaks_between_prepare_and_complete(parts, commit, caplog):
    producer = open_transaction(parts)
    deliver, broken = parts.sink.write_marker, [LEDGER[1], LEDGER[3]]

    def write_marker(topic, index, marker):
        if (topic, index) in broken:
            broken.remove((topic, index))
            raise RuntimeError("a leader broke")
        return deliver(topic, index, marker)

    parts.sink.write_marker = write_marker
    end_transaction(parts, producer, commit)
    assert parts.coordinator.describe("t").partitions == (LEDGER[1], LEDGER[3])  # the others are written
    for place in ("ledger-1", "ledger-3"):
        assert f"{place}: writing the marker of t failed" in caplog.text
    parts.clock.advance(20)
    assert is_complete(parts, commit)
    assert [parts.markers(place) for place in LEDGER] == [1, 1, 1, 1]


def test_complete_that_breaks_is_logged_later(parts, monkeypatch, caplog):
    producer = open_transaction(parts)
    check, broken = machine.check_step, [True, True]

    def check_step(before, after):
        if after.status is S.COMPLETE_COMMIT and broken:
            broken.pop()
            raise machine.Impossible("broken")
        check(before, after)

    monkeypatch.setattr(machine, "check_step", check_step)
    end_transaction(parts, producer)
    assert state(parts).status is S.PREPARE_COMMIT
    parts.clock.advance(20 + 40)
    assert is_complete(parts)
    assert caplog.text.count("broken") >= 2
    assert [parts.markers(place) for place in LEDGER] == [1, 1, 1, 1]


def test_an_abort_that_breaks_does_not_keep_others_from_timing_out(make_rig, monkeypatch, caplog):
    rig = make_rig().start()
    names = ["a", "b", "c"]
    for name in names:
        producer = rig.producer(name)
        rig.add(name, producer, ("foo", 1))
    of_b = rig.state("b").producer_id
    decide = state_manager.decide_abort

    def decide_abort(state, *rest):
        if state.producer_id == of_b:
            raise machine.Impossible("broken")
        return decide(state, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(state_manager, "decide_abort", decide_abort)
        rig.clock.advance(80_000)
        assert [rig.state(name).status for name in names] == [S.COMPLETE_ABORT, S.ONGOING, S.COMPLETE_ABORT]
        assert "Could not abort b" in caplog.text
    rig.clock.advance(10_000)
    assert rig.state("b").status is S.COMPLETE_ABORT


# ---- stop and start


@OUTCOMES
def test_a_stop_between_prepare_and_complete_is_finished_by_the_next_start(parts, commit):
    prepare(parts, commit)
    parts.turns.event(parts.coordinator.stop)
    parts.sink.hearing = -1
    parts.clock.advance(5000)
    assert [parts.markers(place) for place in LEDGER] == [0, 0, 0, 0]
    parts.turns.event(parts.groups.stop)
    parts.logs.close()
    parts.start()
    assert is_complete(parts, commit)
    assert [parts.offsets(place) for place in LEDGER] == [(2, 2)] * 4
