"""The snapshots of a partition's producers: a few at once, many while they go on appending, in shares. shell

A roll must not wait until a million producers are encoded. They are frozen as of the roll
(`ProducerStateManager.freeze`), written to a `.tmp` file, and the file gets its name when it is whole. If a crash comes
before that, or the partition is closed, an older snapshot and the batches behind it say the same.
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
"""A snapshot of so many producers is half of a share."""


class SnapshotWriter:
    """The snapshots in one directory. `written` hears of the path of each, `failed` of IO that fails in a later turn.

    Without `turns` all are written at once.
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
        """The log's end at the newest snapshot; -1 if there is none."""
        self._disk = disk
        self._turns = turns
        self._directory = directory
        self._producers = producers
        self._written = written
        self._failed = failed
        self._activity: Activity[None] | None = None
        self._file: File | None = None

    def path(self, offset: int) -> str:
        """Where the snapshot of a log that ended at `offset` stands."""
        return f"{self._directory}/{offset:020d}.snapshot"

    def take(self, end_offset: int) -> None:
        """Take one, at once or over the next turns. One at a time: the next roll after its end takes the next one.

        Raises OSError.
        """
        if self._turns is None or len(self._producers) <= AT_ONCE:
            self.save(end_offset)
            self._written(self.path(end_offset))
        elif self._file is None:
            self._begin(self._turns, end_offset)

    def save(self, end_offset: int) -> bool:
        """Write one now. As in Kafka, none is written without progress since the last one; an empty log has none.

        Raises OSError.
        """
        if end_offset <= max(self.offset, 0):
            return False
        self._disk.charge(len(self._producers) * RECORD_US)
        self._disk.write(self.path(end_offset), encode_snapshot(self._producers.snapshot()))
        self.offset = end_offset
        return True

    def stop(self) -> None:
        """Write nothing more; a `.tmp` file is left to the next start."""
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.discard()
        if self._file is not None:
            self._producers.thaw()
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Write nothing more, and let go of who hears of it."""
        self.stop()
        self._written = self._failed = nobody

    def _begin(self, turns: Turns, end_offset: int) -> None:
        path = self.path(end_offset)
        encoder = SnapshotEncoder(len(self._producers))
        self._disk.write(f"{path}.tmp", encoder.head())
        self._file = self._disk.open(f"{path}.tmp")
        slices = self._producers.freeze()

        def ended(result: None) -> None:
            self.offset = end_offset
            self._written(path)

        self._activity = turns.start(self._write(turns, self._file, path, encoder, slices), ended, self._broke)

    async def _write(
        self, turns: Turns, file: File, path: str, encoder: SnapshotEncoder, slices: Iterator[list[ProducerEntry]]
    ) -> None:
        await turns.pause()
        for entries in slices:
            turns.charge(len(entries) * RECORD_US)
            file.append((encoder.encode(entries),))
            await turns.share()
        file.overwrite(0, encoder.head())
        self._activity = None  # it ends by itself
        self.stop()
        self._disk.rename(f"{path}.tmp", path)

    def _broke(self, error: Exception) -> None:
        self._activity = None
        self.stop()
        if isinstance(error, OSError):
            self._failed(error)
        else:
            _log.error("A snapshot of producers in %s was given up", self._directory, exc_info=error)


def nobody(_told: object) -> None:
    """Hears what is said of a log that is closed."""
