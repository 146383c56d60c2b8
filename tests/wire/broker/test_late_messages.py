"""Requests that arrive after their transaction has ended, in transactions of each version (KIP-890)."""

import pytest
from raw_producer import FIRST, SECOND, Client
from rig import Rig
from targets import TARGETS

from ottla.protocol.errors import ErrorCode as E


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = Rig(TARGETS["ottla"](tmp_path_factory.mktemp("late"), {}).start())
    yield rig
    rig.stop()


@pytest.mark.slow
def test_a_late_produce_after_an_abort_leaves_nothing_open_in_v1(rig):
    """Without verification it would begin a transaction that no client ends, and block readers for ever."""
    client = Client(rig, FIRST).start()
    assert client.add() is E.NONE
    assert client.produce(client.producer, 0) is E.NONE
    assert client.end(client.producer, False) is E.NONE
    assert client.produce(client.producer, 1) is E.TRANSACTION_ABORTABLE
    assert not client.holds_readers_back


def test_a_late_produce_after_an_abort_is_of_the_past_in_v2(rig):
    client = Client(rig, SECOND).start()
    before = client.producer
    assert client.produce(before, 0) is E.NONE
    assert client.end(before, False) is E.NONE
    assert client.producer == (before[0], before[1] + 1)
    assert client.produce(before, 1) is E.INVALID_PRODUCER_EPOCH
    assert not client.holds_readers_back
    assert client.produce(client.producer, 0) is E.NONE
    assert client.produce(before, 2) is E.INVALID_PRODUCER_EPOCH
    assert client.end(client.producer, True) is E.NONE


def test_a_delayed_end_hits_the_next_transaction_in_v1(rig):
    """KAFKA-17754: the abort of the first transaction, sent again, looks like that of the second transaction."""
    client = Client(rig, FIRST).start()
    for _ in range(2):
        assert client.add() is E.NONE
        assert client.end(client.producer, False) is E.NONE
    assert client.add() is E.NONE
    assert client.end(client.producer, False) is E.NONE  # the delayed one: the open transaction is gone
    assert client.end(client.producer, True) is E.INVALID_TXN_STATE


def test_a_delayed_end_hits_nothing_in_v2(rig):
    client = Client(rig, SECOND).start()
    before = client.producer
    assert client.produce(before, 0) is E.NONE
    assert client.end(before, False) is E.NONE
    assert client.produce(client.producer, 0) is E.NONE
    now = client.producer
    late = Client(rig, SECOND)
    late.name = client.name
    assert late.end(before, False) is E.PRODUCER_FENCED
    assert client.end(now, True) is E.NONE
    assert not client.holds_readers_back
