"""A shortage of descriptors: unused files are closed, and an error of the shortage is not taken for a failed disk."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.ports.descriptors import Shortage, as_shortage, shortage
from ottla.broker.ports.disk import RealDisk
from tests.timeout import EVENT_TIMEOUT_S


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_lack_of_descriptors_or_memory_is_a_shortage_naming_its_limit(number):
    error = as_shortage(OSError(number, os.strerror(number), "/data/a-0"))
    assert isinstance(error, Shortage) and (error.errno, error.filename) == (number, "/data/a-0")
    assert any(word in shortage(error) for word in ("RLIMIT_NOFILE", "fs.file-max", "memory"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.ENOENT])
def test_a_failed_disk_is_no_shortage(number):
    error = OSError(number, os.strerror(number))
    assert as_shortage(error) is error and shortage(error) is None


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
            file.append([b"x"])  # whether bytes remain after the end is not known
        assert not isinstance(failed.value, Shortage)
    file.append([b"!"])
    assert file.pread(9, 0) == b"before!"
    file.close()


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


@pytest.mark.slow
def test_disk_calls_without_a_free_descriptor_work_or_raise_shortage(tmp_path):
    """Run in a separate process: threads of other tests open and close descriptors at any time."""
    script = Path(__file__).with_name("no_descriptors.py")
    places = [f"--basetemp={tmp_path / 'base'}", str(script)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *places]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert ran.returncode == 0, ran.stdout
    assert "3 passed" in ran.stdout
