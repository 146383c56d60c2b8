"""When there are no descriptors left: what rests makes room, and what cannot be done is told from a failed disk."""

import errno
import gc
import os
import resource
import threading
from contextlib import contextmanager

import pytest

from ottla.broker.ports import syncs
from ottla.broker.ports.descriptors import Shortage, shortage, told
from ottla.broker.ports.disk import RealDisk


@contextmanager
def no_descriptor_left():
    """Whatever this process may open is open."""
    gc.collect()  # what earlier tests have left must not give a descriptor back meanwhile
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


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_is_told_from_a_failed_disk_and_names_its_limit(number):
    error = told(OSError(number, os.strerror(number), "/data/a-0"))
    assert isinstance(error, Shortage) and (error.errno, error.filename) == (number, "/data/a-0")
    assert any(word in shortage(error) for word in ("RLIMIT_NOFILE", "fs.file-max", "memory"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.ENOENT])
def test_a_failed_disk_is_no_shortage(number):
    error = OSError(number, os.strerror(number))
    assert told(error) is error and shortage(error) is None


def test_all_that_the_disk_does_goes_on_without_a_descriptor_to_be_had(tmp_path):
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


def test_where_nothing_can_rest_the_call_has_done_nothing_and_says_so(tmp_path):
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


def test_an_append_that_finds_no_memory_has_written_nothing(tmp_path, monkeypatch):
    file = RealDisk().open(f"{tmp_path}/log", create=True)
    file.append([b"before"])

    def fails(*_):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails)
        with pytest.raises(Shortage):
            file.append([b"x"])
        patch.setattr(os, "ftruncate", fails)
        with pytest.raises(OSError, match="memory") as failed:
            file.append([b"x"])  # whether something stays behind the end is not known
        assert not isinstance(failed.value, Shortage)
    file.append([b"!"])
    assert file.pread(9, 0) == b"before!"
    file.close()


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
        assert ended.wait(10) and job.error is None
        assert len(taken) == before - 1  # one was enough, for one after the other
    (said,) = caplog.messages
    assert "A sync of" in said and "RLIMIT_NOFILE" in said


def test_a_sync_that_fails_for_want_of_memory_is_a_failed_sync(tmp_path, monkeypatch):
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/log", create=True)
    file.append([b"x"])

    def fails(descriptor):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(OSError, match="memory") as failed:
        file.sync()
    assert not isinstance(failed.value, Shortage)
    with pytest.raises(OSError, match="memory") as failed:
        disk.sync([f"{tmp_path}/log"])
    assert not isinstance(failed.value, Shortage)
    file.close()
