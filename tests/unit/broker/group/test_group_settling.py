"""A marker that ends a transaction with very many offsets: they count at once, and are committed in slices."""

import pytest

from ottla.broker.costs import COMPLETE_OFFSET_US
from ottla.broker.group import shard
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.members import Caller
from ottla.broker.group.offsets import GroupOffsets
from ottla.broker.turns import SHARE_US
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.values import ProducerIdAndEpoch
from tests.fetching import fetch

COUNT, AT_ONCE = 12_000, 1_000
PRODUCER = ProducerIdAndEpoch(7, 0)
MOST_IN_ONE_EVENT = SHARE_US / COMPLETE_OFFSET_US + 2 * shard.SETTLED_AT_ONCE


@pytest.fixture
def settle_count(monkeypatch):
    """Count the calls of `GroupOffsets.complete_pending`, in a list with one number that the test resets."""
    known, count = GroupOffsets.complete_pending, [0]

    def complete_pending(self, key, transaction):
        count[0] += 1
        known(self, key, transaction)

    monkeypatch.setattr(GroupOffsets, "complete_pending", complete_pending)
    return count


def commit_many(rig, count=COUNT, offset=5):
    for start in range(0, count, AT_ONCE):
        rows = [CommitRow("t", index, offset, -1, "") for index in range(start, min(count, start + AT_ONCE))]
        rig.turns.event(lambda rows=rows: rig.commits.commit(Caller("g"), rows, PRODUCER))


def mark(rig, commit=True):
    rig.turns.event(lambda: rig.mark(7, commit))


def fetch_stable(rig, count=COUNT):
    """Return the stable offsets of the first and the last partition."""
    _, ((_, rows),) = fetch(rig.commits, "g", [("t", [0, count - 1])], True)
    return [found.offset for _, found in rows]


def count_per_event(rig, settle_count):
    """Return the number of offsets that each event settles."""
    found, settle_count[0] = [], 0
    while not rig.shard_of().is_settled:
        assert rig.clock.one_turn()
        found.append(settle_count[0])
        settle_count[0] = 0
    return found


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_counts_at_once_and_its_offsets_are_handled_in_slices(rig, settle_count, commit):
    commit_many(rig)
    assert fetch_stable(rig) == [-1, -1] and settle_count == [0]
    charged_us = rig.turns.charged_us
    mark(rig, commit)
    assert settle_count[0] <= MOST_IN_ONE_EVENT and rig.turns.charged_us - charged_us <= SHARE_US
    assert fetch_stable(rig) == ([5, 5] if commit else [-1, -1])
    most = count_per_event(rig, settle_count)
    assert len(most) > 3 and max(most) <= MOST_IN_ONE_EVENT
    assert not rig.known["g"].offsets.in_transactions
    assert fetch_stable(rig) == ([5, 5] if commit else [-1, -1])


def test_two_large_transactions_in_a_row_are_both_committed(rig, settle_count):
    for offset in (5, 6):
        commit_many(rig, offset=offset)
        mark(rig)
        assert sum(count_per_event(rig, settle_count)) > 0
        assert fetch_stable(rig) == [offset, offset]


def test_the_next_transaction_is_separate_from_one_committed_in_slices(rig):
    commit_many(rig)
    mark(rig)
    commit_many(rig, 1, offset=6)
    unstable, stable = fetch(rig.commits, "g", [("t", [0, 1])], True)[1][0][1]
    assert unstable[1].error is E.UNSTABLE_OFFSET_COMMIT and stable[1].offset == 5
    rig.clock.settle()
    mark(rig, commit=False)
    assert fetch_stable(rig, 1) == [5, 5]


@pytest.mark.parametrize("commit", [True, False])
def test_a_log_with_a_large_transaction_is_loaded_in_shares(rig, settle_count, commit):
    commit_many(rig)
    mark(rig, commit)
    rig.clock.settle()
    rig.restart(settle=False)
    settle_count[0], counts = 0, []
    while rig.groups.list_groups()[0]:
        assert rig.clock.one_turn()
        counts.append(settle_count[0])
        settle_count[0] = 0
    assert sum(counts) == COUNT and max(counts) <= MOST_IN_ONE_EVENT
    assert fetch_stable(rig) == ([5, 5] if commit else [-1, -1])


@pytest.mark.slow
@pytest.mark.parametrize("commit", [True, False])
def test_a_group_can_be_deleted_while_its_offsets_are_handled_in_slices(rig, commit):
    commit_many(rig)
    mark(rig, commit)
    deleted = rig.begin(rig.groups.deletion.delete_group("g"))
    assert not deleted and not rig.shard_of().is_settled
    rig.clock.settle()
    assert deleted == [E.NONE] and not rig.known
    rig.restart()
    assert not rig.known


def test_an_empty_group_is_removed_at_the_first_scan_after_an_abort(rig):
    commit_many(rig)
    rig.clock.advance(rig.config.offsets_retention_check_interval_ms - 1)
    mark(rig, commit=False)
    rig.clock.advance(1)
    assert not rig.known
