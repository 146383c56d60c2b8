"""Tests of the disk in a process without a free descriptor; test_shortage.py runs them in a separate process."""

import errno
import os
import resource
import threading
from contextlib import contextmanager

import pytest

from ottla.broker.ports import syncs
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.ports.disk import RealDisk
from tests.timeout import EVENT_TIMEOUT_S


@contextmanager
def no_descriptor_left():
    """Open files until the process has no descriptor left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 20, hard))
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                assert error.errno == errno.EMFILE
                break
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def test_the_disk_works_without_a_free_descriptor_by_closing_unused_files(tmp_path):
    disk = RealDisk()
    files = [disk.open(str(tmp_path / f"{number}.log"), create=True) for number in range(6)]
    (tmp_path / "grave").mkdir()
    (tmp_path / "grave" / "a").write_text("")
    with no_descriptor_left():
        for turn in range(3):
            for number, file in enumerate(files):
                file.append([b"%d" % number])
                file.sync()
                assert file.pread(9, turn) == b"%d" % number
            disk.write(f"{tmp_path}/index", b"x")
            disk.write_atomically(f"{tmp_path}/checkpoint", b"y")
            assert disk.read(f"{tmp_path}/checkpoint") == b"y"
            disk.sync_dir(str(tmp_path))
            disk.open(f"{tmp_path}/index").close()
            disk.sync([f"{tmp_path}/index", *(f"{tmp_path}/{number}.log" for number in range(6))])
            assert len(disk.list(str(tmp_path))) >= 8
        disk.remove_tree(f"{tmp_path}/grave")
    for number, file in enumerate(files):
        assert disk.read(f"{tmp_path}/{number}.log") == b"%d" % number * 3
        file.close()


def test_calls_without_a_file_to_close_raise_shortage_and_change_nothing(tmp_path):
    disk = RealDisk()
    disk.write(f"{tmp_path}/a", b"before")
    with no_descriptor_left() as taken:
        for call in (
            lambda: disk.open(f"{tmp_path}/new", create=True),
            lambda: disk.write(f"{tmp_path}/a", b"after"),
            lambda: disk.write_atomically(f"{tmp_path}/a", b"after"),
            lambda: disk.read(f"{tmp_path}/a"),
            lambda: disk.list(str(tmp_path)),
            lambda: disk.sync_dir(str(tmp_path)),
            lambda: disk.sync([f"{tmp_path}/a"]),
        ):
            with pytest.raises(Shortage):
                call()
        os.close(taken.pop())
        assert disk.list(str(tmp_path)) == ["a"]
        assert disk.read(f"{tmp_path}/a") == b"before"


def test_a_sync_waits_for_a_descriptor(tmp_path, monkeypatch, caplog):
    disk = RealDisk()
    paths = [f"{tmp_path}/{number}" for number in range(5)]
    for path in paths:
        disk.write(path, b"x")
    with no_descriptor_left() as taken:

        def sleep(seconds):
            os.close(taken.pop())

        monkeypatch.setattr(syncs.time, "sleep", sleep)
        before = len(taken)
        ended = threading.Event()
        job = disk.start_sync(paths, ended.set)
        assert ended.wait(EVENT_TIMEOUT_S) and job.error is None
        assert len(taken) == before - 1  # one was enough, for one after the other
    (said,) = caplog.messages
    assert "The sync of" in said and "RLIMIT_NOFILE" in said
