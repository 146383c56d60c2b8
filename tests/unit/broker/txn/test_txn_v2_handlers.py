"""Effects of the handlers of transactions V2: generations, bumped epochs, markers."""

import pytest

from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from ottla.protocol.values import TransactionMarker

ADD, END, MARKERS = 24, 26, 27


def add_for_brokers(ask, version, *transactions):
    """Versions 4-5: rows of (id, producer, verify only, topics); [(id, {(topic, partition): error})]."""
    request = codec.request_class(ADD)
    transaction = request.AddPartitionsToTxnTransaction
    topic = transaction.AddPartitionsToTxnTopic
    answer = ask(
        ADD,
        version,
        transactions=[
            transaction(
                version=version,
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify_only,
                topics=[topic(version=version, name=n, partitions=list(p)) for n, p in topics],
            )
            for name, producer, verify_only, topics in transactions
        ],
    )
    rows = [
        (
            result.transactional_id,
            {
                (each.name, row.partition_index): E(row.partition_error_code)
                for each in result.topic_results
                for row in each.results_by_partition
            },
        )
        for result in answer.results_by_transaction
    ]
    return E(answer.error_code), rows


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_and_verify_several_transactions_at_once(rig, ask, version):
    one, two = rig.producer("one"), rig.producer("two")
    rig.add("two", two, ("foo", 1))
    error, rows = add_for_brokers(
        ask,
        version,
        ("one", one, False, [("foo", [0, 2]), ("__consumer_offsets", [3])]),
        ("two", two, True, [("foo", [1, 2])]),
        ("two", (two[0], two[1] + 1), True, [("foo", [1])]),
        ("two", (77, 0), True, [("foo", [1])]),
        ("nobody", one, True, [("foo", [1])]),
        ("", one, False, [("foo", [1])]),
    )
    assert error is E.NONE
    assert rows == [
        ("one", dict.fromkeys([("foo", 0), ("foo", 2), ("__consumer_offsets", 3)], E.NONE)),
        ("two", {("foo", 1): E.NONE, ("foo", 2): E.TRANSACTION_ABORTABLE}),
        ("two", {("foo", 1): E.PRODUCER_FENCED}),
        ("two", {("foo", 1): E.INVALID_PRODUCER_ID_MAPPING}),
        ("nobody", {("foo", 1): E.INVALID_PRODUCER_ID_MAPPING}),
        ("", {("foo", 1): E.INVALID_REQUEST}),
    ]
    assert (rig.state("one").client_version, rig.state("two").client_version) == (2, 0)


def end_with_producer(ask, producer, committed=True, name="t"):
    answer = ask(
        END, 5, transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )
    return E(answer.error_code), answer.producer_id, answer.producer_epoch


def test_the_end_of_a_v2_transaction_carries_the_producer_to_go_on_with(rig, ask):
    rig.cluster.level = 2
    producer = rig.producer()
    add_for_brokers(ask, 5, ("t", producer, False, [("foo", [0])]))
    assert end_with_producer(ask, producer) == (E.NONE, 4000, 1)
    assert end_with_producer(ask, producer) == (E.NONE, 4000, 1)  # the repetition
    assert end_with_producer(ask, (4000, 1), committed=False) == (E.NONE, 4000, 2)
    assert end_with_producer(ask, producer) == (E.PRODUCER_FENCED, -1, -1)
    assert end_with_producer(ask, (4000, 2)) == (E.INVALID_TXN_STATE, -1, -1)
    assert {written[2].transaction_version for written in rig.sink.written} == {2}


def test_generations_meet_on_one_id(rig, ask):
    """Each request has its own generation: a V1 end of a V2 transaction does not bump the epoch."""
    rig.cluster.level = 2
    producer = rig.producer()
    add_for_brokers(ask, 5, ("t", producer, False, [("foo", [0])]))
    assert rig.end("t", producer).error is E.NONE
    assert (rig.state().producer_epoch, rig.state().client_version) == (0, 0)
    assert rig.add("t", producer, ("foo", 1)) is E.NONE
    assert end_with_producer(ask, producer) == (E.NONE, 4000, 1)
    assert [written[2].transaction_version for written in rig.sink.written] == [0, 2]


@pytest.mark.parametrize(("version", "generation", "written"), [(1, 2, 0), (2, 2, 2), (2, 1, 1), (2, 0, 0)])
def test_write_txn_markers_keeps_the_transaction_version_from_version_2(rig, ask, version, generation, written):
    request = codec.request_class(MARKERS)
    marker = request.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(version=version, name="foo", partition_indexes=[0])
    more = {"transaction_version": generation} if version >= 2 else {}
    row = marker(
        version=version,
        producer_id=8,
        producer_epoch=5,
        transaction_result=True,
        coordinator_epoch=2,
        topics=[topic],
        **more,
    )
    ask(MARKERS, version, markers=[row])
    assert rig.sink.written == [("foo", 0, TransactionMarker(8, 5, 2, True, written))]
