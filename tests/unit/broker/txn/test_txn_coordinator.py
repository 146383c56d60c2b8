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


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_the_value_version_follows_the_feature_level(make_rig, level, version):
    rig = make_rig(level).start()
    rig.producer()
    (header, batch), *_ = rig.log_of("t").batches
    (record,) = iter_records(batch, header)
    assert record.value[:2] == bytes((0, version))
    assert (header.compression, header.record_count, header.is_transactional) == (0, 1, False)


def test_the_shared_empty_set_stays_empty(rig):
    for name in "abc":
        producer = rig.producer(name)
        rig.add(name, producer, FOO)
        rig.end(name, producer)
    assert NO_PARTITIONS == {}
