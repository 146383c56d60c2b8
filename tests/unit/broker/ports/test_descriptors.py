"""Files beyond the limit: closed while they are not in use, opened again by the next use."""

import errno
import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.ports.descriptors import Descriptors, connection_share, descriptor_limit, log_share
from ottla.broker.ports.disk import RealDisk


def descriptors_of(paths):
    """Count the descriptors of this process that refer to these files."""
    known = {(path.stat().st_dev, path.stat().st_ino) for path in paths}
    found = 0
    for descriptor in Path("/dev/fd").iterdir():
        with suppress(OSError):
            status = os.fstat(int(descriptor.name))
            found += (status.st_dev, status.st_ino) in known
    return found


class File:
    def __init__(self, name):
        self.name = name
        self.used = True
        self.resting = False
        self.held = False

    def release_descriptor(self):
        self.resting = True


def test_more_files_than_descriptors_can_be_written_and_read(tmp_path):
    disk = RealDisk(open_files_max=4)
    files = [disk.open(str(tmp_path / f"{number}"), create=True) for number in range(20)]
    for number, file in enumerate(files):
        file.append([b"%d" % number])
    for number, file in enumerate(files):
        file.append([b"!"])
        assert file.pread(9, 0) == b"%d!" % number
        assert file.size_bytes == len(b"%d!" % number)
    assert descriptors_of(tmp_path.iterdir()) == 4
    for file in files:
        file.close()
    assert descriptors_of(tmp_path.iterdir()) == 0


def test_a_closed_file_is_not_opened_again(tmp_path):
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    file.close()
    with pytest.raises(OSError) as caught:
        file.pread(1, 0)
    assert caught.value.errno == errno.EBADF
    file.close()


def test_a_file_in_use_keeps_its_descriptor_while_unused_ones_lose_theirs():
    descriptors = Descriptors(3)
    busy, *idle = [File(number) for number in range(12)]
    descriptors.add(busy)
    for file in idle:
        descriptors.add(file)
        file.used = False
        busy.used = True
    assert not busy.resting
    assert [file.resting for file in idle] == [True] * 9 + [False] * 2
    assert len(descriptors) == 3


def test_the_first_opened_file_is_released_when_all_are_in_use():
    descriptors = Descriptors(3)
    files = [File(number) for number in range(4)]
    for file in files:
        descriptors.add(file)
    assert [file.resting for file in files] == [True, False, False, False]


@pytest.mark.parametrize("limit", [64, 256, 1024, 20_000, 1 << 20])
def test_log_and_connection_shares_leave_descriptors_for_other_files(limit):
    others = limit - log_share(limit) - connection_share(limit)
    assert others == min(96, limit // 8)
    assert connection_share(limit) > limit // 4


def test_logs_that_were_given_more_leave_less_to_connections():
    assert connection_share(1024, 800) == 1024 - 800 - 96
    assert connection_share(1024, 5000) == 1


def test_without_a_limit_of_the_system_there_is_a_share_all_the_same(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert log_share(descriptor_limit()) == 65_536
    assert connection_share(descriptor_limit()) > 900_000
