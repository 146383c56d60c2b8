"""Committed and pending offsets of a group (KIP-447)."""

from ottla.broker.group.offsets import GroupOffsets
from ottla.protocol.state_records import OffsetValue

KEY = ("ledger", 0)


def value(offset):
    return OffsetValue(offset, -1, "", 0)


def committed(offsets, key=KEY):
    found = offsets.committed.get(key)
    return None if found is None else found.value.offset


def test_pending_offset_counts_only_after_the_commit_marker():
    offsets = GroupOffsets()
    offsets.commit_pending(7, KEY, value(10), 0)
    assert committed(offsets) is None and offsets.is_unstable(KEY)
    offsets.end_transaction(7, commit=True)
    assert committed(offsets) == 10 and not offsets.is_unstable(KEY)


def test_abort_marker_drops_the_pending_offset():
    offsets = GroupOffsets()
    offsets.commit(KEY, value(5), 0)
    offsets.commit_pending(7, KEY, value(10), 1)
    offsets.end_transaction(7, commit=False)
    assert committed(offsets) == 5 and not offsets.is_unstable(KEY)


def test_plain_commit_that_came_later_in_the_log_wins_over_the_marker():
    offsets = GroupOffsets()
    offsets.commit_pending(7, KEY, value(10), 1)
    offsets.commit(KEY, value(20), 2)
    offsets.end_transaction(7, commit=True)
    assert committed(offsets) == 20


def test_key_stays_unstable_until_every_covering_transaction_ends():
    offsets = GroupOffsets()
    offsets.commit_pending(7, KEY, value(10), 1)
    offsets.commit_pending(8, KEY, value(11), 2)
    offsets.end_transaction(7, commit=False)
    assert offsets.is_unstable(KEY)
    offsets.end_transaction(8, commit=True)
    assert committed(offsets) == 11 and not offsets.is_unstable(KEY)


def test_tombstone_removes_committed_and_pending_offsets():
    offsets = GroupOffsets()
    offsets.commit(KEY, value(5), 0)
    offsets.commit_pending(7, KEY, value(10), 1)
    offsets.remove(KEY)
    assert offsets.places() == [] and offsets.pending == {}
    offsets.end_transaction(7, commit=True)
    assert committed(offsets) is None
