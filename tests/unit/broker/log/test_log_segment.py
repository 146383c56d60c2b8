"""Files that a segment keeps open, and for how long."""

from ottla.broker.log.segments.log_segment import LogSegment


class Disk:
    """A disk that records which files are open."""

    def __init__(self):
        self.opened = []

    def open(self, path, create):
        file = _File(self)
        self.opened.append(file)
        return file


class _File:
    def __init__(self, disk):
        self._disk = disk

    def append(self, buffers):
        pass

    def close(self):
        self._disk.opened.remove(self)


def rest(segment, unsynced=False):
    """Run a round of the checkpointer that has saved everything."""
    segment.indexes_saved = True
    segment.release_if_idle(unsynced=unsynced)


def test_a_segment_is_closed_in_the_second_round_after_its_last_append():
    disk = Disk()
    segment = LogSegment(disk, "/data/t-0", 0, 4096)
    for position in (0, 100):
        segment.append(b"x" * 100, 100, position, 5)
        rest(segment)
        assert len(disk.opened) == 1
    rest(segment)
    assert disk.opened == []


def test_a_segment_with_an_unsynced_file_or_unsaved_index_stays_open():
    disk = Disk()
    segment = LogSegment(disk, "/data/t-0", 0, 4096)
    segment.append(b"x" * 100, 100, 0, 5)
    for _ in range(3):
        rest(segment, unsynced=True)
        segment.indexes_saved = False
        segment.release_if_idle(unsynced=False)
        assert len(disk.opened) == 1


def test_closing_a_segment_twice_closes_its_file_once():
    disk = Disk()
    segment = LogSegment(disk, "/data/t-0", 0, 4096)
    segment.append(b"x" * 100, 100, 0, 5)
    for _ in range(2):
        segment.close()
        assert disk.opened == []
