"""Index files as arrays: entries that Kafka ignores are ignored, and every value in them is checked."""

import shutil

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.indexes import OFFSET_ENTRY, iter_offset_entries, iter_time_entries
from ottla.scan.index_files import batch_positions, offset_entries, time_entries
from ottla.scan.listing import list_partitions
from ottla.scan.ranges import cut_segment

ENTRIES = [(9, 400), (19, 800), (29, 1200)]


@pytest.fixture
def segment(tmp_path):
    """Write the `.index` of a segment at base offset 100 and return the segment's path."""

    def write(content):
        (tmp_path / f"{100:020d}.index").write_bytes(content)
        return str(tmp_path / f"{100:020d}.log")

    return write


def pack(entries):
    return b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)


@pytest.mark.parametrize(
    "behind",
    [b"", bytes(800), b"\0\0\1", pack([(25, 1300)]), pack([(35, 1100)])],
    ids=["nothing", "zeros", "a cut entry", "an older offset", "an older position"],
)
def test_entries_end_where_they_stop_ascending(segment, behind):
    path = segment(pack(ENTRIES) + behind)
    assert batch_positions(path, 100, 5000).tolist() == [[109, 400], [119, 800], [129, 1200]]


@pytest.mark.parametrize(("size", "left"), [(1201, 3), (1200, 2), (801, 2), (400, 0), (0, 0)])
def test_index_positions_at_or_after_the_segment_end_are_ignored(segment, size, left):
    assert len(batch_positions(segment(pack(ENTRIES)), 100, size)) == left


@pytest.mark.parametrize("first", [(0, 0), (-1, 400), (9, -400)])
def test_file_that_begins_with_no_entry_has_none(segment, first):
    assert len(batch_positions(segment(pack([first, *ENTRIES])), 100, 5000)) == 0


def test_missing_file_names_no_positions(tmp_path):
    assert batch_positions(str(tmp_path / f"{0:020d}.log"), 0, 5000).tolist() == []


def test_arrays_are_what_the_entries_are_one_by_one(reference):
    files = sorted(reference("unclean").glob("*/*.index"))
    assert any(len(offset_entries(path.read_bytes(), 0).rows) for path in files)
    for path in files:
        content, base = path.read_bytes(), int(path.stem)
        expected = [[base + entry.relative_offset, entry.position] for entry in iter_offset_entries(content)]
        assert offset_entries(content, base).rows.tolist() == expected
        content = path.with_suffix(".timeindex").read_bytes()
        expected = [[base + entry.relative_offset, entry.timestamp] for entry in iter_time_entries(content)]
        assert time_entries(content, base).rows.tolist() == expected


def test_segment_is_cut_at_the_next_entry_where_one_names_no_batch(reference, tmp_path):
    shutil.copytree(reference("clean") / "ledger-1", tmp_path / "log" / "ledger-1")
    (log,) = list_partitions(str(tmp_path / "log"))
    segment = max(log.segments, key=lambda one: one.size_bytes)
    edges = [piece.start for piece in cut_segment(segment, 8_000, 0)]
    assert len(edges) > 3
    index = tmp_path / "log" / "ledger-1" / f"{segment.base_offset:020d}.index"
    entries = [list(entry) for entry in iter_offset_entries(index.read_bytes())]
    at = next(number for number, (_, position) in enumerate(entries) if position == edges[1])
    entries[at][1] += 1
    index.write_bytes(pack(entries))
    moved = [piece.start for piece in cut_segment(segment, 8_000, 0)]
    assert moved[1] == entries[at + 1][1]
    assert edges[1] + 1 not in moved
