"""The disk in memory answers as the file system does."""

from ottla.broker.ports.disk import RealDisk
from ottla.testkit.in_memory.ram_disk import RamDisk


def answer(call, *arguments):
    """Return the result of a call, or the kind of its error."""
    try:
        return call(*arguments)
    except OSError as error:
        return type(error)


def do_everything(disk, root):
    """Return what the disk answers to a script of calls."""
    disk.make_dirs(f"{root}/topic-0")
    log = disk.open(f"{root}/topic-0/1.log", create=True)
    log.append([b"first ", b"second"])
    log.overwrite(0, b"F")
    seen = [
        answer(disk.make_dir, f"{root}/topic-0"),
        answer(disk.make_dir, f"{root}/topic-1"),
        answer(disk.list, root),
        answer(disk.list, f"{root}/topic-0/1.log"),
        answer(disk.list, f"{root}/absent"),
        answer(disk.open, f"{root}/absent"),
        answer(disk.rename, f"{root}/absent", f"{root}/other"),
        answer(disk.remove, f"{root}/absent"),
        answer(disk.size_bytes, f"{root}/topic-0/1.log"),
        log.pread(6, 3),
    ]
    log.truncate(5)
    disk.write_atomically(f"{root}/meta", b"content")
    disk.rename(f"{root}/topic-0/1.log", f"{root}/topic-0/2.log")
    seen += [disk.list(f"{root}/topic-0"), disk.read(f"{root}/topic-0/2.log"), disk.list(root)]
    disk.remove(f"{root}/meta")
    return [*seen, disk.exists(f"{root}/meta"), disk.exists(f"{root}/topic-1"), log.size_bytes]


def test_a_disk_in_memory_answers_as_the_file_system_does(tmp_path):
    assert do_everything(RamDisk(), "/data") == do_everything(RealDisk(), str(tmp_path / "data"))


def test_a_sync_in_memory_has_ended_when_it_is_started():
    ended = []
    job = RamDisk().start_sync(["/data"], lambda: ended.append(True))
    assert (job.done, job.error, ended) == (True, None, [True])
