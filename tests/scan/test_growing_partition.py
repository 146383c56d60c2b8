"""A log that is followed while it grows, and read again from its start if it does not continue where it ended."""

import os

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan.growing_partition import GrowingPartition
from ottla.scan.listing import list_partitions


class Followed:
    """A partition with a writer and a follower."""

    def __init__(self, write_log):
        self.log = write_log()
        self.root = write_log.root
        self.partition = GrowingPartition(0, "fail")

    def ends(self):
        """Return the current (log end offset, last stable offset)."""
        (listed,) = list_partitions(str(self.root))
        self.partition.update(listed)
        return self.partition.log_end, self.partition.last_stable_offset

    def cut(self, size_bytes):
        os.truncate(self.log.path, size_bytes)

    @property
    def size_bytes(self):
        return self.log.path.stat().st_size


@pytest.fixture
def follower(write_log):
    return Followed(write_log)


def aborted_rows(partition):
    return partition.find_aborted(0, 2**62).tolist()


def test_appended_batches_are_read_exactly_once(follower):
    follower.log.data(3)
    assert follower.ends() == (3, 3)
    follower.log.data(producer_id=7)
    assert follower.ends() == follower.ends() == (4, 3)
    follower.log.marker(7, commit=False)
    assert follower.ends() == (5, 5) and aborted_rows(follower.partition) == [[7, 3, 4]]
    follower.log.roll().data(2)
    assert follower.ends() == (7, 7) and aborted_rows(follower.partition) == [[7, 3, 4]]


def test_find_aborted_returns_transactions_that_overlap_the_offsets(follower):
    for producer_id in (8, 7):
        follower.log.data(producer_id=producer_id)
        follower.log.marker(producer_id, commit=False)
    follower.ends()
    first, second = [8, 0, 1], [7, 2, 3]
    told = {
        bounds: follower.partition.find_aborted(*bounds).tolist()
        for bounds in [(0, 4), (0, 2), (1, 3), (2, 4), (3, 9), (4, 9)]
    }
    assert told == {
        (0, 4): [second, first],
        (0, 2): [first],
        (1, 3): [second, first],
        (2, 4): [second],
        (3, 9): [second],
        (4, 9): [],
    }
    follower.partition.forget_below(2)
    assert aborted_rows(follower.partition) == [second]
    assert [follower.partition.covers(offset) for offset in (1, 2, 3)] == [False, True, True]


def test_a_log_truncated_below_the_read_offset_is_read_again(follower):
    """The cut is that of an unclean start: a marker and an aborted transaction are replaced by other batches."""
    follower.log.data(3)
    kept_bytes, kept_offset = follower.size_bytes, follower.log.next_offset
    follower.log.data(producer_id=7)
    follower.log.marker(7, commit=False)
    assert follower.ends() == (5, 5) and aborted_rows(follower.partition) == [[7, 3, 4]]
    follower.cut(kept_bytes)
    assert follower.ends() == (3, 3) and aborted_rows(follower.partition) == []
    follower.log.next_offset = kept_offset
    follower.log.data(producer_id=8)
    assert follower.ends() == (4, 3)
    follower.log.marker(8, commit=True)
    assert follower.ends() == (5, 5) and aborted_rows(follower.partition) == []
    assert follower.partition.last_marker_ms == {8: 2000}


def test_a_log_truncated_at_the_read_offset_keeps_its_end_offset(follower):
    follower.log.data(3)
    assert follower.ends() == (3, 3)
    size_bytes = follower.size_bytes
    follower.log.data(producer_id=7)
    follower.cut(size_bytes)
    assert follower.ends() == (3, 3)


@pytest.mark.parametrize("read_before", [False, True])
def test_a_segment_that_was_read_and_deleted_is_not_missed(follower, read_before):
    follower.log.data(3, producer_id=7)
    assert follower.ends() == (3, 0)
    first = follower.log.path
    follower.log.roll().data(2)
    if read_before:
        assert follower.ends() == (5, 0)
    first.unlink()
    assert follower.ends() == (5, 3)
    assert [each.first_offset for each in follower.partition.open_transactions] == [0]
