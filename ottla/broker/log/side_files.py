"""Files of the log directory that are no log: checkpoints of the metadata, its snapshots, what Kafka left. shell"""

from collections.abc import Callable, Sequence

from ottla.broker.log.swap import DELETED
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk, File, SyncJob


class SideFiles:
    """Each is named by its path from the log directory. `delete_later` deletes by whole paths, after a while."""

    def __init__(self, disk: Disk, clock: Clock, directory: str, delete_later: Callable[[Sequence[str]], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._delete_later = delete_later

    def names(self, place: str = "") -> list[str]:
        """Names in the log directory, or in a directory of it; none where there is none."""
        try:
            return self._disk.list(self._path(place) if place else self._directory)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes:
        """The whole file."""
        return self._disk.read(self._path(name))

    def size_bytes(self, name: str) -> int:
        """How large the file is."""
        return self._disk.size_bytes(self._path(name))

    def create(self, name: str) -> File:
        """An empty file, open for writing."""
        self._disk.write(self._path(name), b"")
        return self._disk.open(self._path(name))

    def start_sync(self, names: Sequence[str], on_end: Callable[[OSError | None], None]) -> None:
        """Put files and directories on the device, beside the loop; `on_end` is called on it."""
        paths = [self._path(name) for name in names]
        jobs: list[SyncJob] = []
        jobs.append(self._disk.start_sync(paths, lambda: self._clock.from_thread(lambda: on_end(jobs[0].error))))

    def rename(self, old: str, new: str) -> None:
        """Give the file another name, in the place of what had it."""
        self._disk.rename(self._path(old), self._path(new))

    def remove(self, name: str) -> None:
        """Delete the file at once."""
        self._disk.remove(self._path(name))

    def delete_later(self, name: str) -> None:
        """Rename the file to a `.deleted` one, which goes after `file.delete.delay.ms`."""
        renamed = self._path(name + DELETED)
        self._disk.rename(self._path(name), renamed)
        self._delete_later((renamed,))

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
