"""Files of the log directory that are not logs: metadata checkpoints and snapshots, files left by Kafka. shell"""

from collections.abc import Callable, Sequence

from ottla.broker.log.swap import DELETED
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk, File, SyncJob


class SideFiles:
    """Operations on these files, named by their path in the log directory.

    `delete_later` takes full paths and deletes them after `file.delete.delay.ms`.
    """

    def __init__(self, disk: Disk, clock: Clock, directory: str, delete_later: Callable[[Sequence[str]], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._delete_later = delete_later

    def names(self, place: str = "") -> list[str]:
        """Return the names in the log directory or a subdirectory; none if it does not exist."""
        try:
            return self._disk.list(self._path(place) if place else self._directory)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return self._disk.read(self._path(name))

    def size_bytes(self, name: str) -> int:
        """Return the size of a file."""
        return self._disk.size_bytes(self._path(name))

    def create(self, name: str) -> File:
        """Create an empty file and open it for writing."""
        self._disk.write(self._path(name), b"")
        return self._disk.open(self._path(name))

    def start_sync(self, names: Sequence[str], on_end: Callable[[OSError | None], None]) -> None:
        """Sync files and directories in the background; `on_end` is called on the event loop with the error or None."""
        paths = [self._path(name) for name in names]
        jobs: list[SyncJob] = []
        jobs.append(self._disk.start_sync(paths, lambda: self._clock.from_thread(lambda: on_end(jobs[0].error))))

    def rename(self, old: str, new: str) -> None:
        """Rename a file; it replaces a file of the new name."""
        self._disk.rename(self._path(old), self._path(new))

    def remove(self, name: str) -> None:
        """Delete the file at once."""
        self._disk.remove(self._path(name))

    def delete_later(self, name: str) -> None:
        """Rename the file to `.deleted`, and delete it after `file.delete.delay.ms`."""
        renamed = self._path(name + DELETED)
        self._disk.rename(self._path(name), renamed)
        self._delete_later((renamed,))

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
