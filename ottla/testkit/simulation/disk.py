"""Files in memory: what a killed process leaves, and what a power loss leaves. free

A kill leaves everything that was written. A power loss leaves what was synced, and of the rest what the file system
happened to have written: a prefix of the changes of names since the last sync (a journal keeps their order, and any
sync commits it, as on ext4), and of each file's unsynced bytes a prefix, or zeros where pages never arrived.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from ottla.broker.ports.disk import Buffer, Volume
from ottla.testkit.simulation.disk_errors import DiskErrors
from ottla.testkit.simulation.ports import Killed, PortCalls

Change = tuple[str, str, "Inode | str | None"]
"""(what, path, file or new path): "link", "unlink", "mkdir", "rmdir", "rename"."""

ROOT: Final = "/"
VOLUME_BYTES: Final = 1 << 40


class Inode:
    """The content of a file, and what of it is on the device (None: nothing, not even its length)."""

    __slots__ = ("data", "durable", "modified_ms")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = b""
        self.modified_ms = 0


class Names:
    """Directories and the files in them."""

    __slots__ = ("dirs", "files")

    def __init__(self) -> None:
        self.files: dict[str, Inode] = {}
        self.dirs: dict[str, dict[str, None]] = {"": {}}

    def copy(self) -> "Names":
        other = Names()
        other.files = dict(self.files)
        other.dirs = {path: dict(names) for path, names in self.dirs.items()}
        return other

    def apply(self, change: Change) -> None:
        what, path, argument = change
        parent, _, name = path.rpartition("/")
        if what == "link" and isinstance(argument, Inode):
            self.files[path] = argument
            self.dirs[parent][name] = None
        elif what == "unlink":
            del self.files[path]
            del self.dirs[parent][name]
        elif what == "mkdir":
            self.dirs[path] = {}
            self.dirs[parent][name] = None
        elif what == "rmdir":
            del self.dirs[path]
            del self.dirs[parent][name]
        elif what == "rename" and isinstance(argument, str):
            self._rename(path, argument)

    def _rename(self, old: str, new: str) -> None:
        parent, _, name = old.rpartition("/")
        del self.dirs[parent][name]
        parent, _, name = new.rpartition("/")
        self.dirs[parent][name] = None
        if old in self.files:
            self.files[new] = self.files.pop(old)
            return
        inside = f"{old}/"
        self.dirs[new] = self.dirs.pop(old)
        for path in [path for path in self.dirs if path.startswith(inside)]:
            self.dirs[new + path[len(old) :]] = self.dirs.pop(path)
        for path in [path for path in self.files if path.startswith(inside)]:
            self.files[new + path[len(old) :]] = self.files.pop(path)


class MemoryFile:
    """An open file."""

    __slots__ = ("_disk", "_inode", "size_bytes")

    def __init__(self, disk: "MemoryDisk", inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self.size_bytes: int = len(inode.data)

    def append(self, buffers: Sequence[Buffer]) -> None:
        disk, data = self._disk, self._inode.data
        try:
            disk.errors.call("append")
        except OSError:
            if disk.random.random() < 0.3:  # bytes stay behind the end where cutting back fails too
                data += b"".join(buffers)[: disk.random.randrange(1, 80)]
            raise
        try:
            disk.ports.call("append")
        except Killed:
            if disk.torn_writes:  # SIGKILL may end a write between two pages
                torn = b"".join(buffers)
                data += torn[: disk.random.randrange(len(torn) + 1)]
            raise
        for buffer in buffers:
            data += buffer
        self.size_bytes = len(data)
        disk.ports.call("append")

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._disk.errors.call("pread")
        return bytes(self._inode.data[position : position + size_bytes])

    def overwrite(self, position: int, data: Buffer) -> None:
        self._disk.errors.call("write")
        self._disk.ports.call("overwrite")
        self._inode.data[position : position + len(data)] = data
        self._disk.ports.call("overwrite")

    def truncate(self, size_bytes: int) -> None:
        self._disk.errors.call("truncate")
        self._disk.ports.call("truncate")
        del self._inode.data[size_bytes:]
        self.size_bytes = size_bytes
        self._disk.ports.call("truncate")

    def sync(self) -> None:
        self._disk.sync_inodes([self._inode])

    def close(self) -> None:
        """Nothing is held."""


class MemoryLock:
    """The lock of the one broker that runs."""

    def release(self) -> None:
        """A killed process holds no lock, so nothing is remembered."""


class MemorySyncJob:
    """A sync that ends when the schedule says so."""

    def __init__(self) -> None:
        self.done = False
        self.error: OSError | None = None


class MemoryDisk:
    """The `Disk` port. `defer(work)` runs the end of a background sync later."""

    def __init__(self, ports: PortCalls, random: Random, defer: Callable[[Callable[[], None]], None]) -> None:
        self.ports = ports
        self.random = random
        self.torn_writes = True
        self.now_ms: Callable[[], int] = int
        self.met: Counter[str] = Counter()
        self.errors = DiskErrors(self.met)
        self._defer = defer
        self._names = Names()
        self._durable = Names()
        self._journal: list[Change] = []
        self._syncs: dict[MemorySyncJob, Callable[[], None]] = {}
        self.failed_syncs = 0
        """Background syncs that failed, and that the broker may not have looked at."""

    # --- the port

    def open(self, path: str, create: bool = False) -> MemoryFile:
        self.errors.call("open")
        inode = self._names.files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(path)
            inode = self._create(path)
        return MemoryFile(self, inode)

    def exists(self, path: str) -> bool:
        return path in self._names.files or path in self._names.dirs

    def size_bytes(self, path: str) -> int:
        return len(self._file(path).data)

    def list(self, path: str) -> list[str]:
        self.errors.call("list")
        names = self._names.dirs.get(path)
        if names is None:
            raise NotADirectoryError(path) if path in self._names.files else FileNotFoundError(path)
        return sorted(names)

    def make_dir(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(path)
        self._change(("mkdir", path, None))

    def make_dirs(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            parent = "/" + "/".join(parts[:depth])
            if parent not in self._names.dirs:
                self._change(("mkdir", parent, None))

    def rename(self, old: str, new: str) -> None:
        if not self.exists(old):
            raise FileNotFoundError(old)
        self._change(("rename", old, new))

    def remove(self, path: str) -> None:
        self._file(path)
        self._change(("unlink", path, None))

    def remove_tree(self, path: str) -> None:
        for name in self.list(path):
            inside = f"{path}/{name}"
            if inside in self._names.dirs:
                self.remove_tree(inside)
            else:
                self.remove(inside)
        self._change(("rmdir", path, None))

    def read(self, path: str) -> bytes:
        self.errors.call("read")
        return bytes(self._file(path).data)

    def write(self, path: str, data: Buffer) -> None:
        self.errors.call("write")
        inode = self._names.files.get(path)
        if inode is None:
            inode = self._create(path)
        self.ports.call("write")
        inode.data[:] = data
        inode.modified_ms = self.now_ms()
        self.ports.call("write")

    def write_atomically(self, path: str, data: Buffer, sync: bool = True) -> None:
        temporary = f"{path}.tmp"
        self.write(temporary, data)
        if sync:
            self.sync([temporary])
        self.rename(temporary, path)
        if sync:
            self.sync_dir(path.rpartition("/")[0])

    def sync(self, paths: Sequence[str]) -> None:
        self.sync_inodes([self._file(path) for path in paths])

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> MemorySyncJob:
        job = MemorySyncJob()
        inodes = [inode for inode in map(self._names.files.get, paths) if inode is not None]
        contents = [bytes(inode.data) for inode in inodes]

        def end() -> None:
            if self._syncs.pop(job, None) is None:
                return  # it was ended early, or the power was gone
            try:
                self.errors.call("sync")
                for inode, content in zip(inodes, contents, strict=True):
                    if not inode.durable.startswith(content):
                        inode.durable = content
                self._settle([])
            except OSError as error:
                job.error = error
                self.failed_syncs += 1
            job.done = True
            if on_end is not None:
                on_end()

        self.ports.call("start_sync")
        self._syncs[job] = end
        self._defer(end)
        return job

    def end_syncs(self) -> None:
        """End the background syncs that are under way now."""
        for end in list(self._syncs.values()):
            end()

    def sync_dir(self, path: str) -> None:
        self.errors.call("sync_dir")
        self.ports.call("sync_dir")
        self._settle([])
        self.ports.call("sync_dir")

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def volume(self, path: str) -> Volume:
        used_bytes = sum(len(inode.data) for inode in self._names.files.values())
        return Volume(path, VOLUME_BYTES, max(0, VOLUME_BYTES - used_bytes))

    def lock(self, path: str) -> MemoryLock:
        if path not in self._names.files:
            self._create(path)
        return MemoryLock()

    def random_id(self) -> bytes:
        return self.random.randbytes(16)

    # --- what the simulation does

    def fill(self, files: Mapping[str, bytes]) -> None:
        """Put files on the device, with their directories; the broker's port calls have no part in it."""
        for path, content in files.items():
            parent = path.rpartition("/")[0]
            steps = parent.split("/")
            for depth in range(2, len(steps) + 1):
                directory = "/".join(steps[:depth])
                if directory not in self._names.dirs:
                    self._names.apply(("mkdir", directory, None))
            inode = Inode(content)
            inode.durable = bytes(content)
            self._names.apply(("link", path, inode))
        self._durable = self._names.copy()

    def all_files(self) -> dict[str, bytes]:
        """{path: content} of every file, as a process sees it."""
        return {path: bytes(inode.data) for path, inode in self._names.files.items()}

    def sync_inodes(self, inodes: Sequence[Inode]) -> None:
        """Settle files and every name so far."""
        self.errors.call("sync")
        self.ports.call("sync")
        self._settle(inodes)
        self.ports.call("sync")

    def lose_power(self) -> None:
        """Go back to what the device held."""
        self._syncs.clear()
        kept = self.random.randrange(len(self._journal) + 1)
        names = self._durable
        for change in self._journal[:kept]:
            names.apply(change)
        for path in sorted(names.files):
            inode = names.files[path]
            inode.data = bytearray(self._left_of(inode))
            inode.durable = bytes(inode.data)
        self._names, self._durable, self._journal = names, names.copy(), []

    def copy(self, ports: PortCalls, defer: Callable[[Callable[[], None]], None]) -> "MemoryDisk":
        """A twin that holds the same, and knows as well what of it is on the device."""
        twin = MemoryDisk(ports, self.random, defer)
        twin.torn_writes, twin.now_ms = self.torn_writes, self.now_ms
        twins: dict[Inode, Inode] = {}

        def of(inode: Inode) -> Inode:
            if inode not in twins:
                twins[inode] = other = Inode(bytes(inode.data))
                other.durable, other.modified_ms = inode.durable, inode.modified_ms
            return twins[inode]

        for mine, other in ((self._names, twin._names), (self._durable, twin._durable)):
            other.files = {path: of(inode) for path, inode in mine.files.items()}
            other.dirs = {path: dict(names) for path, names in mine.dirs.items()}
        twin._journal = [
            (what, path, of(argument) if isinstance(argument, Inode) else argument)
            for what, path, argument in self._journal
        ]
        return twin

    def files_under(self, path: str) -> dict[str, bytes]:
        """{path: content} of every file in a directory, as a process sees it."""
        return {f"{path}/{name}": bytes(self._file(f"{path}/{name}").data) for name in sorted(self._names.dirs[path])}

    def _left_of(self, inode: Inode) -> bytes:
        data, durable = bytes(inode.data), inode.durable
        if data == durable:
            return data
        if not data.startswith(durable):  # cut or overwritten since
            return self.random.choice((data, durable))
        end = self.random.randrange(len(durable), len(data) + 1)
        if self.random.random() < 0.3:  # the length arrived, the pages did not
            return (
                data[:end] + bytes(len(data) - end)
                if self.random.random() < 0.5
                else durable + bytes(end - len(durable))
            )
        return data[:end]

    def _settle(self, inodes: Sequence[Inode]) -> None:
        for inode in inodes:
            inode.durable = bytes(inode.data)
        for change in self._journal:
            self._durable.apply(change)
        self._journal.clear()

    def _create(self, path: str) -> Inode:
        inode = Inode()
        inode.modified_ms = self.now_ms()
        if path.rpartition("/")[0] not in self._names.dirs:
            raise FileNotFoundError(path)
        self._change(("link", path, inode))
        return inode

    def _file(self, path: str) -> Inode:
        inode = self._names.files.get(path)
        if inode is None:
            raise FileNotFoundError(path)
        return inode

    def _change(self, change: Change) -> None:
        self.errors.call(change[0])
        self.ports.call(change[0])
        self._names.apply(change)
        self._journal.append(change)
        self.ports.call(change[0])
