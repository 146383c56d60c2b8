"""A handler that rests behind its append, and whose log goes offline meanwhile: the flush will never come."""

import errno
from functools import partial

import pytest

from ottla.broker.api import produce
from ottla.broker.turns import SHARE_US
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.testkit.crash.life import Life
from ottla.testkit.crash.script import Script, error_codes
from ottla.testkit.simulation import wire
from ottla.testkit.simulation.disk_errors import FOR_EVER, BadDisk


@pytest.fixture
def life(begin_life):
    """A broker that flushes every append."""
    life = begin_life(flushing=True)
    Script.on(life).make_topic(("ledger", 1))
    return life


def errors_of(life, ask, meanwhile):
    errors = []
    life.call_all([ask], lambda _at, reply: errors.extend(error_codes(reply)), meanwhile)
    return errors


def numbered(sequence, producer_id=7):
    owner = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    return wire.produce(wire.V2, None, "ledger", 0, bytes(build_batch([(b"k", b"v")], timestamp_ms=1, **owner)))


def rows_of(life, asks, meanwhile=None):
    """(error, base offset) of each, sent at once."""
    rows = {}

    def told(at, reply):
        (row,) = reply.responses[0].partition_responses
        rows[at] = ErrorCode(row.error_code), row.base_offset

    life.call_all(asks, told, meanwhile)
    return [rows[at] for at in range(len(asks))]


@pytest.mark.parametrize("rests", [False, True])
def test_an_append_whose_flush_was_given_up_is_not_acknowledged(life, monkeypatch, rests):
    if rests:
        monkeypatch.setattr(produce, "APPEND_US", SHARE_US)
    partition = life.assembly.broker.cluster.partition("ledger", 0)
    batch = bytes(build_batch([(b"k", b"v")], timestamp_ms=1))
    ask = wire.produce(wire.V2, None, "ledger", 0, batch)
    assert errors_of(life, ask, lambda: partition.take_offline("gone")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert (partition.log_end_offset, partition.high_watermark) == (1, 0)


@pytest.mark.parametrize("rests", [False, True])
def test_an_append_that_is_flushed_is_acknowledged(life, monkeypatch, rests):
    if rests:
        monkeypatch.setattr(produce, "APPEND_US", SHARE_US)
    batch = bytes(build_batch([(b"k", b"v")], timestamp_ms=1))
    assert errors_of(life, wire.produce(wire.V2, None, "ledger", 0, batch), None) == [ErrorCode.NONE]


@pytest.mark.parametrize("offline", ["sync", "damage"])
def test_a_batch_in_the_log_that_is_answered_with_an_error_is_not_pushed_out_of_those_that_are_known(life, offline):
    """Twice in a row, with as many on their way as a producer may have: nothing is written behind them meanwhile."""
    in_flight = [numbered(sequence) for sequence in range(5)]
    partition = life.assembly.broker.cluster.partition("ledger", 0)
    if offline == "sync":
        life.disk.errors.break_down(BadDisk(frozenset({"sync"}), errno.EIO, 0, FOR_EVER))
        meanwhile = None
    else:
        meanwhile = partial(partition.take_offline, "it is damaged")
    assert rows_of(life, in_flight, meanwhile) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * 5
    assert partition.log_end_offset == 5
    behind = [numbered(5), numbered(0, producer_id=8)]
    assert rows_of(life, [*in_flight, *behind]) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * 7
    assert partition.log_end_offset == 5
    life.kill()
    life.disk.errors.mend()
    again = Life(life.disk, life.schedule, flushing=True)
    assert rows_of(again, [*in_flight, *behind]) == [(ErrorCode.NONE, offset) for offset in range(7)]
    assert rows_of(again, in_flight[2:]) == [(ErrorCode.NONE, offset) for offset in range(2, 5)]


@pytest.mark.parametrize("calls", [("append",), ("open", "read", "write", "list")], ids=["append", "others"])
def test_what_is_refused_for_want_of_a_descriptor_is_not_in_the_log(life, calls):
    """And what is there is a duplicate without a file."""
    partition = life.assembly.broker.cluster.partition("ledger", 0)
    assert rows_of(life, [numbered(0)]) == [(ErrorCode.NONE, 0)]
    life.disk.errors.break_down(BadDisk(frozenset(calls), errno.EMFILE, 0, FOR_EVER))
    for tries in range(2):
        first, second = rows_of(life, [numbered(0), numbered(1)])
        assert first == (ErrorCode.NONE, 0)
        assert second == ((ErrorCode.NONE, 1) if "open" in calls else (ErrorCode.KAFKA_STORAGE_ERROR, -1)), tries
    assert partition.offline is None
    life.disk.errors.mend()
    assert rows_of(life, [numbered(1)]) == [(ErrorCode.NONE, 1)]
