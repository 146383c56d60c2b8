"""A pull that dies at any write, and runs again: the copy is that of a pull that was not interrupted."""

import random

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.broker.ports.disk import RealDisk, RealFile
from ottla.cli.pull.directory import Progress, Pull, open_directory
from ottla.cli.pull.source import Request, list_source
from ottla.protocol.checkpoints import CLEAN_SHUTDOWN
from ottla.wire.address import connections_to, parse_kafka_address
from tests.audit.test_pull import logs_of, recover, serving

SEGMENT_BYTES = 700
KILLS = 12
EVERYTHING = Request(("*",), groups=True, transactions=True)
SILENT = Progress(lambda done, count: None, lambda size_bytes: None)


class Killed(BaseException):
    """The process died."""


class KilledFile(RealFile):
    """A file whose last append is cut short."""

    def append(self, buffers):
        content = b"".join(buffers)
        if self._disk.dies():
            super().append((content[: len(content) // 2],))
            raise Killed
        super().append((content,))


class KilledDisk(RealDisk):
    """A disk that kills its user at the n-th change; `changes` counts them."""

    __slots__ = ("changes", "last")

    def __init__(self, last=None):
        super().__init__()
        self.changes, self.last = 0, last

    def dies(self):
        self.changes += 1
        return self.changes == self.last

    def open(self, path, create=False):
        return KilledFile(path, create, self)

    def _write(self, path, data, sync):
        if self.dies():
            super()._write(path, data[: len(data) // 2], sync)
            raise Killed
        super()._write(path, data, sync)

    def rename(self, old, new):
        if self.dies():
            raise Killed
        super().rename(old, new)

    def make_dir(self, path):
        if self.dies():
            raise Killed
        super().make_dir(path)

    def remove(self, path):
        if self.dies():
            raise Killed
        super().remove(path)


def pull(broker, place, disk):
    address = parse_kafka_address(f"kafka://{broker.bootstrap}")
    with connections_to(address).borrow() as cluster:
        source = list_source(cluster, EVERYTHING)
    with open_directory(disk, str(place)) as mark:
        run = Pull(disk, str(place), address, mark, source, 0)
        run.run(SILENT, SEGMENT_BYTES)
        run.finish(0)
    assert run.left_out == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["transactions-across-segments", "compacted-transactions", "group-offsets-in-transactions-v2"]
)
def test_a_pull_continues_after_a_kill_at_any_write(case, tmp_path):
    broker, _ = serving(case, tmp_path)
    with broker:
        whole = KilledDisk()
        pull(broker, tmp_path / "whole", whole)
        expected = logs_of(tmp_path / "whole")
        draw = random.Random(case)
        for number in range(KILLS):
            copy = tmp_path / str(number)
            kills = 0
            for last in (draw.randrange(1, whole.changes), draw.randrange(1, whole.changes // 2)):
                try:
                    pull(broker, copy, KilledDisk(last))
                except Killed:
                    kills += 1
                    assert not (copy / CLEAN_SHUTDOWN).exists()
            assert kills > 0
            pull(broker, copy, RealDisk())
            assert logs_of(copy) == expected == recover(copy)
            assert (copy / CLEAN_SHUTDOWN).exists()
