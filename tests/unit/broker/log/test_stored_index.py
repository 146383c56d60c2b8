"""The index of a sealed segment, read from its files: the same results as from memory, with a few small reads."""

import random

import pytest

from ottla.broker.log.segments.log_segment import LogSegment
from ottla.broker.log.segments.segment_index import SegmentIndex
from ottla.broker.log.segments.stored_index import StoredIndex, Unsound
from ottla.broker.ports.disk import RealDisk, RealFile

BASE = 1_000


class CountedFile(RealFile):
    __slots__ = ("disk",)

    def pread(self, size_bytes, position):
        self.disk.reads.append(size_bytes)
        return super().pread(size_bytes, position)


class CountedDisk(RealDisk):
    __slots__ = ("reads", "whole")

    def __init__(self):
        super().__init__()
        self.reads = []
        self.whole = []

    def open(self, path, create=False):
        file = CountedFile(path, create)
        file.disk = self
        return file

    def read(self, path):
        self.whole.append(path)
        return super().read(path)


def fill_index(entries, chance):
    index = SegmentIndex(BASE, 4096)
    position, offset, time_ms = 0, BASE, 1_700_000_000_000
    while len(index.offsets) < entries:
        offset += chance.randrange(1, 9)
        time_ms += chance.randrange(-2, 4)
        size = chance.randrange(70, 9_000)
        index.account(position, size, offset - 1, time_ms)
        position += size
    index.add_time_entry()
    return index, position


def store_index(folder, index, log_size_bytes, zeros=0, disk=None):
    path = folder / f"{BASE:020d}"
    path.with_suffix(".index").write_bytes(index.offset_file() + bytes(8 * zeros))
    path.with_suffix(".timeindex").write_bytes(index.time_file() + bytes(12 * zeros))
    return StoredIndex(disk or RealDisk(), str(path), BASE, log_size_bytes)


@pytest.mark.parametrize("zeros", [0, 1, 700])
@pytest.mark.parametrize("entries", [0, 1, 2, 255, 256, 257, 1500])
def test_the_stored_index_gives_the_results_of_the_index_in_memory(tmp_path, entries, zeros):
    chance = random.Random(entries)
    index, size_bytes = fill_index(entries, chance)
    found = store_index(tmp_path, index, size_bytes, zeros)
    offsets = [BASE - 5, BASE, BASE + 2**31, *(BASE + each for each in list(index.offsets)[::7])]
    positions = [0, 1, size_bytes, size_bytes + 9, *list(index.positions)[::7]]
    offsets += [chance.randrange(BASE, BASE + 9 * entries + 9) for _ in range(50)]
    positions += [chance.randrange(size_bytes + 9) for _ in range(50)]
    for offset in offsets:
        assert found.position_before(offset) == index.position_before(offset)
    for position in positions:
        assert found.boundary_before(position) == index.boundary_before(position)
        assert found.offset_after(position) == index.offset_after(position)
    for time_ms in range(1_699_999_999_990, 1_700_000_000_000 + 10 * entries, 1 + entries // 20):
        assert found.offset_for_timestamp(time_ms) == index.offset_for_timestamp(time_ms)
    assert (found.max_timestamp_ms, found.max_timestamp_offset) == (index.max_timestamp_ms, index.max_timestamp_offset)
    found.close()


def test_a_look_up_reads_little_of_a_large_index(tmp_path):
    index, size_bytes = fill_index(20_000, random.Random(1))
    disk = CountedDisk()
    found = store_index(tmp_path, index, size_bytes, disk=disk)
    disk.reads.clear()
    found.position_before(BASE + 40_000)
    assert len(disk.reads) <= 10
    assert sum(disk.reads) <= 4096
    found.close()


@pytest.mark.parametrize("damage", ["cut entry", "cut time entry", "beyond the log", "absent"])
def test_files_that_cannot_belong_to_the_segment_are_refused(tmp_path, damage):
    index, size_bytes = fill_index(10, random.Random(2))
    store_index(tmp_path, index, size_bytes).close()
    path = tmp_path / f"{BASE:020d}"
    if damage == "cut entry":
        path.with_suffix(".index").write_bytes(index.offset_file()[:-3])
    elif damage == "cut time entry":
        path.with_suffix(".timeindex").write_bytes(index.time_file()[:-3])
    elif damage == "absent":
        path.with_suffix(".timeindex").unlink()
    limit = index.positions[-1] if damage == "beyond the log" else size_bytes
    with pytest.raises(FileNotFoundError if damage == "absent" else Unsound):
        StoredIndex(RealDisk(), str(path), BASE, limit)


def test_finding_an_offset_in_a_long_log_reads_no_whole_index(logs, produce):
    partition = logs.partition(segment_bytes=60_000, index_interval_bytes=100)
    for _ in range(1_500):
        produce(partition, value=b"x" * 100)
    logs.stop()
    logs.disk = CountedDisk()
    logs.start()
    partition = logs.partition(segment_bytes=60_000, index_interval_bytes=100)
    assert len(list(partition.log.segments)) > 3
    logs.disk.whole.clear()
    for offset in (3, 700, 301, 1_200, 299):
        logs.disk.reads.clear()
        assert partition.read(offset, 1).records
        assert len(logs.disk.reads) <= 40
        assert max(logs.disk.reads) <= 8_192
    assert logs.disk.whole == []


def test_a_segment_without_index_files_gets_them_again(tmp_path, logs, produce):
    partition = logs.partition(segment_bytes=600)
    for _ in range(20):
        produce(partition, value=b"x" * 50)
    logs.stop()
    (logs.path() / f"{0:020d}.index").unlink()
    logs.start()
    assert logs.partition(segment_bytes=600).read(1, 1).records
    assert (logs.path() / f"{0:020d}.index").exists()
    segment = LogSegment(RealDisk(), str(logs.path()), 0, 4096, size_bytes=99)
    assert isinstance(segment.index, StoredIndex)
    segment.close()
