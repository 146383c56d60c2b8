"""Committed offsets of topics that are deleted, and of topics that are created again."""

from types import SimpleNamespace

import pytest

from ottla.broker.group import deleted_topics, tombstones
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.members import Caller
from ottla.broker.turns import SHARE_US
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.values import ProducerIdAndEpoch
from tests.fetching import fetch

ROW = CommitRow("t", 0, 42, -1, "")
PRODUCER = ProducerIdAndEpoch(7, 0)


@pytest.fixture(autouse=True)
def slow(monkeypatch):
    """Make every key take a whole turn budget."""
    for module in (tombstones, deleted_topics):
        monkeypatch.setattr(module, "ROW_US", SHARE_US)
    monkeypatch.setattr(tombstones, "KEYS_AT_ONCE", 1)


def commit(rig, *rows, producer=None):
    assert rig.commits.commit(Caller("g"), rows, producer) == [E.NONE] * len(rows)


def delete_topics(rig, *names):
    """Delete the topics. The scan for their offsets has begun and waits for its next turn."""
    (gone,) = rig.cluster.on_topic_deleted
    for name in names:
        rig.turns.event(lambda name=name: gone(SimpleNamespace(name=name)))


def offsets(rig):
    """Return {(topic, partition): offset} of the committed offsets."""
    _, topics = fetch(rig.commits, "g", None, False)
    return {(topic, index): found.offset for topic, rows in topics for index, found in rows}


def test_offsets_committed_to_a_recreated_topic_are_kept(rig):
    commit(rig, *(ROW._replace(partition=index) for index in range(3)))
    delete_topics(rig, "t")
    commit(rig, ROW._replace(partition=2, offset=7))
    rig.clock.settle()
    assert offsets(rig) == {("t", 2): 7}


@pytest.mark.parametrize("commits", [True, False])
def test_an_offset_of_a_deleted_topic_is_kept_until_a_later_txn_ends(rig, commits):
    commit(rig, *(ROW._replace(partition=index) for index in range(3)))
    delete_topics(rig, "t")
    commit(rig, ROW._replace(partition=2, offset=7), producer=PRODUCER)
    rig.clock.advance(10 * deleted_topics.COVERED_MS)
    assert offsets(rig) == {("t", 2): 42}
    rig.mark(7, commits)
    rig.clock.advance(deleted_topics.COVERED_MS)
    assert offsets(rig) == ({("t", 2): 7} if commits else {})
    assert not rig.clock.armed - 1  # the next check for expired offsets


def test_pending_offsets_of_a_deleted_topic_are_removed_after_the_markers(rig):
    for producer_id in (8, 9):
        commit(rig, ROW, ROW._replace(partition=1), producer=ProducerIdAndEpoch(producer_id, 0))
    delete_topics(rig, "t")
    commit(rig, ROW._replace(partition=1, offset=7), producer=PRODUCER)
    rig.clock.settle()
    rig.mark(8)
    rig.mark(7, commit=False)
    assert offsets(rig) == {("t", 1): 42}
    rig.clock.advance(deleted_topics.COVERED_MS)
    assert offsets(rig) == {} and not rig.known["g"].offsets.at_most


def test_a_stop_cancels_the_timer_for_deleted_topics(rig):
    commit(rig, ROW, ROW._replace(partition=1))
    delete_topics(rig, "t")
    commit(rig, ROW._replace(partition=1), producer=PRODUCER)
    rig.clock.settle()
    rig.groups.stop()
    assert not rig.clock.armed


def test_topics_that_are_deleted_while_others_are_forgotten_are_forgotten_too(rig):
    commit(rig, ROW, *(ROW._replace(topic=name) for name in "uvw"))
    delete_topics(rig, *"tuv")
    rig.clock.settle()
    assert offsets(rig) == {("w", 0): 42}
