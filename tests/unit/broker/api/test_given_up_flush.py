"""A handler that rests behind its append, and whose log goes offline meanwhile: the flush will never come."""

import pytest

from ottla.broker.api import produce
from ottla.broker.turns import SHARE_US
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.testkit.crash.script import Script, error_codes
from ottla.testkit.simulation import wire


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
