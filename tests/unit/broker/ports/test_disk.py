import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from lab.in_memory.disk import MemoryDisk
from ottla.broker.costs import FILE_CALL_US, WRITE_FILE_US
from ottla.broker.ports.disk import RealDisk
from ottla.broker.ports.locks import LockHeld
from ottla.testkit.in_memory.ports import PortCalls
from tests.timeout import EVENT_TIMEOUT_S


@pytest.fixture
def disk():
    return RealDisk()


class Failing(set):
    """Paths whose sync fails."""

    def __init__(self):
        self.tried = []

    def sync(self, descriptor):
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        self.tried.append(path)
        if path in self:
            raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def failing(monkeypatch):
    paths = Failing()
    monkeypatch.setattr(os, "fdatasync", paths.sync)
    monkeypatch.setattr(os, "fsync", paths.sync)
    return paths


def test_appends_go_to_the_end_in_order(disk, tmp_path):
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append([b"one"])
    file.append([bytearray(b"two"), memoryview(b"three")])
    assert file.size_bytes == 11
    assert file.pread(100, 3) == b"twothree"
    file.close()
    again = disk.open(str(tmp_path / "f"))
    again.append([b"!"])
    assert (tmp_path / "f").read_bytes() == b"onetwothree!"
    again.close()


def test_more_buffers_than_one_call_takes(disk, tmp_path):
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append([b"%04d" % n for n in range(3000)])
    assert (tmp_path / "f").read_bytes() == b"".join(b"%04d" % n for n in range(3000))
    file.close()


def test_short_writes_go_on(disk, tmp_path, monkeypatch):
    file = disk.open(str(tmp_path / "f"), create=True)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:3], at))
    file.append([b"0123456789"])
    assert (tmp_path / "f").read_bytes() == b"0123456789"
    file.overwrite(2, b"abcde")
    assert (tmp_path / "f").read_bytes() == b"01abcde789"
    file.close()


def test_a_failed_append_leaves_the_file_as_it_was(disk, tmp_path, monkeypatch):
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append([b"before"])
    write, calls = os.pwrite, []

    def full(fd, data, at):
        calls.append(at)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, bytes(data)[:3], at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        file.append([b"0123456789"])
    monkeypatch.undo()
    assert (tmp_path / "f").read_bytes() == b"before"
    assert file.size_bytes == 6
    file.append([b"!"])
    assert (tmp_path / "f").read_bytes() == b"before!"
    file.close()


def test_truncate(disk, tmp_path):
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append([b"0123456789"])
    file.truncate(4)
    file.sync()
    file.append([b"x"])
    assert (tmp_path / "f").read_bytes() == b"0123x"
    file.close()
    file.close()


def test_an_atomic_write_replaces_the_file_and_leaves_no_other(disk, tmp_path):
    path = str(tmp_path / "f")
    for sync in (True, False):
        disk.write_atomically(path, b"first content", sync)
        disk.write_atomically(path, b"second", sync)
        assert disk.read(path) == b"second"
        assert disk.list(str(tmp_path)) == ["f"]
    disk.write(path, b"3")
    assert disk.size_bytes(path) == 1


def test_a_file_that_is_written_whole_costs_more_than_a_call(disk, tmp_path):
    charged = []
    for each, directory in ((disk, str(tmp_path)), (MemoryDisk(PortCalls(), Random(1), lambda end: end()), "")):
        each.charge = charged.append
        each.write_atomically(f"{directory}/f", b"", sync=False)
        assert sum(charged) >= WRITE_FILE_US + FILE_CALL_US
        charged.clear()


def test_a_call_is_charged_what_it_took_if_that_is_more_than_it_costs(disk, tmp_path):
    charged, now_ns = [], iter(range(0, 1 << 40, 3_000_000))  # 3 ms pass between two looks at the clock
    disk.charge, disk.now_ns = charged.append, now_ns.__next__
    file, made = str(tmp_path / "f"), str(tmp_path / "d")
    calls = [
        lambda: disk.write(file, b"content"),
        lambda: disk.read(file),
        lambda: disk.list(str(tmp_path)),
        lambda: disk.exists(file),
        lambda: disk.size_bytes(file),
        lambda: disk.sync_dir(str(tmp_path)),
        lambda: disk.make_dir(made),
        lambda: disk.rename(file, f"{made}/f"),
        lambda: disk.remove(f"{made}/f"),
        lambda: disk.remove_tree(made),
    ]
    for call in calls:
        call()
    assert charged == [3_000.0] * len(calls)
    with pytest.raises(FileNotFoundError):
        disk.remove(file)
    assert charged.pop() == 3_000.0


def test_calls_on_an_absent_path_raise_file_not_found_error(disk, tmp_path):
    path = str(tmp_path / "absent")
    for call in (disk.open, disk.read, disk.list, disk.size_bytes, disk.remove, disk.modified_ms, disk.sync_dir):
        with pytest.raises(FileNotFoundError):
            call(path)
    assert not disk.exists(path)


def await_job(job):
    """Return the job after its thread has finished it."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not job.done and time.monotonic() < deadline:
        time.sleep(0.001)
    assert job.done
    return job


@pytest.mark.parametrize("count", [1, 9, 150])
def test_syncs(disk, tmp_path, count):
    paths = [str(tmp_path / str(n)) for n in range(count)]
    for path in paths:
        disk.write(path, b"x")
    disk.sync(paths)
    disk.sync([])
    disk.sync_dir(str(tmp_path))
    files = [disk.open(path) for path in paths[::2]]
    job = await_job(disk.start_sync([*paths, str(tmp_path), str(tmp_path / "deleted in the meantime")]))
    assert job.error is None
    for file in files:
        file.close()
    with pytest.raises(FileNotFoundError):
        disk.sync([*paths, str(tmp_path / "never there")])


@pytest.mark.parametrize("opened", [True, False])
def test_a_failed_sync_reports_its_error(disk, tmp_path, failing, opened):
    paths = [str(tmp_path / str(number)) for number in range(4)]
    files = [disk.open(path, create=True) for path in paths]
    if not opened:
        for file in files:
            file.close()
    failing.add(str(tmp_path / "2"))
    if not opened:
        with pytest.raises(OSError, match="Input/output"):
            disk.sync(paths)
    job = await_job(disk.start_sync(paths))
    assert job.error is not None and job.error.errno == errno.EIO
    assert sorted(failing.tried[-4:]) == paths
    failing.clear()
    assert await_job(disk.start_sync(paths)).error is None
    for file in files:
        file.close()


def test_a_lock_keeps_out_this_process_and_others(disk, tmp_path):
    path = str(tmp_path / ".lock")
    lock = disk.lock(path)
    with pytest.raises(LockHeld) as held:
        disk.lock(path)
    assert held.value.pid == os.getpid()
    other = (
        "import sys\nfrom ottla.broker.ports.disk import RealDisk\nfrom ottla.broker.ports.locks import LockHeld\n"
        "try: RealDisk().lock(sys.argv[1])\nexcept LockHeld as held: print(held.pid)"
    )
    run = subprocess.run([sys.executable, "-c", other, path], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(os.getpid())
    lock.release()
    lock.release()
    disk.lock(path).release()


KAFKAS_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: sys.exit("held")
"""


def kafka_is_kept_out(path):
    """Return whether another process cannot take the POSIX lock."""
    run = subprocess.run([sys.executable, "-c", KAFKAS_LOCK, path], capture_output=True, text=True)
    assert run.stderr in ("", "held\n")
    return run.returncode == 1


def test_a_broker_that_is_refused_leaves_the_lock_of_the_first_as_it_is(disk, tmp_path):
    path = str(tmp_path / ".lock")
    lock = disk.lock(path)
    assert kafka_is_kept_out(path)
    with pytest.raises(LockHeld) as held:
        RealDisk().lock(path)
    assert held.value.pid == os.getpid()
    assert kafka_is_kept_out(path)
    lock.release()
    assert not kafka_is_kept_out(path)
    disk.lock(path).release()


def test_a_lock_that_cannot_be_written_is_not_kept(disk, tmp_path, monkeypatch):
    path = str(tmp_path / ".lock")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            disk.lock(path)
    assert not kafka_is_kept_out(path)
    disk.lock(path).release()


def test_random_ids_differ(disk):
    assert len({disk.random_id() for _ in range(100)}) == 100
    assert len(disk.random_id()) == 16
