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
def followed(write_log):
    return Followed(write_log)


def aborted(partition):
    return partition.find_aborted(0, 2**62).tolist()


def test_what_is_appended_is_read_and_nothing_twice(followed):
    followed.log.data(3)
    assert followed.ends() == (3, 3)
    followed.log.data(producer_id=7)
    assert followed.ends() == followed.ends() == (4, 3)
    followed.log.marker(7, commit=False)
    assert followed.ends() == (5, 5) and aborted(followed.partition) == [[7, 3, 4]]
    followed.log.roll().data(2)
    assert followed.ends() == (7, 7) and aborted(followed.partition) == [[7, 3, 4]]


def test_what_is_aborted_is_told_of_the_transactions_that_reach_into_the_offsets(followed):
    for producer_id in (8, 7):
        followed.log.data(producer_id=producer_id)
        followed.log.marker(producer_id, commit=False)
    followed.ends()
    first, second = [8, 0, 1], [7, 2, 3]
    told = {
        bounds: followed.partition.find_aborted(*bounds).tolist()
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
    followed.partition.forget_below(2)
    assert aborted(followed.partition) == [second]
    assert [followed.partition.covers(offset) for offset in (1, 2, 3)] == [False, True, True]


def test_a_log_that_was_cut_below_what_was_read_is_read_anew(followed):
    """The cut is that of an unclean start: a marker and an aborted transaction are replaced by other batches."""
    followed.log.data(3)
    kept_bytes, kept_offset = followed.size_bytes, followed.log.next_offset
    followed.log.data(producer_id=7)
    followed.log.marker(7, commit=False)
    assert followed.ends() == (5, 5) and aborted(followed.partition) == [[7, 3, 4]]
    followed.cut(kept_bytes)
    assert followed.ends() == (3, 3) and aborted(followed.partition) == []
    followed.log.next_offset = kept_offset
    followed.log.data(producer_id=8)
    assert followed.ends() == (4, 3)
    followed.log.marker(8, commit=True)
    assert followed.ends() == (5, 5) and aborted(followed.partition) == []
    assert followed.partition.last_marker_ms == {8: 2000}


def test_a_log_that_was_cut_exactly_behind_what_was_read_goes_on(followed):
    followed.log.data(3)
    assert followed.ends() == (3, 3)
    size_bytes = followed.size_bytes
    followed.log.data(producer_id=7)
    followed.cut(size_bytes)
    assert followed.ends() == (3, 3)


@pytest.mark.parametrize("read_before", [False, True])
def test_a_segment_that_was_read_and_deleted_is_not_missed(followed, read_before):
    followed.log.data(3, producer_id=7)
    assert followed.ends() == (3, 0)
    first = followed.log.path
    followed.log.roll().data(2)
    if read_before:
        assert followed.ends() == (5, 0)
    first.unlink()
    assert followed.ends() == (5, 3)
    assert [each.first_offset for each in followed.partition.open_transactions] == [0]
