"""Handlers of the transaction APIs that answer many rows over several turns."""

from types import SimpleNamespace

from ottla.broker.turns import SHARE_US, Turns
from ottla.protocol.requests import codec

PRODUCERS, LIST = 61, 66


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
