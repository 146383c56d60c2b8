"""Sequences of an ended transaction that its producer uses again, on the wire (docs/in-the-log.md)."""

import pytest
from raw_producer import FIRST, Client
from rig import Rig
from targets import TARGETS

from ottla.protocol.errors import ErrorCode as E


@pytest.fixture
def start(tmp_path):
    rigs = []

    def start(**options):
        given = {key.replace("_", "."): value for key, value in options.items()}
        rigs.append(Rig(TARGETS["ottla"](tmp_path, given).start()))
        return rigs[-1]

    yield start
    for rig in rigs:
        rig.stop()


def abort_first(rig):
    """Return a producer in its second transaction; its first one wrote three records and was aborted."""
    client = Client(rig, FIRST).start()
    assert client.add() is E.NONE
    assert client.produce(client.producer, 0, 3) is E.NONE
    assert client.end(client.producer, False) is E.NONE
    while (error := client.add()) is not E.NONE:
        assert error is E.CONCURRENT_TRANSACTIONS
    return client


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 2])
@pytest.mark.parametrize("restart", [None, "kill", "stop"])
def test_a_reused_sequence_is_refused_and_logged(start, restart, count):
    rig = start()
    client = abort_first(rig)
    if restart is not None:
        getattr(rig.broker, restart)()
        rig.broker.start()
    end = client.offset(0)
    rig.begin_log()
    while (error := client.produce(client.producer, 0, count)) is E.NOT_ENOUGH_REPLICAS:
        assert restart is not None, "only a coordinator that loads is not there"
    assert error is E.UNKNOWN_PRODUCER_ID
    assert client.produce(client.producer, 2) is E.UNKNOWN_PRODUCER_ID
    assert client.offset(0) == end
    first, second = (line for line in rig.log().splitlines() if "that reuse its sequences" in line)
    producer_id, epoch = client.producer
    assert f"transactional id {client.name!r} at 127.0.0.1:" in first
    assert f"{rig.topic!r}-0 UNKNOWN_PRODUCER_ID: producer {producer_id} at epoch {epoch} sent sequences 0 to" in first
    taken_for = "the batch at offset 0" if count == 3 else "batches with other record counts"
    assert f"wrote up to 2: they are those of {taken_for}; 1 such batches since the start" in first
    assert "2 such batches since the start" in second
    assert client.end(client.producer, False) is E.NONE


@pytest.mark.slow
def test_a_producer_may_continue_its_sequence_after_a_refusal(start):
    client = abort_first(start())
    assert client.produce(client.producer, 0, 3) is E.UNKNOWN_PRODUCER_ID
    assert client.end(client.producer, False) is E.NONE
    while (error := client.add()) is not E.NONE:
        assert error is E.CONCURRENT_TRANSACTIONS
    assert client.produce(client.producer, 3, 3) is E.NONE
    assert client.end(client.producer, True) is E.NONE
    assert not client.holds_readers_back


def test_kafkas_answer_is_an_option(start):
    client = abort_first(start(transaction_sequence_reuse_refuse="false"))
    end = client.offset(0)
    assert client.produce(client.producer, 0, 3) is E.NONE
    assert client.offset(0) == end
    assert client.produce(client.producer, 0, 2) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
