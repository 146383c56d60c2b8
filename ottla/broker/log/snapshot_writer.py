"""Writing the snapshot of many producers while they go on appending: a few milliseconds of it per turn. shell

A roll must not wait until a million producers are encoded. They are frozen as of the roll (`Producers.freeze`), written
to a `.tmp` file, and the file gets its name when it is whole. If a crash comes before that, or the partition is closed,
an older snapshot and the batches behind it say the same.
"""

from collections.abc import Callable
from typing import Final

from ottla.broker.log.producers import Producers
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk
from ottla.protocol.snapshot import SnapshotEncoder

BUDGET_MS: Final = 2.0


class SnapshotWriter:
    """One snapshot at `path`, as of now. `written` hears of its end, `failed` of failed IO."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        path: str,
        producers: Producers,
        written: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """Raises OSError."""
        self._disk = disk
        self._clock = clock
        self._path = path
        self._producers = producers
        self._written = written
        self._failed = failed
        self._encoder = SnapshotEncoder(len(producers))
        disk.write(f"{path}.tmp", self._encoder.head())
        self._file = disk.open(f"{path}.tmp")
        self._slices = producers.freeze()
        self._stopped = False
        clock.next_turn(self._write_some)

    def stop(self) -> None:
        """Write nothing more; the `.tmp` file is left to the next start."""
        self._stopped = True
        self._producers.thaw()
        self._file.close()

    def _write_some(self) -> None:
        if self._stopped:
            return
        until_ms = self._clock.monotonic_ms() + BUDGET_MS
        try:
            for entries in self._slices:
                self._file.append((self._encoder.encode(entries),))
                if self._clock.monotonic_ms() > until_ms:
                    self._clock.next_turn(self._write_some)
                    return
            self._file.overwrite(0, self._encoder.head())
            self.stop()
            self._disk.rename(f"{self._path}.tmp", self._path)
        except OSError as error:
            self.stop()
            self._failed(error)
            return
        self._written()
