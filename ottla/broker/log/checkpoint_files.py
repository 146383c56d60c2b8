"""Writing of checkpoint files without blocking on the device. shell

A checkpoint that recovery reads is written to a `.tmp` file, synced in the disk's thread, and renamed after the sync.
A caller waits for the rename only if the older checkpoint would be wrong: a partition that it names may have been
deleted and created again.
"""

from collections.abc import Callable, Mapping

from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk, SyncJob


class CheckpointFiles:
    """The checkpoint files of one log directory, by name. `failed` is called with the error of failed IO."""

    def __init__(self, disk: Disk, clock: Clock, directory: str, failed: Callable[[OSError], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._failed = failed
        self._written: dict[str, bytes] = {}
        self._job: SyncJob | None = None
        # The contents that the running job syncs, and the callback for the time when files and names are durable.
        self._background: Mapping[str, bytes] = {}
        self._on_durable: Callable[[], None] | None = None
        # Whether a power loss can still restore an older file.
        self._renamed = False

    def __contains__(self, name: str) -> bool:
        """Return whether the file was written since the start."""
        return name in self._written

    def write(self, name: str, content: bytes, sync: bool) -> None:
        """Write a file now if its content has changed. Raises OSError."""
        if self._written.get(name) != content:
            self._disk.write_atomically(self._path(name), content, sync)
            self._written[name] = content
        elif sync and self._renamed:
            self._disk.sync_dir(self._directory)
        else:
            return
        if sync:
            self._renamed = False

    def write_in_background(self, contents: Mapping[str, bytes], on_durable: Callable[[], None] | None = None) -> None:
        """Write and sync the changed files in the background. No effect while an earlier write is running.

        With `on_durable` the names are synced too, and then it is called. Raises OSError.
        """
        if self._job is not None:
            return
        changed = {name: content for name, content in contents.items() if self._written.get(name) != content}
        for name, content in changed.items():
            self._disk.write(f"{self._path(name)}.tmp", content)
        if changed:
            self._start(changed, on_durable)
        elif on_durable is not None:
            self._start({}, on_durable)

    def _start(self, contents: Mapping[str, bytes], on_durable: Callable[[], None] | None) -> None:
        """Start to sync the `.tmp` files of these contents, or if there are none, the names in the directory."""
        self._background, self._on_durable = contents, on_durable
        paths = [f"{self._path(name)}.tmp" for name in contents] or [self._directory]
        self._job = self._disk.start_sync(paths, lambda: self._clock.from_thread(self._end))
        self._end()  # the job may have ended before `_job` was set

    def discard_background_write(self) -> None:
        """Discard the files that are being written in the background: they keep their `.tmp` names."""
        self._background, self._on_durable = {}, None

    def _end(self) -> None:
        job = self._job
        if job is None or not job.done:
            return
        self._job = None
        contents, on_durable = self._background, self._on_durable
        self.discard_background_write()
        if job.error is not None:
            self._failed(job.error)
            return
        try:
            for name, content in contents.items():
                self._disk.rename(f"{self._path(name)}.tmp", self._path(name))
                self._written[name] = content
                self._renamed = True
            if contents and on_durable is not None:
                self._start({}, on_durable)
                return
        except OSError as error:
            self._failed(error)
            return
        if on_durable is not None:
            self._renamed = False
            on_durable()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
