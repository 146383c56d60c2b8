"""Handlers of the transaction APIs over a coordinator whose log and markers the test holds.

The replies to clients are tested in `tests/api`.
"""

from types import SimpleNamespace

from ottla.broker.turns import SHARE_US, Turns
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec

MARKERS, PRODUCERS, LIST = 27, 61, 66


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


def test_write_txn_markers_lets_others_run_in_between(rig, ask):
    rig.cluster.topics["wide"] = SimpleNamespace(partition_count=40)
    rig.turns.charge(SHARE_US)
    assert len(markers(ask, (8, True, [("wide", range(40))]))) == 40
    assert len(rig.sink.written) == 40


def pauses_of(monkeypatch):
    pauses = []

    async def count_pause(turns, on_discard=None):
        pauses.append(None)
        turns._share_began_us = turns.charged_us

    monkeypatch.setattr(Turns, "pause", count_pause)
    return pauses


def test_list_transactions_lets_others_in_between(rig, ask, monkeypatch):
    for number in range(20):
        rig.producer(f"id-{number}")
    pauses = pauses_of(monkeypatch)
    monkeypatch.setattr("ottla.broker.api.list_transactions.ROW_US", SHARE_US / 2)
    assert len(ask(LIST, 0, state_filters=[], producer_id_filters=[]).transaction_states) == 20
    assert len(pauses) == 9  # between ten shares


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
