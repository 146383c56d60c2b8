"""A partition with very many producers is opened in steps, whatever happens between two steps."""

import errno
import os

import pytest

from ottla.broker.log import log_manager
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.producer_state_manager import SNAPSHOT_SLICE
from ottla.broker.turns import SHARE_US
from ottla.protocol.snapshot import ProducerEntry, encode_snapshot

from .conftest import NOW_MS, TOPIC_ID

COUNT = 10 * SNAPSHOT_SLICE
SETTINGS = LogConfig()


@pytest.fixture
def full_broker(logs, transactor):
    """Return a closed directory with `COUNT` producers. Every tenth has an open transaction."""
    assert not transactor(logs.partition(), 0).send(COUNT, transactional=False).error
    logs.stop()
    (path,) = logs.path().glob("*.snapshot")
    path.write_bytes(encode_snapshot(map(entry, range(COUNT))))
    logs.start()
    return logs


def entry(number):
    return ProducerEntry(number, 0, 0, number, 0, NOW_MS, -1, COUNT - number if number % 10 == 0 else -1)


def ahead(logs, topic_id=TOPIC_ID):
    return logs.manager.load_in_steps("t", 0, topic_id, SETTINGS)


def state_of(partition):
    known = {producer.producer_id: producer.to_value() for producer in partition.producers()}
    return known, dict(partition.log.producer_state.ongoing_txns), partition.last_stable_offset


def test_a_million_producers_would_be_read_in_parts_of_a_share(full_broker):
    steps = list(ahead(full_broker))
    assert sum(steps) > 5 * SHARE_US
    assert max(steps) <= SHARE_US / 2


def test_a_snapshot_that_was_read_ahead_is_not_read_again(full_broker):
    for _ in ahead(full_broker):
        pass
    for path in full_broker.path().glob("*.snapshot"):
        path.unlink()
    assert len(full_broker.partition().log.producer_state) == COUNT


@pytest.mark.parametrize("taken", [0, 1, 5, 10, 11])
def test_opening_a_partition_at_once_completes_its_stepwise_opening(full_broker, taken):
    expected = state_of(full_broker.partition())
    assert list(expected[1]) == sorted(expected[1])
    assert expected[2] == min(expected[1])
    full_broker.stop()
    full_broker.start()
    steps = ahead(full_broker)
    for _ in range(taken):
        next(steps)
    assert state_of(full_broker.partition()) == expected
    assert list(steps) == []  # the caller that was opening it finds it open


def test_several_take_the_steps_in_turns(full_broker):
    alone = len(list(ahead(full_broker)))
    full_broker.stop()
    full_broker.start()
    first, second = ahead(full_broker), ahead(full_broker)
    taken = 0
    while next(first, None) is not None:
        taken += 1 + (next(second, None) is not None)
    assert taken == alone
    assert len(full_broker.partition().log.producer_state) == COUNT


def test_a_stepwise_opening_ends_when_its_partition_is_deleted(full_broker):
    steps = ahead(full_broker)
    next(steps)
    (renamed,) = full_broker.manager.rename_for_deletion("t", 0)
    assert renamed.endswith("-delete")
    assert list(steps) == []
    assert len(full_broker.partition().log.producer_state) == 0


def test_a_damaged_snapshot_is_passed_over_also_when_it_is_read_in_steps(full_broker):
    (path,) = full_broker.path().glob("*.snapshot")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for _ in ahead(full_broker):
        pass
    assert len(full_broker.partition().log.producer_state) == 1
    assert not path.exists()


def test_the_log_of_another_topic_is_not_read_ahead(full_broker):
    assert list(ahead(full_broker, bytes(16))) == []


def test_a_stop_in_between_lets_the_next_start_read_it_all(full_broker):
    next(ahead(full_broker))
    full_broker.stop()
    full_broker.start()
    assert len(full_broker.partition().log.producer_state) == COUNT


@pytest.mark.parametrize("missing", ["topic_id_on_disk", "load"])
def test_an_io_error_during_an_opening_takes_the_directory_offline(full_broker, monkeypatch, missing):
    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    if missing == "load":
        monkeypatch.setattr(log_manager, "load_steps", fails)
    else:
        monkeypatch.setattr(full_broker.manager, "topic_id_on_disk", fails)
    assert list(ahead(full_broker)) == []
    monkeypatch.undo()
    assert "Input/output error" in full_broker.manager.offline
    assert full_broker.partition().offline == full_broker.manager.offline
