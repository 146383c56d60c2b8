"""The disk of the simulation: the state after a kill, after a power loss, and the points where a process can die."""

from random import Random

import pytest

from lab.in_memory.disk import MemoryDisk
from lab.in_memory.power import PowerLoss
from ottla.testkit.in_memory.ports import Killed, PortCalls


def make_disk(seed=1):
    disk = MemoryDisk(PortCalls(), Random(seed), lambda work: work())
    disk.make_dirs("/data/t-0")
    disk.sync_dir("/data")
    return disk


def test_files_behave_as_files():
    disk = make_disk()
    file = disk.open("/data/t-0/log", create=True)
    file.append((b"abc", b"def"))
    assert (file.size_bytes, file.pread(3, 2), disk.read("/data/t-0/log")) == (6, b"cde", b"abcdef")
    file.overwrite(1, b"X")
    file.truncate(4)
    assert disk.read("/data/t-0/log") == b"aXcd"
    disk.write_atomically("/data/meta", b"1")
    assert disk.list("/data") == ["meta", "t-0"]
    disk.rename("/data/t-0", "/data/gone")
    assert disk.read("/data/gone/log") == b"aXcd"
    disk.remove_tree("/data/gone")
    assert disk.list("/data") == ["meta"]
    for missing in (disk.read, disk.size_bytes, disk.remove, disk.list):
        with pytest.raises(FileNotFoundError):
            missing("/data/gone")
    with pytest.raises(FileExistsError):
        disk.make_dir("/data")


@pytest.mark.parametrize("seed", range(20))
def test_a_power_loss_keeps_what_was_synced(seed):
    disk = make_disk(seed)
    file = disk.open("/data/t-0/log", create=True)
    file.append((b"synced",))
    file.sync()
    file.append((b" and not",))
    disk.write("/data/t-0/later", b"later")
    disk.lose_power()
    left = disk.read("/data/t-0/log")
    assert left.startswith(b"synced")
    assert b"synced and not".startswith(left.rstrip(b"\0"))
    if disk.exists("/data/t-0/later"):
        assert b"later".startswith(disk.read("/data/t-0/later").rstrip(b"\0"))


def test_a_power_loss_takes_names_back_in_order():
    """The file system has a journal: a later name never exists without an earlier one."""
    seen = set()
    for seed in range(40):
        disk = make_disk(seed)
        for name in ("a", "b", "c"):
            disk.write(f"/data/{name}", b"")
        disk.lose_power()
        seen.add("".join(disk.list("/data")))
    assert seen == {"t-0", "at-0", "abt-0", "abct-0"}


def test_a_rename_that_was_not_synced_leaves_the_old_file():
    seen = set()
    for seed in range(30):
        disk = make_disk(seed)
        disk.write_atomically("/data/meta", b"old")
        disk.write_atomically("/data/meta", b"new", sync=False)
        disk.lose_power()
        seen.add(disk.read("/data/meta"))
    assert b"old" in seen
    assert b"new" in seen


def test_a_kill_happens_before_or_after_a_write():
    left = set()
    for call in (1, 2):
        disk = make_disk()
        disk.torn_writes = False
        file = disk.open("/data/t-0/log", create=True)
        disk.ports.kill_at = disk.ports.count + call
        with pytest.raises(Killed):
            file.append((b"abc",))
        left.add(disk.read("/data/t-0/log"))
    assert left == {b"", b"abc"}


def test_a_kill_may_tear_a_write():
    left = set()
    for seed in range(30):
        disk = make_disk(seed)
        file = disk.open("/data/t-0/log", create=True)
        disk.ports.kill_at = disk.ports.count + 1
        with pytest.raises(Killed):
            file.append((b"abc",))
        left.add(disk.read("/data/t-0/log"))
    assert left == {b"", b"a", b"ab", b"abc"}


def any_order(seed, prepare):
    disk = make_disk(seed)
    prepare(disk)
    disk.lose_power(PowerLoss.ANY_ORDER)
    return disk


def test_a_power_loss_in_any_order_takes_back_each_name_by_itself():
    def prepare(disk):
        disk.sync_dir("/")
        for name in ("a", "b"):
            disk.write(f"/data/{name}", b"")
        disk.sync(["/data/a"])  # the content, not the name

    seen = {"".join(any_order(seed, prepare).list("/data")) for seed in range(60)}
    assert seen == {"t-0", "at-0", "bt-0", "abt-0"}


def test_names_that_their_directory_has_synced_stay():
    def prepare(disk):
        disk.sync_dir("/")
        disk.write("/data/t-0/a", b"")
        disk.sync_dir("/data/t-0")
        disk.sync_dir("/data")
        disk.write("/data/t-0/b", b"")
        disk.rename("/data/t-0", "/data/t-1")

    seen = {tuple(any_order(seed, prepare).all_files()) for seed in range(60)}
    assert seen == {(f"{path}/a", *rest) for path in ("/data/t-0", "/data/t-1") for rest in ((), (f"{path}/b",))}


def test_a_background_sync_covers_only_names_that_existed_at_its_start():
    jobs = []
    disk = MemoryDisk(PortCalls(), Random(1), jobs.append)
    disk.make_dirs("/data")
    disk.sync_dir("/")
    disk.write("/data/a", b"a")
    disk.start_sync(["/data", "/data/a"])
    disk.sync_dir("/data")
    disk.write("/data/b", b"b")
    jobs[0]()
    seen = set()
    for _ in range(40):
        twin = disk.copy(PortCalls(), jobs.append)
        twin.lose_power(PowerLoss.ANY_ORDER)
        seen.add(tuple(twin.all_files()))
    assert seen == {("/data/a",), ("/data/a", "/data/b")}


@pytest.mark.slow
def test_pages_may_reach_the_device_in_any_order():
    def prepare(disk):
        disk.sync_dir("/")
        file = disk.open("/data/log", create=True)
        file.append((b"1" * 5000,))
        file.sync()
        disk.sync_dir("/data")
        file.append((b"2" * 1000,))
        file.append((b"3" * 10_000,))

    whole = b"1" * 5000 + b"2" * 1000 + b"3" * 10_000
    holes = whole_pages = older = 0
    for seed in range(300):
        left = any_order(seed, prepare).read("/data/log")
        assert left.startswith(b"1" * 5000)
        assert all(byte in (0, whole[at]) for at, byte in enumerate(left))
        whole_pages += left == whole
        holes += b"\0" * 4096 in left and left[-1:] == b"3"
        older += left[5000:8192] == b"2" * 1000 + bytes(2192) and left[8192:8200] == b"3" * 8
    assert holes and older and whole_pages


def test_a_rewritten_file_may_be_empty_after_a_power_loss():
    def prepare(disk):
        disk.sync_dir("/")
        disk.write("/data/meta", b"old")
        disk.sync(["/data/meta"])
        disk.sync_dir("/data")
        disk.write("/data/meta", b"new")

    seen = {any_order(seed, prepare).read("/data/meta") for seed in range(60)}
    assert seen == {b"", b"old", b"new"}
