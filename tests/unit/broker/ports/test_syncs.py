"""Syncs of many files: each file is tried once, jobs run one after the other, descriptors are closed afterwards."""

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from ottla.broker.ports import syncs
from ottla.broker.ports.disk import RealDisk
from ottla.broker.ports.syncs import Syncs, SyncThreads
from tests.timeout import EVENT_TIMEOUT_S


@pytest.fixture
def threads():
    made = SyncThreads()
    yield made
    made.stop()


@pytest.fixture
def descriptors(tmp_path):
    opened = [os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(69)]
    for number, descriptor in enumerate(opened):
        os.pwrite(descriptor, b"%d" % number, 0)
    yield opened
    for descriptor in opened:
        os.close(descriptor)


@pytest.fixture
def pipe():
    """Yield a descriptor of a pipe, which cannot be synced."""
    ends = os.pipe()
    yield ends[1]
    for end in ends:
        os.close(end)


def times_open(path):
    """Count the descriptors of this process that refer to that file. Descriptors of other tests come and go."""
    links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return links.count(str(path))


@pytest.mark.parametrize("count", [0, 1, 2, 8, 9, 69])
def test_each_file_is_synced_once_and_by_several_threads(threads, descriptors, monkeypatch, count):
    synced, used = [], set()

    def sync(descriptor):
        synced.append(descriptor)
        used.add(threading.get_ident())
        time.sleep(0.001)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(-descriptor))
    assert threads.sync(descriptors[:count]) is None
    assert sorted(synced) == descriptors[:count]
    assert count < 2 or 2 <= len(used) <= 8
    synced.clear()
    assert threads.sync(descriptors[:count], data_only=False) is None
    assert sorted(synced, reverse=True) == [-each for each in descriptors[:count]]


def test_a_sync_failure_is_returned_and_the_other_files_are_synced_once(threads, descriptors, pipe, monkeypatch):
    synced, sync = [], os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: (synced.append(descriptor), sync(descriptor)))
    for place in range(20):
        synced.clear()
        every = [*descriptors[:place], pipe, *descriptors[place:20]]
        failed = threads.sync(every)
        assert failed is not None and failed.errno == errno.EINVAL
        assert sorted(synced) == sorted(every)
    assert threads.sync(descriptors) is None


def test_files_are_synced_by_one_thread_if_no_other_can_start(threads, descriptors, pipe, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert threads.sync(descriptors) is None
    assert threads.sync([*descriptors[:3], pipe, *descriptors[3:]]).errno == errno.EINVAL


def test_a_descriptor_that_is_not_open_is_a_failure(descriptors):
    never_opened = 1 << 30
    own, ended = Syncs(), threading.Event()
    job = own.start([descriptors[0], never_opened], [], ended.set)
    assert ended.wait(EVENT_TIMEOUT_S) and job.done
    assert job.error is not None and job.error.errno == errno.EBADF
    ended.clear()
    job = own.start(descriptors[:9], [], ended.set)
    assert ended.wait(EVENT_TIMEOUT_S) and job.error is None
    own.stop()


def test_jobs_end_in_order_and_descriptors_are_closed_after_them(descriptors, tmp_path, monkeypatch):
    going, heard = threading.Event(), []
    monkeypatch.setattr(syncs, "sync_descriptor", lambda *_: going.wait(EVENT_TIMEOUT_S))
    own, last = Syncs(), threading.Event()
    copied = (tmp_path / "0").resolve()
    copy = os.dup(descriptors[0])
    own.start([copy], [], lambda: heard.append("first"))
    own.close(copy)
    own.start([descriptors[1]], [], lambda: heard.append("second"))
    assert times_open(copied) == 2
    assert heard == []
    own.start([], [], last.set)
    going.set()
    assert last.wait(EVENT_TIMEOUT_S)
    assert heard == ["first", "second"]
    assert times_open(copied) == 1
    copy = os.dup(descriptors[0])
    own.close(copy)
    assert times_open(copied) == 1
    own.stop()


def test_an_open_file_is_synced_by_the_descriptor_that_it_was_written_with(tmp_path, monkeypatch):
    disk = RealDisk(open_files_max=1)
    jobs = []
    monkeypatch.setattr(Syncs, "start", lambda syncs, *job: jobs.append(job))
    first, second = (disk.open(str(tmp_path / name), create=True) for name in "ab")
    second.append([b"x"])
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    disk.start_sync(paths)
    assert jobs.pop() == ([second.descriptor], [paths[0], paths[2]], None)
    second.close()
    disk.start_sync(paths[1:2])
    assert jobs.pop() == ([], paths[1:2], None)
    first.close()
    disk.start_sync(paths)
    assert jobs.pop() == ([], paths, None)


@pytest.mark.parametrize("write", [lambda file: file.append([b"x"]), lambda file: file.truncate(0)])
def test_a_file_is_synced_through_its_writer_although_readers_opened_it(tmp_path, monkeypatch, write):
    disk = RealDisk()
    jobs = []
    monkeypatch.setattr(Syncs, "start", lambda syncs, *job: jobs.append(job))
    path = str(tmp_path / "log")
    before = disk.open(path, create=True)
    writer = disk.open(path)
    write(writer)
    after = disk.open(path)
    after.pread(1, 0)
    disk.start_sync([path])
    assert jobs.pop() == ([writer.descriptor], [], None)
    before.close()
    after.close()
    disk.start_sync([path])
    assert jobs.pop() == ([writer.descriptor], [], None)
    writer.close()


def test_a_sync_uses_each_writers_descriptor_or_the_path_if_released(tmp_path, monkeypatch):
    disk = RealDisk()
    jobs = []
    monkeypatch.setattr(Syncs, "start", lambda syncs, *job: jobs.append(job))
    path = str(tmp_path / "log")
    first, second = disk.open(path, create=True), disk.open(path)
    first.append([b"x"])
    second.append([b"y"])
    disk.start_sync([path])
    assert jobs.pop() == ([first.descriptor, second.descriptor], [], None)
    first.release_descriptor()
    disk.start_sync([path])
    assert jobs.pop() == ([second.descriptor], [path], None)
    first.close()
    disk.start_sync([path])
    assert jobs.pop() == ([second.descriptor], [], None)
    second.close()
    assert jobs == []


def test_a_blocking_sync_uses_the_writers_descriptor(tmp_path, monkeypatch):
    asked, sync = [], os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: (asked.append(descriptor), sync(descriptor)))
    disk = RealDisk()
    path = str(tmp_path / "log")
    writer = disk.open(path, create=True)
    writer.append([b"x"])
    reader = disk.open(path)
    disk.sync([path])
    assert asked == [writer.descriptor]
    reader.close()
    writer.close()
