"""In-memory files, with the effects of a kill and of a power loss. free

A kill keeps all writes. A power loss keeps synced data, and a random part of the other data that the file system may
have written: see `tree.py` for names and `power.py` for bytes.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

from lab.in_memory.disk_errors import DiskErrors
from lab.in_memory.power import PowerLoss, left_by_pages, left_in_order
from lab.in_memory.tree import Directory, Inode, Tree
from ottla.broker.costs import COPY_BYTE_US, FILE_CALL_US, SYNC_US, WRITE_FILE_US
from ottla.broker.ports.disk import Buffer, Disk, Volume
from ottla.broker.ports.slices import CutShort
from ottla.broker.ports.timed import ignore_cost
from ottla.protocol.steps import Steps
from ottla.testkit.in_memory.ports import Killed, PortCalls

T = TypeVar("T")
R = TypeVar("R")

VOLUME_BYTES: Final = 1 << 40


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
        except OSError as error:
            if disk.random.random() < 0.3:  # extra bytes stay at the end if truncating fails too
                data += b"".join(buffers)[: disk.random.randrange(1, 80)]
                raise OSError(error.errno, error.strerror) from None  # so it is not only a shortage of space
            raise
        disk.under_way = self._inode, buffers
        try:
            disk.ports.call("append")
        except Killed:
            if disk.torn_writes:  # SIGKILL may end a write between two pages
                torn = b"".join(buffers)
                data += torn[: disk.random.randrange(len(torn) + 1)]
            raise
        finally:
            disk.under_way = None
        for buffer in buffers:
            data += buffer
        self.size_bytes = len(data)
        self._inode.steps.append(len(data))
        disk.ports.call("append")

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._disk.errors.call("pread")
        return bytes(self._inode.data[position : position + size_bytes])

    def slice(self, position: int, size_bytes: int) -> "MemorySlice":
        return MemorySlice(self._disk, self._inode, position, size_bytes)

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
        """Do nothing: no resources are open."""


class MemorySlice:
    """A part of a file; it stays readable if the file is renamed or deleted."""

    __slots__ = ("_disk", "_inode", "_left_bytes", "_position")

    def __init__(self, disk: "MemoryDisk", inode: Inode, position: int, size_bytes: int) -> None:
        self._disk = disk
        self._inode = inode
        self._position = position
        self._left_bytes = size_bytes

    def __len__(self) -> int:
        return self._left_bytes

    def take(self, size_bytes: int) -> bytes:
        self._disk.errors.call("pread")
        data = bytes(self._inode.data[self._position : self._position + min(size_bytes, self._left_bytes)])
        if not data:
            raise CutShort(f"{self._left_bytes} bytes are missing at position {self._position}")
        self._position += len(data)
        self._left_bytes -= len(data)
        return data

    def send_to(self, socket: int, spare_bytes: int) -> int:
        raise NotImplementedError("the simulation has no sockets")


class MemoryLock:
    """The lock of the running broker."""

    def release(self) -> None:
        """Do nothing: a killed process loses its lock, so no state is stored."""


class MemorySyncJob:
    """A background sync that the schedule ends."""

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
        self.under_way: tuple[Inode, Sequence[Buffer]] | None = None
        """The append that has begun and has not written yet."""
        self.charge: Callable[[float], None] = ignore_cost
        self._defer = defer
        self._tree = Tree()
        self._syncs: dict[MemorySyncJob, Callable[[], None]] = {}
        self.failed_syncs = 0
        """Number of failed background syncs, which the broker may not have checked yet."""

    # --- the port

    def open(self, path: str, create: bool = False) -> MemoryFile:
        self.charge(FILE_CALL_US)
        self.errors.call("open")
        node = self._tree.find(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(path)
        if node is None:
            if not create:
                raise FileNotFoundError(path)
            node = self._create(path)
        return MemoryFile(self, node)

    def exists(self, path: str) -> bool:
        return self._tree.find(path) is not None

    def size_bytes(self, path: str) -> int:
        return len(self._file(path).data)

    def list(self, path: str) -> list[str]:
        self.errors.call("list")
        node = self._tree.find(path)
        self.charge(FILE_CALL_US + (len(node.entries) if isinstance(node, Directory) else 0))
        if not isinstance(node, Directory):
            raise FileNotFoundError(path) if node is None else NotADirectoryError(path)
        return sorted(node.entries)

    def make_dir(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(path)
        self._change("mkdir", path, Directory())

    def make_dirs(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            parent = "/" + "/".join(parts[:depth])
            if not self.exists(parent):
                self._change("mkdir", parent, Directory())

    def rename(self, old: str, new: str) -> None:
        node = self._tree.find(old)
        if node is None:
            raise FileNotFoundError(old)
        (directory, gone), (target, name) = self._tree.parent(old), self._tree.parent(new)
        if directory is not target:
            raise NotImplementedError("a rename to another directory")
        self.charge(FILE_CALL_US)
        self.errors.call("rename")
        self.ports.call("rename")
        self._tree.change(directory, {gone: None, name: node})
        self.ports.call("rename")

    def remove(self, path: str) -> None:
        self._file(path)
        self._change("unlink", path, None)

    def remove_tree(self, path: str) -> None:
        for name in self.list(path):
            inside = f"{path}/{name}"
            if isinstance(self._tree.find(inside), Directory):
                self.remove_tree(inside)
            else:
                self.remove(inside)
        self._change("rmdir", path, None)

    def read(self, path: str) -> bytes:
        self.errors.call("read")
        data = self._file(path).data
        self.charge(FILE_CALL_US + len(data) * COPY_BYTE_US)
        return bytes(data)

    def write(self, path: str, data: Buffer) -> None:
        self.charge(WRITE_FILE_US + len(data) * COPY_BYTE_US)
        self.errors.call("write")
        node = self._tree.find(path)
        inode = node if isinstance(node, Inode) else self._create(path)
        self.ports.call("write")
        inode.data[:] = data
        inode.replaced = True
        inode.steps.clear()
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
        nodes = [self._tree.find(path) for path in paths]
        if None in nodes:
            raise FileNotFoundError(paths[nodes.index(None)])
        self.sync_inodes([node for node in nodes if isinstance(node, Inode)])
        for node in nodes:
            if isinstance(node, Directory):
                node.settle(node.changes)

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> MemorySyncJob:
        job = MemorySyncJob()
        nodes = [node for node in map(self._tree.find, paths) if node is not None]
        contents = [(node, bytes(node.data)) for node in nodes if isinstance(node, Inode)]
        directories = [(node, node.changes) for node in nodes if isinstance(node, Directory)]

        def end() -> None:
            if self._syncs.pop(job, None) is None:
                return  # it was ended early, or the power was lost
            try:
                self.errors.call("sync")
                for inode, content in contents:
                    if inode.durable == content or not inode.durable.startswith(content):
                        inode.settle(content)
                for directory, changes in directories:
                    directory.settle(changes)
                self._tree.journal.clear()
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
        """End the current background syncs now."""
        for end in list(self._syncs.values()):
            end()

    def sync_dir(self, path: str) -> None:
        self.charge(SYNC_US)
        self.errors.call("sync_dir")
        self.ports.call("sync_dir")
        self._tree.journal.clear()
        node = self._tree.find(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(path)
        node.settle(node.changes)
        self.ports.call("sync_dir")

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.errors.call("write")
        self._file(path).modified_ms = modified_ms

    def volume(self, path: str) -> Volume:
        used_bytes = sum(len(inode.data) for inode in self._tree.files().values())
        return Volume(path, VOLUME_BYTES, max(0, VOLUME_BYTES - used_bytes))

    def lock(self, path: str) -> MemoryLock:
        if not self.exists(path):
            self._create(path)
        return MemoryLock()

    def random_id(self) -> bytes:
        return self.random.randbytes(16)

    def run_parallel(
        self, work: Callable[[Disk, T], R], items: Sequence[T], sizes: Sequence[int], done: Callable[[int], None]
    ) -> Steps[dict[int, R]]:
        yield from ()
        return {}

    # --- methods for the simulation

    def fill(self, files: Mapping[str, bytes]) -> None:
        """Add files and their directories to the device, without calls of the disk port."""
        for path, content in files.items():
            steps = path.split("/")[1:-1]
            directory = self._tree.root
            for name in steps:
                inside = directory.entries.setdefault(name, Directory())
                if not isinstance(inside, Directory):
                    raise NotADirectoryError(path)
                directory = inside
            inode = Inode(content)
            inode.durable = bytes(content)
            directory.entries[path.rpartition("/")[2]] = inode
        self._tree.settle()

    def all_files(self) -> dict[str, bytes]:
        """Return {path: content} of every file, as a process sees it."""
        return {path: bytes(inode.data) for path, inode in self._tree.files().items()}

    def sync_inodes(self, inodes: Sequence[Inode]) -> None:
        """Record that the content of files is on the device."""
        self.charge(SYNC_US)
        self.errors.call("sync")
        self.ports.call("sync")
        for inode in inodes:
            inode.settle(bytes(inode.data))
        self._tree.journal.clear()
        self.ports.call("sync")

    def lose_power(self, kind: PowerLoss = PowerLoss.JOURNAL) -> None:
        """Lose the power: keep only the data that is on the device."""
        self._syncs.clear()
        in_order = kind is PowerLoss.JOURNAL
        if in_order:
            self._tree.lose_from_the_end(self.random)
        else:
            self._tree.lose_any(self.random)
        for inode in self._tree.files().values():
            left = (left_in_order if in_order else left_by_pages)(inode, self.random)
            inode.data = bytearray(left)
            inode.replaced = False
            inode.settle(left)

    def copy(self, ports: PortCalls, defer: Callable[[Callable[[], None]], None]) -> "MemoryDisk":
        """Return a copy with the same content and the same state of the device."""
        twin = MemoryDisk(ports, self.random, defer)
        twin.torn_writes, twin.now_ms = self.torn_writes, self.now_ms
        twin._tree = self._tree.copy()
        return twin

    def tear(self, other: "MemoryDisk") -> None:
        """Write, half of the time, a part of the current append of `other`, of which this disk is a copy."""
        if other.under_way is not None and self.random.random() < 0.5:
            inode, buffers = other.under_way
            path = next(path for path, each in other._tree.files().items() if each is inode)
            data = b"".join(buffers)
            self._file(path).data += data[: self.random.randrange(1, len(data))]

    def files_under(self, path: str) -> dict[str, bytes]:
        """Return {path: content} of every file in a directory, as a process sees it."""
        directory = self._tree.find(path)
        nodes = sorted(directory.entries.items()) if isinstance(directory, Directory) else []
        return {f"{path}/{name}": bytes(node.data) for name, node in nodes if isinstance(node, Inode)}

    def _create(self, path: str) -> Inode:
        inode = Inode()
        inode.modified_ms = self.now_ms()
        self._change("link", path, inode)
        return inode

    def _file(self, path: str) -> Inode:
        node = self._tree.find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(path)
        return node

    def _change(self, what: str, path: str, node: Inode | Directory | None) -> None:
        """Point a name at a file or directory, or remove it."""
        directory, name = self._tree.parent(path)
        self.charge(FILE_CALL_US)
        self.errors.call(what)
        self.ports.call(what)
        self._tree.change(directory, {name: node})
        self.ports.call(what)
