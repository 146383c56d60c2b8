"""In-memory directories, and the changes of names that a power loss undoes. free

This module models two file systems at once. One has a journal (ext4): any sync commits all earlier changes of names,
and a power loss undoes the latest uncommitted ones. The other gives only what POSIX guarantees: only a sync of the
directory makes its names durable, and each other change may be lost independently.
"""

from collections.abc import Iterator
from random import Random
from typing import Final, TypeAlias

KEPT_SHARES: Final = (0.0, 0.3, 0.7, 1.0)


class Inode:
    """The content of a file, and the part of it that is on the device."""

    __slots__ = ("data", "durable", "modified_ms", "replaced", "steps")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = b""
        self.modified_ms = 0
        # Since the last sync: whether the content was truncated and written again, and where appends ended.
        self.replaced = False
        self.steps: list[int] = []

    def settle(self, content: bytes) -> None:
        """Record that `content`, an earlier or the current content, is on the device."""
        self.durable = content
        self.replaced = self.replaced and bytes(self.data) != content
        self.steps = [end for end in self.steps if end > len(content)]

    def copy(self) -> "Inode":
        twin = Inode(bytes(self.data))
        twin.durable, twin.modified_ms = self.durable, self.modified_ms
        twin.replaced, twin.steps = self.replaced, list(self.steps)
        return twin


class Directory:
    """Names as a process sees them, as the last sync of this directory left them, and the changes since then."""

    __slots__ = ("durable", "entries", "pending", "settled")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[Entries] = []
        # Number of changes that are durable now.
        self.settled = 0

    @property
    def changes(self) -> int:
        """Number of changes of the names."""
        return self.settled + len(self.pending)

    def settle(self, changes: int) -> None:
        """Make the first `changes` changes durable."""
        count = max(0, changes - self.settled)
        for change in self.pending[:count]:
            _apply(self.durable, change)
        del self.pending[:count]
        self.settled += count


Node: TypeAlias = Inode | Directory
Entries: TypeAlias = dict[str, Node | None]
"""New targets of some names (None: no target). A change takes effect as a whole or not at all."""


class Tree:
    """All names of a disk. Paths begin with a slash, the root is the empty one."""

    def __init__(self) -> None:
        self.root = Directory()
        # Changes that no sync has committed, as (directory, earlier targets of the names).
        self.journal: list[tuple[Directory, Entries]] = []

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in path.rstrip("/").split("/")[1:]:
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        """The directory of a path, and the name in it. Raises FileNotFoundError."""
        above, _, name = path.rpartition("/")
        directory = self.find(above)
        if not isinstance(directory, Directory):
            raise FileNotFoundError(path)
        return directory, name

    def change(self, directory: Directory, change: Entries) -> None:
        self.journal.append((directory, {name: directory.entries.get(name) for name in change}))
        directory.pending.append(change)
        _apply(directory.entries, change)

    def files(self) -> dict[str, Inode]:
        """{path: file}, by path."""
        return dict(sorted(_files("", self.root)))

    def settle(self) -> None:
        """Make all names durable."""
        self.journal.clear()
        for directory in _directories(self.root):
            directory.settled = directory.changes
            directory.durable = dict(directory.entries)
            directory.pending.clear()

    # --- power losses

    def lose_from_the_end(self, random: Random) -> None:
        """Undo the uncommitted changes after a random point of the journal."""
        kept = random.randrange(len(self.journal) + 1)
        for directory, before in reversed(self.journal[kept:]):
            _apply(directory.entries, before)
        self.settle()

    def lose_any(self, random: Random) -> None:
        """Keep or lose each change that no sync of its directory has made durable."""
        kept_share = random.choice(KEPT_SHARES)
        seen: set[Directory] = set()
        left = [self.root]
        while left:
            directory = left.pop()
            seen.add(directory)
            directory.entries = dict(directory.durable)
            for change in directory.pending:
                if random.random() < kept_share:
                    _apply(directory.entries, change)
            inside = [node for _, node in sorted(directory.entries.items()) if isinstance(node, Directory)]
            left += [node for node in inside if node not in seen]
        self.settle()

    # --- twins

    def copy(self) -> "Tree":
        """Return a copy with its own files and directories."""
        twin, twins = Tree(), _Twins()
        twin.root = twins.directory(self.root)
        twin.journal = [(twins.directory(directory), twins.entries(before)) for directory, before in self.journal]
        return twin


class _Twins:
    """Copied files and directories, so that a file with several names is copied once."""

    def __init__(self) -> None:
        self._inodes: dict[Inode, Inode] = {}
        self._directories: dict[Directory, Directory] = {}

    def node(self, node: Node) -> Node:
        if isinstance(node, Directory):
            return self.directory(node)
        if node not in self._inodes:
            self._inodes[node] = node.copy()
        return self._inodes[node]

    def directory(self, directory: Directory) -> Directory:
        known = self._directories.get(directory)
        if known is not None:
            return known
        twin = self._directories[directory] = Directory()
        twin.entries = {name: self.node(node) for name, node in directory.entries.items()}
        twin.durable = {name: self.node(node) for name, node in directory.durable.items()}
        twin.pending = [self.entries(change) for change in directory.pending]
        twin.settled = directory.settled
        return twin

    def entries(self, change: Entries) -> Entries:
        return {name: None if node is None else self.node(node) for name, node in change.items()}


def _apply(entries: dict[str, Node], change: Entries) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _files(path: str, directory: Directory) -> Iterator[tuple[str, Inode]]:
    for name, node in directory.entries.items():
        inside = f"{path}/{name}"
        if isinstance(node, Directory):
            yield from _files(inside, node)
        else:
            yield inside, node


def _directories(directory: Directory) -> Iterator[Directory]:
    yield directory
    for node in directory.entries.values():
        if isinstance(node, Directory):
            yield from _directories(node)
