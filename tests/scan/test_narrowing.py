"""A read of few offsets reads only the necessary part of a segment."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.indexes import OFFSET_ENTRY
from ottla.scan.listing import list_partitions
from ottla.scan.narrowing import narrowed_range
from ottla.scan.ranges import cut_partition
from ottla.scan.records import ReadFilter

BATCHES, RECORDS, INDEXED_EVERY = 10, 3, 2
END = BATCHES * RECORDS


class Segment:
    """Batches of three records, every second one of them in the offset index; `positions` are those of all."""

    def __init__(self, log, root):
        self.positions = [log.data(RECORDS) for _ in range(BATCHES)]
        self.size_bytes = log.path.stat().st_size
        self.indexed = range(1, BATCHES, INDEXED_EVERY)
        self._index = log.path.with_suffix(".index")
        self.write_index(self.positions)
        self._root = root

    def write_index(self, positions):
        entries = (OFFSET_ENTRY.pack((index + 1) * RECORDS - 1, positions[index]) for index in self.indexed)
        self._index.write_bytes(b"".join(entries))

    def read(self, first_offset, end_offset):
        """Return (start, end) of the range that is read, in bytes."""
        (log,) = list_partitions(str(self._root))
        (part,) = cut_partition(0, log, 2**30)
        (piece,) = narrowed_range(part, ReadFilter(first_offset, end_offset)).pieces
        return piece.start, piece.end


@pytest.fixture
def segment(write_log):
    return Segment(write_log(), write_log.root)


@pytest.mark.parametrize("first", range(END))
def test_reading_starts_at_the_last_indexed_batch_below_the_first_offset(segment, first):
    start, end = segment.read(first, END)
    below = [index for index in segment.indexed if (index + 1) * RECORDS <= first]
    assert (start, end) == (segment.positions[below[-1]] if below else 0, segment.size_bytes)


@pytest.mark.parametrize("end_offset", range(1, END))
def test_reading_ends_at_an_indexed_batch_after_the_end_offset(segment, end_offset):
    start, end = segment.read(0, end_offset)
    behind = [index for index in segment.indexed if (index + 1) * RECORDS > end_offset][1:]
    assert (start, end) == (0, segment.positions[behind[0]] if behind else segment.size_bytes)
    assert end > segment.positions[(end_offset - 1) // RECORDS]


@pytest.mark.parametrize("moved_by", [-1, 1])
def test_an_entry_that_leads_to_no_batch_cuts_nothing(segment, moved_by):
    segment.write_index([position + moved_by for position in segment.positions])
    assert segment.read(END // 2, END // 2 + 1) == (0, segment.size_bytes)


def test_an_entry_of_another_batch_cuts_nothing(segment):
    segment.write_index([*segment.positions[1:], segment.size_bytes])
    assert segment.read(END // 2, END // 2 + 1) == (0, segment.size_bytes)
