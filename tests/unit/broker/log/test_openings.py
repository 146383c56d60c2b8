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
def crowded(broker, transactor):
    """Return a closed directory with `COUNT` producers. Every tenth has an open transaction."""
    assert not transactor(broker.partition(), 0).send(COUNT, transactional=False).error
    broker.stop()
    (path,) = broker.path().glob("*.snapshot")
    path.write_bytes(encode_snapshot(map(entry, range(COUNT))))
    broker.start()
    return broker


def entry(number):
    return ProducerEntry(number, 0, 0, number, 0, NOW_MS, -1, COUNT - number if number % 10 == 0 else -1)


def ahead(broker, topic_id=TOPIC_ID):
    return broker.manager.load_in_steps("t", 0, topic_id, SETTINGS)


def state_of(partition):
    known = {producer.producer_id: producer.to_value() for producer in partition.producers()}
    return known, dict(partition.log.producer_state.ongoing_txns), partition.last_stable_offset


def test_a_million_producers_would_be_read_in_parts_of_a_share(crowded):
    steps = list(ahead(crowded))
    assert sum(steps) > 5 * SHARE_US
    assert max(steps) <= SHARE_US / 2


def test_what_was_read_ahead_is_not_read_again(crowded):
    for _ in ahead(crowded):
        pass
    crowded.path("partition.metadata")
    for path in crowded.path().glob("*.snapshot"):
        path.unlink()
    assert len(crowded.partition().log.producer_state) == COUNT


@pytest.mark.parametrize("taken", [0, 1, 5, 10, 11])
def test_who_needs_the_partition_at_once_takes_the_steps_that_are_left(crowded, taken):
    expected = state_of(crowded.partition())
    assert list(expected[1]) == sorted(expected[1])
    assert expected[2] == min(expected[1])
    crowded.stop()
    crowded.start()
    steps = ahead(crowded)
    for _ in range(taken):
        next(steps)
    assert state_of(crowded.partition()) == expected
    assert list(steps) == []  # the caller that was opening it finds it open


def test_several_take_the_steps_in_turns(crowded):
    alone = len(list(ahead(crowded)))
    crowded.stop()
    crowded.start()
    first, second = ahead(crowded), ahead(crowded)
    taken = 0
    while next(first, None) is not None:
        taken += 1 + (next(second, None) is not None)
    assert taken == alone
    assert len(crowded.partition().log.producer_state) == COUNT


def test_a_partition_that_is_deleted_meanwhile_is_not_read_on(crowded):
    steps = ahead(crowded)
    next(steps)
    (renamed,) = crowded.manager.rename_for_deletion("t", 0)
    assert renamed.endswith("-delete")
    assert list(steps) == []
    assert len(crowded.partition().log.producer_state) == 0


def test_a_damaged_snapshot_is_passed_over_also_when_it_is_read_in_steps(crowded):
    (path,) = crowded.path().glob("*.snapshot")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for _ in ahead(crowded):
        pass
    assert len(crowded.partition().log.producer_state) == 1
    assert not path.exists()


def test_the_log_of_another_topic_is_not_read_ahead(crowded):
    assert list(ahead(crowded, bytes(16))) == []


def test_a_stop_in_between_lets_the_next_start_read_it_all(crowded):
    next(ahead(crowded))
    crowded.stop()
    crowded.start()
    assert len(crowded.partition().log.producer_state) == COUNT


@pytest.mark.parametrize("missing", ["topic_id_on_disk", "load"])
def test_storage_that_fails_under_a_reader_is_told(crowded, monkeypatch, missing):
    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    if missing == "load":
        monkeypatch.setattr(log_manager, "load_steps", fails)
    else:
        monkeypatch.setattr(crowded.manager, "topic_id_on_disk", fails)
    assert list(ahead(crowded)) == []
    monkeypatch.undo()
    assert "Input/output error" in crowded.manager.offline
    assert crowded.partition().offline == crowded.manager.offline
