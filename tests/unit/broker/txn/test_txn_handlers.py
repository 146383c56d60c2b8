"""The transaction APIs: what each version asks and is told, through the codecs."""

from types import SimpleNamespace

import pytest

from ottla.broker.turns import SHARE_US, Turns
from ottla.broker.txn.states import TransactionStatus as S
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.values import TransactionMarker

INIT, ADD, OFFSETS, END, MARKERS, PRODUCERS, DESCRIBE, LIST = 22, 24, 25, 26, 27, 61, 65, 66


def init(ask, version, name="t", timeout_ms=60_000, **expected):
    return ask(INIT, version, transactional_id=name, transaction_timeout_ms=timeout_ms, **expected)


def add(ask, version, producer, *topics, name="t"):
    struct = codec.request_class(ADD).AddPartitionsToTxnTopic
    answer = ask(
        ADD,
        version,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[struct(version=version, name=n, partitions=list(p)) for n, p in topics],
    )
    return {
        (topic.name, row.partition_index): E(row.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }


def add_offsets(ask, version, producer, group="four", name="t"):
    answer = ask(
        OFFSETS, version, transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=group
    )
    return E(answer.error_code)


def end(ask, version, producer, committed=True, name="t"):
    answer = ask(
        END, version, transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )
    return E(answer.error_code)


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_answers_every_version(ask, version):
    for name, producer in (("t", (4000, 0)), ("t", (4000, 1)), (None, (4001, 0))):
        answer = init(ask, version, name)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, *producer)


@pytest.mark.parametrize("version", range(6))
def test_an_error_of_init_producer_id_carries_no_producer(ask, version):
    answer = init(ask, version, timeout_ms=900_001)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (E.INVALID_TRANSACTION_TIMEOUT, -1, -1)


@pytest.mark.parametrize(
    ("version", "error"), [(3, E.INVALID_PRODUCER_EPOCH), (4, E.PRODUCER_FENCED), (5, E.PRODUCER_FENCED)]
)
def test_a_fenced_resume_has_the_code_of_its_version(ask, version, error):
    init(ask, 4)
    assert init(ask, version, producer_id=9, producer_epoch=0).error_code == error


@pytest.mark.parametrize("version", [3, 4])
def test_half_an_expectation_is_an_invalid_request(ask, version):
    assert init(ask, version, producer_id=9).error_code == E.INVALID_REQUEST
    assert init(ask, version, producer_epoch=9).error_code == E.INVALID_REQUEST


@pytest.mark.parametrize(("version", "fenced"), [*[(v, 47) for v in (0, 1)], *[(v, 90) for v in (2, 3)]])
def test_the_code_of_a_fenced_producer_follows_the_version(ask, version, fenced):
    old = (4000, 0)
    init(ask, 4)
    init(ask, 4)
    assert add(ask, version, old, ("foo", [1])) == {("foo", 1): fenced}
    assert add_offsets(ask, version, old) == fenced
    assert end(ask, version, old) == fenced


@pytest.mark.parametrize("version", range(4))
def test_a_transaction_in_every_version(rig, ask, version):
    answer = init(ask, version)
    producer = (answer.producer_id, answer.producer_epoch)
    assert add(ask, version, producer, ("foo", [0, 2]), ("bar", [0])) == dict.fromkeys(
        [("foo", 0), ("foo", 2), ("bar", 0)], E.NONE
    )
    assert add_offsets(ask, version, producer) is E.NONE
    assert end(ask, version, producer) is E.NONE
    assert [(topic, index) for topic, index, _ in rig.sink.written] == [
        ("foo", 0),
        ("foo", 2),
        ("bar", 0),
        ("__consumer_offsets", 4),
    ]
    assert rig.state().status is S.COMPLETE_COMMIT


@pytest.mark.parametrize("version", range(4))
def test_one_bad_partition_keeps_all_others_out(rig, ask, version):
    producer = rig.producer()
    answer = add(ask, version, producer, ("foo", [0, 4, -1]), ("nowhere", [0]), ("__consumer_offsets", [1]))
    assert answer == {
        ("foo", 0): E.OPERATION_NOT_ATTEMPTED,
        ("foo", 4): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("foo", -1): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("__consumer_offsets", 1): E.TOPIC_AUTHORIZATION_FAILED,
    }
    assert rig.state().status is S.EMPTY


@pytest.mark.parametrize("version", range(4))
def test_the_empty_transactional_id_is_an_invalid_request(ask, version):
    assert init(ask, version, "").error_code == E.INVALID_REQUEST
    assert add(ask, version, (1, 1), ("foo", [0]), name="") == {("foo", 0): E.INVALID_REQUEST}
    assert add_offsets(ask, version, (1, 1), name="") is E.INVALID_REQUEST
    assert end(ask, version, (1, 1), name="") is E.INVALID_REQUEST


@pytest.mark.parametrize("version", range(4))
def test_an_unknown_transactional_id_has_no_mapping(ask, version):
    assert add(ask, version, (1, 1), ("foo", [0])) == {("foo", 0): E.INVALID_PRODUCER_ID_MAPPING}
    assert add_offsets(ask, version, (1, 1)) is E.INVALID_PRODUCER_ID_MAPPING
    assert end(ask, version, (1, 1)) is E.INVALID_PRODUCER_ID_MAPPING


def test_the_last_version_of_the_first_generation(rig, ask):
    version = 4
    producer = rig.producer()
    assert add_offsets(ask, version, producer) is E.NONE
    assert end(ask, version, producer) is E.NONE
    assert add_offsets(ask, version, (producer[0], 9)) is E.PRODUCER_FENCED
    assert end(ask, version, (producer[0], 9)) is E.PRODUCER_FENCED


def markers(ask, *asked):
    request = codec.request_class(MARKERS)
    marker = request.WritableTxnMarker
    answer = ask(
        MARKERS,
        1,
        markers=[
            marker(
                version=1,
                producer_id=producer_id,
                producer_epoch=5,
                transaction_result=commit,
                coordinator_epoch=2,
                topics=[
                    marker.WritableTxnMarkerTopic(version=1, name=name, partition_indexes=list(indexes))
                    for name, indexes in topics
                ],
            )
            for producer_id, commit, topics in asked
        ],
    )
    return [
        (each.producer_id, topic.name, row.partition_index, E(row.error_code))
        for each in answer.markers
        for topic in each.topics
        for row in topic.partitions
    ]


def test_write_txn_markers_writes_to_each_partition_and_answers_once_per_producer(rig, ask):
    rig.sink.answers[("foo", 2)] = [E.TRANSACTION_COORDINATOR_FENCED]
    answer = markers(
        ask, (8, True, [("foo", [0, 2])]), (9, False, [("bar", [0])]), (8, True, [("bar", [0]), ("nowhere", [3])])
    )
    assert answer == [
        (8, "foo", 0, E.NONE),
        (8, "foo", 2, E.TRANSACTION_COORDINATOR_FENCED),
        (8, "bar", 0, E.NONE),
        (8, "nowhere", 3, E.UNKNOWN_TOPIC_OR_PARTITION),
        (9, "bar", 0, E.NONE),
    ]
    assert rig.sink.written == [
        ("foo", 0, TransactionMarker(8, 5, 2, True, 0)),
        ("bar", 0, TransactionMarker(9, 5, 2, False, 0)),
        ("bar", 0, TransactionMarker(8, 5, 2, True, 0)),
    ]


def test_write_txn_markers_without_markers_is_answered_at_once(ask):
    assert markers(ask) == []


def test_write_txn_markers_lets_others_run_in_between(rig, ask):
    rig.cluster.topics["wide"] = SimpleNamespace(partition_count=40)
    rig.turns.charge(SHARE_US)
    assert len(markers(ask, (8, True, [("wide", range(40))]))) == 40
    assert len(rig.sink.written) == 40


def test_describe_transactions(rig, ask):
    producer = rig.producer("open", timeout_ms=5000)
    rig.clock.advance(100)
    rig.add("open", producer, ("foo", 1), ("bar", 0), ("foo", 0))
    began_ms = rig.clock.now_ms()
    rig.producer("idle")
    answer = ask(DESCRIBE, 0, transactional_ids=["open", "idle", "nobody", ""])
    found = [
        (
            each.transactional_id,
            each.error_code,
            each.transaction_state,
            each.producer_id,
            each.producer_epoch,
            each.transaction_timeout_ms,
            each.transaction_start_time_ms,
            [(topic.topic, topic.partitions) for topic in each.topics],
        )
        for each in answer.transaction_states
    ]
    assert found == [
        ("open", 0, "Ongoing", 4000, 0, 5000, began_ms, [("foo", [1, 0]), ("bar", [0])]),
        ("idle", 0, "Empty", 4001, 0, 60_000, -1, []),
        ("nobody", E.TRANSACTIONAL_ID_NOT_FOUND, "", 0, 0, 0, 0, []),
        ("", E.INVALID_REQUEST, "", 0, 0, 0, 0, []),
    ]


def listed(ask, states=(), producer_ids=()):
    answer = ask(LIST, 0, state_filters=list(states), producer_id_filters=list(producer_ids))
    rows = {each.transactional_id: (each.producer_id, each.transaction_state) for each in answer.transaction_states}
    return E(answer.error_code), rows, answer.unknown_state_filters


def test_list_transactions_filters_by_state_and_producer(rig, ask):
    for name in ("a", "b", "c"):
        producer = rig.producer(name)
        if name != "a":
            rig.add(name, producer, ("foo", 0))
    rig.end("c", (4002, 0))
    everything = {"a": (4000, "Empty"), "b": (4001, "Ongoing"), "c": (4002, "CompleteCommit")}
    assert listed(ask) == (E.NONE, everything, [])
    assert listed(ask, ["Ongoing", "Empty"])[1].keys() == {"a", "b"}
    assert listed(ask, ["Ongoing", "Sleeping"]) == (E.NONE, {"b": everything["b"]}, ["Sleeping"])
    assert listed(ask, ["Sleeping"]) == (E.NONE, {}, ["Sleeping"])
    assert listed(ask, producer_ids=[4002, 7])[1].keys() == {"c"}
    assert listed(ask, ["Empty"], [4002])[1] == {}


def pauses_of(monkeypatch):
    pauses = []

    async def counted(turns, on_discard=None):
        pauses.append(None)
        turns._share_began_us = turns.charged_us

    monkeypatch.setattr(Turns, "pause", counted)
    return pauses


def test_list_transactions_lets_others_in_between(rig, ask, monkeypatch):
    for number in range(20):
        rig.producer(f"id-{number}")
    pauses = pauses_of(monkeypatch)
    monkeypatch.setattr("ottla.broker.api.list_transactions.ROW_US", SHARE_US / 2)
    assert len(listed(ask)[1]) == 20
    assert len(pauses) == 9  # between ten shares


def test_list_transactions_waits_for_the_whole_log(rig, ask):
    rig.producer()
    rig.coordinator.states.loading.add(3)
    assert listed(ask) == (E.COORDINATOR_LOAD_IN_PROGRESS, {}, [])
    assert rig.coordinator.loading


def test_list_transactions_leaves_out_ids_that_are_being_forgotten(rig, ask):
    rig.producer()
    rig.log_of("t").hold = True
    rig.clock.advance(8 * 86_400_000)
    assert listed(ask) == (E.NONE, {}, [])


def test_describe_producers(rig, ask):
    known = SimpleNamespace(
        producer_id=8,
        epoch=5,
        last_sequence=11,
        last_timestamp_ms=1234,
        coordinator_epoch=2,
        current_txn_first_offset=77,
    )
    partitions = {
        ("foo", 0): SimpleNamespace(offline=None, producers=lambda: iter([known])),
        ("foo", 1): SimpleNamespace(offline="bad batch"),
    }
    rig.cluster.partition = lambda topic, index: partitions.get((topic, index))
    struct = codec.request_class(PRODUCERS).TopicRequest
    answer = ask(PRODUCERS, 0, topics=[struct(version=0, name="foo", partition_indexes=[0, 1, 9])])
    (topic,) = answer.topics
    assert [(row.partition_index, row.error_code, row.error_message) for row in topic.partitions] == [
        (0, 0, None),
        (1, E.KAFKA_STORAGE_ERROR, "bad batch"),
        (9, E.UNKNOWN_TOPIC_OR_PARTITION, None),
    ]
    (row,) = topic.partitions[0].active_producers
    assert (row.producer_id, row.producer_epoch, row.last_sequence) == (8, 5, 11)
    assert (row.last_timestamp, row.coordinator_epoch, row.current_txn_start_offset) == (1234, 2, 77)


def partition_of(count):
    known = [
        SimpleNamespace(
            producer_id=number,
            epoch=number % 7,
            last_sequence=-1,
            last_timestamp_ms=number,
            coordinator_epoch=-1,
            current_txn_first_offset=2**40 + number,
        )
        for number in range(count)
    ]
    return SimpleNamespace(offline=None, producers=lambda: iter(known))


def describe(ask, rows):
    struct = codec.request_class(PRODUCERS).TopicRequest
    return ask(PRODUCERS, 0, topics=[struct(version=0, name=name, partition_indexes=list(p)) for name, p in rows])


def test_many_producers_are_described_in_slices_and_in_pieces(rig, ask, monkeypatch):
    rig.cluster.partition = lambda topic, index: partition_of(1_000 * index)
    monkeypatch.setattr("ottla.broker.api.reply.PIECE_BYTES", 5_000)
    pauses = pauses_of(monkeypatch)
    answer = describe(ask, [("foo", [1, 0]), ("grüße", [3])])
    assert 4 <= len(pauses) <= 8
    assert max(map(len, ask.pieces)) < 7_000
    found = [
        (topic.name, row.partition_index, [each.producer_id for each in row.active_producers])
        for topic in answer.topics
        for row in topic.partitions
    ]
    assert found == [("foo", 1, [*range(1000)]), ("foo", 0, []), ("grüße", 3, [*range(3000)])]
    last = answer.topics[1].partitions[0].active_producers[-1]
    assert (last.producer_epoch, last.last_sequence, last.last_timestamp) == (2999 % 7, -1, 2999)
    assert (last.coordinator_epoch, last.current_txn_start_offset) == (-1, 2**40 + 2999)


def test_a_partition_that_is_named_twice_is_described_once(rig, ask):
    rig.cluster.partition = lambda topic, index: partition_of(2)
    answer = describe(ask, [("foo", [1, 0, 1]), ("bar", []), ("foo", [0, 3])])
    assert [(topic.name, [row.partition_index for row in topic.partitions]) for topic in answer.topics] == [
        ("foo", [1, 0, 3]),
        ("bar", []),
    ]
