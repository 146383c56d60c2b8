"""Writer of producer snapshots: small ones at once, large ones over many turns while producers append. shell

A roll must not wait until a million producers are encoded. Their state at the roll is frozen
(`ProducerStateManager.freeze`) and written to a `.tmp` file, which is renamed when it is complete. If the broker
crashes or the partition is closed before that, an older snapshot and the batches after it give the same state.
"""

from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Final

from ottla.broker.log.producer_state_manager import ProducerStateManager
from ottla.broker.ports.disk import Disk, File
from ottla.broker.turns import Activity, Turns
from ottla.protocol.snapshot import ProducerEntry, SnapshotEncoder, encode_snapshot
from ottla.protocol.steps import RECORD_US

_log = getLogger(__name__)

AT_ONCE: Final = 1_000
"""Largest number of producers for a snapshot in one step: it takes half of a turn budget."""


class SnapshotWriter:
    """Writes the snapshots of one directory.

    `written` is called with the path of each snapshot, `failed` with the error of IO that fails in a later turn.
    Without `turns` all snapshots are written at once.
    """

    __slots__ = ("_activity", "_directory", "_disk", "_failed", "_file", "_producers", "_turns", "_written", "offset")

    def __init__(
        self,
        disk: Disk,
        turns: Turns | None,
        directory: str,
        producers: ProducerStateManager,
        offset: int,
        written: Callable[[str], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self.offset = offset
        """Offset of the newest snapshot; -1 if there is none."""
        self._disk = disk
        self._turns = turns
        self._directory = directory
        self._producers = producers
        self._written = written
        self._failed = failed
        self._activity: Activity[None] | None = None
        self._file: File | None = None

    def path(self, offset: int) -> str:
        """Return the path of the snapshot at `offset`."""
        return f"{self._directory}/{offset:020d}.snapshot"

    def take(self, end_offset: int) -> None:
        """Write a snapshot, at once or over the next turns. No effect while another one is being written.

        Raises OSError.
        """
        if self._turns is None or len(self._producers) <= AT_ONCE:
            self.save(end_offset)
            self._written(self.path(end_offset))
        elif self._file is None:
            self._begin(self._turns, end_offset)

    def save(self, end_offset: int) -> bool:
        """Write a snapshot now; False if the log has not grown since the last snapshot, or is empty, as in Kafka.

        Raises OSError.
        """
        if end_offset <= max(self.offset, 0):
            return False
        self._disk.charge(len(self._producers) * RECORD_US)
        self._disk.write(self.path(end_offset), encode_snapshot(self._producers.snapshot()))
        self.offset = end_offset
        return True

    def stop(self) -> None:
        """Abort the running snapshot; the next start removes its `.tmp` file."""
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.discard()
        if self._file is not None:
            self._producers.thaw()
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Abort the running snapshot, and drop the references to the callbacks."""
        self.stop()
        self._written = self._failed = ignore

    def _begin(self, turns: Turns, end_offset: int) -> None:
        path = self.path(end_offset)
        encoder = SnapshotEncoder(len(self._producers))
        self._disk.write(f"{path}.tmp", encoder.head())
        self._file = self._disk.open(f"{path}.tmp")
        slices = self._producers.freeze()

        def end(result: None) -> None:
            self.offset = end_offset
            self._written(path)

        self._activity = turns.start(self._write(turns, self._file, path, encoder, slices), end, self._handle_error)

    async def _write(
        self, turns: Turns, file: File, path: str, encoder: SnapshotEncoder, slices: Iterator[list[ProducerEntry]]
    ) -> None:
        await turns.pause()
        for entries in slices:
            turns.charge(len(entries) * RECORD_US)
            file.append((encoder.encode(entries),))
            await turns.yield_if_due()
        file.overwrite(0, encoder.head())
        self._activity = None  # this step ends it
        self.stop()
        self._disk.rename(f"{path}.tmp", path)

    def _handle_error(self, error: Exception) -> None:
        self._activity = None
        self.stop()
        if isinstance(error, OSError):
            self._failed(error)
        else:
            _log.error("A producer snapshot in %s failed; the next roll tries again", self._directory, exc_info=error)


def ignore(_value: object) -> None:
    """Do nothing. Replaces the callbacks of a closed log."""
