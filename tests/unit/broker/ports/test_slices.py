"""Slices of files: a slice can be sent even after its file is renamed or removed."""

import os
import socket

import pytest

from ottla.broker.ports.disk import RealDisk
from ottla.broker.ports.slices import CutShort

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def disk():
    class Disk(RealDisk):
        """A disk that records what was opened."""

        def open(self, path, create=False):
            opened.append(super().open(path, create))
            return opened[-1]

    opened = []
    yield Disk(open_files_max=8)
    for file in opened:
        file.close()


def written(disk, path, content=CONTENT):
    file = disk.open(str(path), create=True)
    file.append([content])
    return file


def take_all(part):
    data = b""
    while part:
        data += part.take(100_000)
    return data


def test_a_slice_is_taken_from_its_front(disk, tmp_path):
    part = written(disk, tmp_path / "a").slice(10, 1000)
    assert len(part) == 1000
    assert part.take(300) == CONTENT[10:310]
    assert len(part) == 700
    assert part.take(5000) == CONTENT[310:1010]
    assert not part


def test_a_slice_outlives_the_file_and_its_name(disk, tmp_path):
    file = written(disk, tmp_path / "a")
    first, second = file.slice(0, len(CONTENT)), file.slice(5, 100)
    file.close()
    (tmp_path / "a").rename(tmp_path / "b")
    written(disk, tmp_path / "a", b"another")
    (tmp_path / "b").unlink()
    assert take_all(first) == CONTENT
    assert take_all(second) == CONTENT[5:105]


def test_a_file_that_others_push_out_keeps_its_descriptor_while_it_is_sliced(disk, tmp_path):
    part = written(disk, tmp_path / "a").slice(0, len(CONTENT))
    (tmp_path / "a").rename(tmp_path / "b")  # without close: opened again, it would be missed
    for number in range(40):
        written(disk, tmp_path / str(number))
    assert take_all(part) == CONTENT


def test_descriptors_are_closed_when_nothing_is_sliced_any_more(disk, tmp_path):
    file = written(disk, tmp_path / "a")
    parts = [file.slice(0, 10), file.slice(0, 10)]
    descriptor = file.descriptor
    file.close()
    parts.pop()
    os.fstat(descriptor)
    parts.pop()
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_at_most_half_of_the_files_are_held_by_slices(disk, tmp_path):
    files = [written(disk, tmp_path / str(number)) for number in range(8)]
    parts = [file.slice(0, 10) for file in files]
    assert [part is not None for part in parts] == [True] * 4 + [False] * 4
    assert files[0].slice(0, 10) is not None  # it is held already
    del parts[0]
    assert files[7].slice(0, 10) is not None


def test_the_kernel_sends_a_slice_until_the_socket_is_full(disk, tmp_path):
    content = os.urandom(1 << 20) * 16
    part = written(disk, tmp_path / "a", content).slice(3, len(content) - 3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        received = b""
        full = 0
        while part:
            if part.send_to(ours.fileno(), 0) == 0:
                full += 1
                received += theirs.recv(1 << 20)
        ours.close()
        while more := theirs.recv(1 << 20):
            received += more
    assert full
    assert received == content[3:]


def test_the_kernel_leaves_what_is_spared(disk, tmp_path):
    part = written(disk, tmp_path / "a").slice(0, 1000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert part.send_to(ours.fileno(), 300) == 700
        assert theirs.recv(5000) == CONTENT[:700]
    assert take_all(part) == CONTENT[700:1000]


def test_a_slice_of_a_truncated_file_raises_cut_short(disk, tmp_path):
    file = written(disk, tmp_path / "a")
    part = file.slice(0, len(CONTENT))
    file.truncate(1000)
    assert part.take(5000) == CONTENT[:1000]
    with pytest.raises(CutShort):
        part.take(1)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(CutShort):
        part.send_to(ours.fileno(), 0)
