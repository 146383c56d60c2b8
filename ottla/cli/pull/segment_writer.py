"""Writer of the segments of a partition: appends batches as they are, with their indexes and producers. shell

Leader epochs, producers and indexes follow the batches by the functions of recovery (`replay.py`), so all files are
those that recovery would make.
"""

from typing import Final

from ottla.broker.log.batches import Run
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import stray_snapshots
from ottla.broker.log.replay import replay_run
from ottla.broker.log.segments.log_segment import MAX_RELATIVE_OFFSET, LogSegment
from ottla.broker.ports.disk import Disk
from ottla.cli.pull.runs import next_offset, take
from ottla.protocol import checkpoints
from ottla.protocol.batch_header import LOG_OVERHEAD
from ottla.protocol.errors import ProtocolError
from ottla.protocol.snapshot import encode_snapshot

_CONTINUED_BYTES: Final = 64 * 1024 * 1024
"""A run continues a segment up to this size, because it indexes the whole segment again."""
_SNAPSHOT: Final = ".snapshot"


class Refused(Exception):
    """A topic or partition cannot be copied into this directory. The text is one line with the reason."""


class SegmentWriter:
    """Appends batches to the last segment, and begins a new one where it is full. `next_offset` follows the copy.

    Each write ends with a whole batch. A failed write leaves the file as it was. A segment is on the device before the
    next one begins, so a loss of power cuts only the last one.
    """

    def __init__(
        self, disk: Disk, directory: str, loaded: LoadedLog, config: LogConfig, segment_bytes: int, now_ms: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._segment_bytes = segment_bytes
        self._now_ms = now_ms
        self._segments = [one for one in loaded.segments if disk.exists(one.log_path)]
        self._segment: LogSegment | None = None
        self._snapshot_offset = loaded.snapshot_offset
        self._unsynced: list[str] = []
        self._fault = ""
        self._least = loaded.segments.end_offset if loaded.segments.size_bytes else 0
        self.producers, self.epochs = loaded.producer_state, loaded.epochs
        self.next_offset = loaded.segments.end_offset
        self.batches = self.size_bytes = 0
        if self._segments and self._segments[-1].size_bytes < _CONTINUED_BYTES:
            self._segment = self._segments[-1]
            self._segment.rebuild_index()

    def write(self, run: Run) -> None:
        """Append batches. Raises Refused if they do not follow those in the files, ProtocolError, OSError."""
        if (first := run.headers[0][0]) < self._least:
            raise Refused(f"the copy ends at offset {self._least}, and a batch of the source begins at {first}")
        self.batches += len(run.headers)
        self.size_bytes += len(run.data)
        while run.headers:
            count = self._count_fitting(run)
            if self._segment is None or not count:
                self._open(run.headers[0][0])
                continue
            self._append(self._segment, take(run, 0, count))
            run = take(run, count, len(run.headers))

    def _append(self, segment: LogSegment, run: Run) -> None:
        segment.append_run(run)
        self.next_offset = self._least = next_offset(run)
        try:
            replay_run(run, segment, self.producers, self.epochs)
        except ProtocolError as error:
            self._fault = str(error)
            raise
        self.producers.forget_ended_txns(self.next_offset)

    def skip_to(self, offset: int) -> None:
        """Continue at a later offset, in a new segment: the offsets before it are gone at the source."""
        self.next_offset = offset
        self._open(offset)

    def finish(self, log_start: int) -> None:
        """Write the files of the last segment, the leader epochs and the snapshot, and put all on the device.

        Without a segment, create an empty one, which shows where the log begins. Raises Refused if a batch could not be
        replayed.
        """
        if self._fault:
            raise Refused(f"{self._directory} is damaged: {self._fault}; pull into a new directory")
        if self._segment is None:
            self._open(self.next_offset)
        self._seal()
        if self.next_offset > max(self._snapshot_offset, 0):
            self._save_snapshot(self.next_offset)
        self._remove_stray_snapshots()
        self.epochs.truncate_from_start(max(log_start, self._segments[0].base_offset))
        path = f"{self._directory}/{checkpoints.LEADER_EPOCHS}"
        self._disk.write_atomically(path, checkpoints.encode_epochs(self.epochs.entries))
        self._disk.sync([path for path in self._unsynced if self._disk.exists(path)])
        self._disk.sync_dir(self._directory)

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    def _open(self, base_offset: int) -> None:
        """Continue in another segment. If the open one has a later offset it is empty, and goes."""
        replaced = self._segment if self._segment is not None and base_offset < self._segment.base_offset else None
        if replaced is not None:
            self._segments.remove(replaced)
        else:
            self._seal()
        if self._segments:
            self._save_snapshot(base_offset)
        self._segment = LogSegment(
            self._disk, self._directory, base_offset, self._config.index_interval_bytes, created_ms=self._now_ms
        )
        self._segments.append(self._segment)
        _ = self._segment.file  # creates it
        if replaced is not None:
            replaced.delete()

    def _seal(self) -> None:
        """Write the index files of the open segment, unless it is empty, and put its batches on the device."""
        if self._segment is None:
            return
        self._unsynced.append(self._segment.log_path)
        if self._segment.size_bytes:
            self._segment.seal()
            self._segment.file.sync()
            self._unsynced += self._segment.paths
        self._segment.close()

    def _save_snapshot(self, offset: int) -> None:
        path = f"{self._directory}/{offset:020d}{_SNAPSHOT}"
        self._disk.write(path, encode_snapshot(self.producers.snapshot()))
        self._unsynced.append(path)
        self._snapshot_offset = offset

    def _remove_stray_snapshots(self) -> None:
        names = [name for name in self._disk.list(self._directory) if name.endswith(_SNAPSHOT)]
        bases = {segment.base_offset for segment in self._segments}
        for offset in stray_snapshots([int(name.removesuffix(_SNAPSHOT)) for name in names], bases, self.next_offset):
            self._disk.remove(f"{self._directory}/{offset:020d}{_SNAPSHOT}")

    def _count_fitting(self, run: Run) -> int:
        """Return the number of batches that fit into the open segment; at least one fits into an empty segment."""
        segment = self._segment
        if segment is None or run.headers[0][0] < segment.base_offset:
            return 0
        end, most_offset = segment.size_bytes, segment.base_offset + MAX_RELATIVE_OFFSET
        if end + len(run.data) <= self._segment_bytes and next_offset(run) - 1 <= most_offset:
            return len(run.headers)
        for count, (base_offset, length, _, _, _, _, delta, *_) in enumerate(run.headers):
            end += LOG_OVERHEAD + length
            if end > self._segment_bytes or base_offset + delta > most_offset:
                return count or int(segment.size_bytes == 0)
        return len(run.headers)
