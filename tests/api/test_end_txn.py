"""EndTxn: its responses, their time, and the records that readers see. The decisions are tested in `tests/tables`."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, Producer, coordinating

V2 = 5
STATE_OF = {True: "CompleteCommit", False: "CompleteAbort"}


def answer(version, error=E.NONE, producer_id=-1, epoch=-1):
    return (error, producer_id, epoch) if version >= V2 else error


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_every_partition_gets_its_marker_and_readers_go_on(broker, version, committed):
    producer = Producer(broker)
    producer.begin(0, 2)
    partitions = [broker.assembly.broker.cluster.partition(LEDGER, index) for index in (0, 2)]
    assert [partition.last_stable_offset for partition in partitions] == [0, 0]
    moved = (producer.producer_id, producer.epoch + 1)
    assert producer.end(version, committed) == answer(version, E.NONE, *moved)
    assert [(each.last_stable_offset, each.log_end_offset) for each in partitions] == [(2, 2), (2, 2)]
    found = producer.describe()
    assert (found.transaction_state, found.topics) == (STATE_OF[committed], [])
    assert found.producer_epoch == producer.epoch + (version >= V2)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [True, False])
def test_an_outcome_is_acknowledged_after_its_sync_before_its_marker(version, committed):
    """The response waits for the sync of the outcome, and not for the sync of the marker."""
    sync_ms = 50.0
    broker = coordinating(sync_ms=sync_ms, log_flush_interval_messages=1)
    producer = Producer(broker)
    producer.begin(0)
    broker.advance(10 * sync_ms)
    client = broker.client()
    client.send(K.END_TXN, version, **producer.owner, committed=committed)
    broker.advance(sync_ms - 1.0)
    assert client.replies == [], "it is told before it is durable"
    broker.advance(10.0)
    assert [reply.error_code for reply in client.replies] == [E.NONE]
    assert producer.describe().transaction_state == ("PrepareCommit" if committed else "PrepareAbort")
    broker.advance(10 * sync_ms)
    assert producer.describe().transaction_state == STATE_OF[committed]


@pytest.mark.parametrize("version", range(6))
def test_an_outcome_that_is_never_synced_is_not_acknowledged(version):
    sync_ms = 50.0
    broker = coordinating(sync_ms=sync_ms, log_flush_interval_messages=1)
    producer = Producer(broker)
    producer.begin(0)
    broker.advance(10 * sync_ms)
    client = broker.client()
    client.send(K.END_TXN, version, **producer.owner, committed=True)
    log = broker.assembly.broker.cluster.partition("__transaction_state", 0)
    broker.turns.event(lambda: log.take_offline("no space"))
    broker.advance(10 * sync_ms)
    assert [reply.error_code for reply in client.replies] == [E.NOT_COORDINATOR]
    assert broker.assembly.broker.cluster.partition(LEDGER, 0).last_stable_offset == 0


def test_the_epoch_returned_by_version_5_begins_the_next_transaction(broker):
    producer = Producer(broker)
    for epoch in (0, 1, 2):
        assert (producer.epoch, producer.produce(0, version=12)[0]) == (epoch, E.NONE)
        _, producer.producer_id, producer.epoch = producer.end(V2)
    assert producer.end(V2, producer_epoch=0) == (E.PRODUCER_FENCED, -1, -1)
